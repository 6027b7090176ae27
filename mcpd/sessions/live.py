"""What of a session is live in this process: calls in flight, open streams, questions without an answer yet.

A `Live` is held by the exchanges that use it and by nothing else; it is found through `Lives`, which holds none. So it
exists exactly while the session is in use here, which is also what "busy" means.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import ref

import msgspec
import trio

from mcpd.errors import CONNECTION_CLOSED, ClientError, ProtocolError
from mcpd.sessions.record import cancelled_call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

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


class Live(msgspec.Struct, weakref=True, eq=False):
    """One session's live part in this process."""

    key: str
    calls: set[Call] = set()
    """Those in flight. Clients may use one id for several at once; each has its own exchange."""
    asked: Questions | None = None
    streams: set[Closable] = set()
    standalone: Standalone | None = None
    seen: Sequence[bytes] = ()
    """The cancellations in the record that this replica knows of."""
    ended: bool = False

    @property
    def questions(self) -> Questions:
        """What its client has been asked here."""
        if self.asked is None:
            self.asked = Questions()
        return self.asked

    def cancel(self, request_id: RequestId) -> bool:
        """The client no longer wants an answer; False when there is no such call here."""
        found = [call for call in self.calls if call.id == request_id]
        for call in found:
            call.cancel()
        return bool(found)

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
        for call in list(self.calls):
            call.cancel(ProtocolError(CONNECTION_CLOSED, "The session was terminated"))
        for stream in list(self.streams):
            stream.finish()


class Lives:
    """The live part of every session in use in this process, by key. It holds none of them.

    A ``WeakValueDictionary`` does the same in five calls of Python for each request, where this has one.
    """

    __slots__ = ("_references",)

    def __init__(self) -> None:
        self._references: dict[str, ref[Live]] = {}

    def of(self, key: str) -> Live:
        """The one of this key, new if there is none; it is there for as long as it is held."""
        known = self._references.get(key)
        live = None if known is None else known()
        if live is None:
            live = Live(key)
            # Its end, which comes with its last holder, takes the entry away. (`pop` is called with the dead reference,
            # and takes that for its default.)
            self._references[key] = ref(live, partial(self._references.pop, key))
        return live

    def get(self, key: str) -> Live | None:
        """The one of this key, if there is one."""
        reference = self._references.get(key)
        return None if reference is None else reference()

    def all(self) -> list[Live]:
        """All there are now."""
        return [live for reference in list(self._references.values()) if (live := reference()) is not None]

    def __contains__(self, key: object) -> bool:
        return key in self._references

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._references))

    def __len__(self) -> int:
        return len(self._references)
