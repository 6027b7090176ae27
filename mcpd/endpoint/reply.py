"""The response of one POST: a JSON body if the result comes first and soon, else an SSE stream.

The choice is made as late as it can be: a notification or question that precedes the result makes it a stream, and so
does a call that takes long, so that proxies and clients see bytes. What is sent on a stream that can be resumed is in
the event log as well; losing the connection then loses nothing.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import trio

from mcpd.endpoint.exchange import JSON
from mcpd.endpoint.stream import HEADERS, EventStream
from mcpd.errors import CONNECTION_CLOSED, ClientError, StoreError
from mcpd.protocol import sse
from mcpd.protocol.jsonrpc import encode_notification, encode_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import msgspec

    from mcpd.endpoint.exchange import Admitted, Exchange, HeaderList
    from mcpd.ports import EventLog
    from mcpd.protocol.jsonrpc import RequestId
    from mcpd.server.dispatch import Answer
    from mcpd.sessions.leases import Leases
    from mcpd.sessions.sessions import Session

T = TypeVar("T")
logger: Final = logging.getLogger("mcpd.http")


class Streams(Protocol):
    """What a reply needs of the endpoint."""

    retry: float
    leases: Leases

    def new_stream(self, exchange: Exchange, kind: str) -> EventStream:
        """A new stream of the exchange."""
        ...

    def start_stream(self, stream: EventStream, headers: HeaderList) -> None:
        """Let a task of the endpoint write it."""
        ...


class Reply:
    """The response under way. It implements `mcpd.server.call.Outlet`."""

    __slots__ = (
        "_cancel",
        "_exchange",
        "_finished",
        "_headers",
        "_ids",
        "_json",
        "_log",
        "_opened",
        "_order",
        "_primed",
        "_session",
        "_sse",
        "_stream",
        "_stream_id",
        "_streams",
    )

    def __init__(
        self,
        post: Admitted,
        streams: Streams,
        *,
        session: Session | None = None,
        log: EventLog | None = None,
        ids: Sequence[RequestId] = (),
        cancel: Callable[[], object] | None = None,
    ) -> None:
        """
        Args:
          post: what is answered, and how it may be.
          streams: opens streams.
          session: the legacy session, whose client can be asked.
          log: where the events go so that the stream can be resumed; None if it cannot.
          ids: the requests it answers.
          cancel: called when the client is gone (modern); a legacy call goes on.
        """  # noqa: D205, D212 - the class says it
        self._exchange = post.exchange
        self._headers, self._json, self._sse = post.checked.cors, post.checked.json, post.checked.sse
        self._streams = streams
        self._session = session
        self._log = log if session is not None else None
        self._ids = ids
        self._primed = session is not None and session.revision.priming
        self._cancel = cancel
        self._stream: EventStream | None = None
        self._stream_id = ""
        self._opened: trio.Event | None = None
        # Only for streams that are logged: event ids must be in the order of the events, whichever task sends them.
        self._order: trio.Lock | None = None
        self._finished = False
        if cancel is not None:
            self._exchange.on_close(self._lost)

    # ----- Outlet

    async def send(self, message: bytes) -> None:
        """Send a notification on the call's own stream."""
        if self._finished or not self._sse:
            # After the response there is nothing to send, and a client that takes only JSON takes only the response.
            await trio.lowlevel.checkpoint()
            return
        await self._emit(message)

    async def ask(
        self, method: str, params: dict[str, Any], read: Callable[[msgspec.Raw], T], *, key: str | None, timeout: float
    ) -> T:
        """Ask the client of a legacy session on the call's own stream; the answer comes by a POST of its own."""
        session = self._session
        if session is None or not self._sse:
            raise ClientError(CONNECTION_CLOSED, "This client cannot be asked: it has no session or takes no stream")

        async def send(request_id: RequestId) -> None:
            await self._emit(encode_request(request_id, method, params))

        async def give_up(request_id: RequestId) -> None:
            reason = {"requestId": request_id, "reason": f"No answer within {timeout:g} s"}
            await self.send(encode_notification("notifications/cancelled", reason))

        return await session.ask(send, read, timeout=timeout, give_up=give_up)

    async def close_stream(self) -> None:
        """Close the connection; the client resumes the stream with GET and Last-Event-ID."""
        if self._log is None or not self._primed or not self._sse or self._finished:
            await trio.lowlevel.checkpoint()
            return
        stream = await self._open()
        if self._primed:
            stream.finish()
            await stream.wait_over()

    # ----- The endpoint's side

    @property
    def exchange(self) -> Exchange:
        """The exchange it belongs to."""
        return self._exchange

    @property
    def streaming(self) -> bool:
        """Whether it is a stream already."""
        return self._stream is not None

    async def go_stream(self) -> None:
        """Make it a stream now, if the client takes one: the result takes long."""
        if self._sse and not self._finished:
            await self._open()

    async def refuse(self, answer: Answer, challenge: HeaderList) -> None:
        """Send the one response, an error, with what tells the client what it lacks."""
        self._headers = [*challenge, *self._headers]
        await self.answer(answer, answer.status)

    async def answer(self, answer: Answer | None, status: int = 200) -> None:
        """Send the one response, or end without one (a cancelled request gets none)."""
        if answer is not None and self._opened is None and (self._json or status != 200):
            # The usual case: no stream, and a client that takes JSON.
            self._finished = True
            self._cancel = None
            await self._exchange.respond(status, [JSON, *self._headers], answer.body)
            return
        await self.answer_all([] if answer is None else [answer.body], status, batch=False)

    async def answer_all(self, bodies: Sequence[bytes], status: int = 200, *, batch: bool = True) -> None:
        """Send all responses of a batch."""
        self._finished = True
        # The call holds this reply as its outlet; holding the call as well would make a cycle.
        self._cancel = None
        if self._opened is not None:
            # It may be about to become a stream just now.
            await self._opened.wait()
        stream = self._stream
        if stream is not None:
            logged = True
            for index, body in enumerate(bodies):
                logged = await self._emit(body, last=index == len(bodies) - 1) and logged
            if not bodies:
                logged = await self._keep(b"", last=True) is not None
            if self._order is not None and self._session is not None:
                leases = self._streams.leases
                if logged or self._session.live.ended:  # of a session that has ended nobody resumes anything
                    await self._lease(leases.release(self._session.key, self._stream_id))
                else:
                    # Who resumes it never finds its end: but that nobody holds the lease any more.
                    leases.abandon(self._session.key, self._stream_id)
            stream.finish()
            await stream.wait_over()
        elif not bodies:
            # An accepted message without a response.
            await self._exchange.respond(202, self._headers)
        elif self._json or status != 200:
            body = b"[" + b",".join(bodies) + b"]" if batch else bodies[0]
            await self._exchange.respond(status, [JSON, *self._headers], body)
        else:
            events = b"".join(map(sse.message, bodies))
            await self._exchange.respond(status, [*HEADERS, *self._headers], events)

    async def _open(self) -> EventStream:
        while self._opened is not None:
            await self._opened.wait()
            if self._stream is not None:
                return self._stream
        stream = self._streams.new_stream(self._exchange, "post")
        if self._finished:
            # Who opened it was cancelled, and the response has been sent without it.
            stream.give_up()
            return stream
        opened = self._opened = trio.Event()
        try:
            session = self._session
            if session is not None and self._resumable():
                self._stream_id = secrets.token_urlsafe(9)
                self._order = trio.Lock()
                if not await self._lease(self._streams.leases.hold(session.key, self._stream_id, self._ids)):
                    # Who resumed it elsewhere would never learn that we are gone: so nobody can.
                    self._log = self._order = None
                first = await self._keep(b"") if self._primed else None
                self._primed = first is not None
                if first is not None:
                    stream.push(sse.priming(first, retry=self._streams.retry))
            if self._cancel is None:
                self._exchange.on_close(stream.close)
            self._stream = stream
            self._streams.start_stream(stream, [*HEADERS, *self._headers])
        finally:
            # When this was cancelled on the way, who waits for the stream opens it.
            if self._stream is None:
                self._opened = None
            opened.set()
        return stream

    async def _emit(self, message: bytes, *, last: bool = False) -> bool:
        """Send it, and log it where events are logged; False if that did not work."""
        stream = await self._open()
        if self._order is None:
            data = sse.message(message)
            await stream.room(len(data))
            stream.push(data)
            return True
        async with self._order:
            event_id = await self._keep(message, last=last)
            data = sse.message(message, event_id)
            await stream.room(len(data))
            stream.push(data)
            return event_id is not None

    async def _keep(self, data: bytes, *, last: bool = False) -> str | None:
        """Log an event of a stream that can be resumed; its id, or None if it is not kept."""
        session = self._session
        if session is None or not self._resumable():
            return None
        try:
            number = await session.log(self._stream_id, data, last=last)
        except StoreError as exc:
            # The client gets it all the same; it only cannot resume from here.
            logger.warning("An event of a stream could not be logged: %s", exc)
            return None
        return f"{self._stream_id}.{number}"

    async def _lease(self, change: Awaitable[None]) -> bool:
        try:
            await change
        except StoreError as exc:
            logger.warning("A lease could not be changed: %s", exc)
            return False
        return True

    def _resumable(self) -> bool:
        """Whether events are logged: not once the session has ended, for then they would be kept for nobody."""
        return self._log is not None and self._session is not None and not self._session.live.ended

    def _lost(self) -> None:
        if self._stream is not None:
            self._stream.close()
        if self._cancel is not None:
            self._cancel()
