"""What of a session is live in this process: calls in flight, open streams, questions without an answer yet.

A `Live` is held by the exchanges that use it and by nothing else; it is found through a `WeakValueDictionary`. So it
exists exactly while the session is in use here, which is also what "busy" means.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
import trio

from mcpd.errors import CONNECTION_CLOSED, ClientError, ProtocolError
from mcpd.sessions.record import cancelled_call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from mcpd.protocol.jsonrpc import Message, RequestId
    from mcpd.server.call import Call

T = TypeVar("T")


class Closable(Protocol):
    """A stream that can be told to end."""

    def finish(self) -> None:
        """End cleanly, after what is buffered."""
        ...


class _Question:
    __slots__ = ("answer", "answered")

    def __init__(self) -> None:
        self.answered = trio.Event()
        self.answer: Message | None = None


class Questions:
    """Requests of ours to a client, until it answers. Their ids are random: only whom we asked can answer."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[RequestId, _Question] = {}

    async def ask(
        self,
        send: Callable[[RequestId], Awaitable[None]],
        read: Callable[[msgspec.Raw], T],
        *,
        timeout: float,
        give_up: Callable[[RequestId], Awaitable[None]],
    ) -> T:
        """Send a question and wait for its answer.

        Args:
          send: sends the request under the id it is given.
          read: turns the result into what the caller wants.
          timeout: seconds to wait.
          give_up: tells the client that the request with this id is no longer waited for.

        Raises:
          ClientError: an error for an answer, or something *read* refuses, or none in time.
        """
        id_ = secrets.token_urlsafe(12)
        question = self._open[id_] = _Question()
        try:
            await send(id_)
            with trio.move_on_after(timeout):
                await question.answered.wait()
        finally:
            del self._open[id_]
        answer = question.answer
        if answer is None:
            await give_up(id_)
            raise ClientError(CONNECTION_CLOSED, f"The client did not answer within {timeout:g} s")
        return read_answer(answer, read)

    @property
    def waiting(self) -> list[RequestId]:
        """The ids of those that have no answer yet."""
        return [id_ for id_, question in self._open.items() if question.answer is None]

    def answer(self, message: Message) -> bool:
        """Hand over the client's answer; False when nobody waits for it."""
        question = self._open.get(message.id) if isinstance(message.id, str) else None
        if question is None:
            return False
        question.answer = message
        question.answered.set()
        return True


def read_answer(answer: Message, read: Callable[[msgspec.Raw], T]) -> T:
    """What *read* makes of an answer's result.

    Raises:
      ClientError: the answer is an error, or *read* refuses it.
    """
    if isinstance(answer.result, msgspec.UnsetType):
        error: Any = answer.error
        raise ClientError(error.code, f"The client answered with an error: {error.message}", error.data)
    try:
        return read(answer.result)
    except ValueError as exc:
        raise ClientError(CONNECTION_CLOSED, f"The client's answer does not fit: {exc}") from None


class Standalone:
    """The standalone GET stream of a session on this replica."""

    __slots__ = ("announced", "name", "stream")

    def __init__(self, name: bytes, stream: Closable) -> None:
        self.name = name
        self.stream = stream
        self.announced = False
        """The bus has brought back its own word of it: what it brings after that is newer."""


class Live:
    """One session's live part in this process."""

    __slots__ = ("__weakref__", "_questions", "calls", "ended", "key", "seen", "standalone", "streams")

    def __init__(self, key: str) -> None:
        self.key = key
        self.calls: dict[RequestId, list[Call]] = {}
        self._questions: Questions | None = None
        self.streams: set[Closable] = set()
        self.standalone: Standalone | None = None
        self.seen: Sequence[bytes] = ()
        """The cancellations in the record that this replica knows of."""
        self.ended = False

    @property
    def questions(self) -> Questions:
        """What its client has been asked here."""
        if self._questions is None:
            self._questions = Questions()
        return self._questions

    def enter(self, call: Call) -> None:
        """A call starts. Clients may use one id for several at once; each has its own exchange."""
        self.calls.setdefault(call.id, []).append(call)

    def leave(self, call: Call) -> None:
        """The call is over."""
        same = self.calls[call.id]
        same.remove(call)
        if not same:
            del self.calls[call.id]

    def cancel(self, request_id: RequestId) -> bool:
        """The client no longer wants an answer; False when there is no such call here."""
        calls = self.calls.get(request_id, ())
        for call in calls:
            call.cancel()
        return bool(calls)

    def see(self, cancelled: Sequence[bytes]) -> None:
        """The cancellations as the record has them: what is new was cancelled elsewhere, and may run here."""
        known, self.seen = self.seen, cancelled
        if self.calls:
            for mark in cancelled:
                if mark not in known:
                    self.cancel(cancelled_call(mark))

    def hear_of_stream(self, name: bytes) -> None:
        """A standalone stream has been opened somewhere: the one here ends, if it is older.

        All replicas hear of all streams in one order, and of their own as well; so exactly the last one stays.
        """
        current = self.standalone
        if current is None:
            return
        if name == current.name:
            current.announced = True
        elif current.announced:
            current.stream.finish()

    def end(self) -> None:
        """The session is over: its calls are cancelled and answered so, its streams end."""
        self.ended = True
        for calls in list(self.calls.values()):
            for call in calls:
                call.cancel(ProtocolError(CONNECTION_CLOSED, "The session was terminated"))
        for stream in list(self.streams):
            stream.finish()
