"""The response of one POST: a JSON body if the result comes first and soon, else an SSE stream.

The choice is made as late as it can be: a notification or question that precedes the result makes it a stream, and so
does a call that takes long, so that proxies and clients see bytes. What is sent on a stream that can be resumed is in
the event log as well; losing the connection then loses nothing.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec
import trio

from mcpd.endpoint.exchange import JSON
from mcpd.endpoint.stream import HEADERS, EventStream
from mcpd.errors import CONNECTION_CLOSED, ClientError, StoreError
from mcpd.protocol import sse
from mcpd.protocol.jsonrpc import encode_notification, encode_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from mcpd.endpoint.access import Checked
    from mcpd.endpoint.exchange import Exchange, HeaderList
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


class Reply(msgspec.Struct, eq=False):
    """The response under way. It implements `mcpd.server.call.Outlet`."""

    exchange: Exchange
    """What is answered."""
    checked: Checked
    """How it may be answered."""
    streams: Streams
    """Opens streams."""
    headers: HeaderList
    """Fields of the response besides its own."""
    session: Session | None = None
    """The legacy session, whose client can be asked."""
    log: EventLog | None = None
    """Where the events of the session's stream go so that it can be resumed; None if it cannot."""
    primed: bool = False
    """Whether a stream begins with an event to resume from."""
    ids: Sequence[RequestId] = ()
    """The requests it answers."""
    cancel: Callable[[], object] | None = None
    """Called when the client is gone (modern); a legacy call goes on."""
    stream: EventStream | None = None
    stream_id: str = ""
    opened: trio.Event | None = None
    """Set when the stream is open; there from when that begins."""
    order: trio.Lock | None = None
    """Only for streams that are logged: event ids must be in the order of the events, whichever task sends them."""
    finished: bool = False

    # ----- Outlet

    async def send(self, message: bytes) -> None:
        """Send a notification on the call's own stream."""
        if self.finished or not self.checked.sse:
            # After the response there is nothing to send, and a client that takes only JSON takes only the response.
            await trio.lowlevel.checkpoint()
            return
        await self._emit(message)

    async def ask(
        self, method: str, params: dict[str, Any], read: Callable[[msgspec.Raw], T], *, key: str | None, timeout: float
    ) -> T:
        """Ask the client of a legacy session on the call's own stream; the answer comes by a POST of its own."""
        session = self.session
        if session is None or not self.checked.sse:
            raise ClientError(CONNECTION_CLOSED, "This client cannot be asked: it has no session or takes no stream")

        async def send(request_id: RequestId) -> None:
            await self._emit(encode_request(request_id, method, params))

        async def give_up(request_id: RequestId) -> None:
            reason = {"requestId": request_id, "reason": f"No answer within {timeout:g} s"}
            await self.send(encode_notification("notifications/cancelled", reason))

        return await session.ask(send, read, timeout=timeout, give_up=give_up)

    async def close_stream(self) -> None:
        """Close the connection; the client resumes the stream with GET and Last-Event-ID."""
        if self.log is None or not self.primed or not self.checked.sse or self.finished:
            await trio.lowlevel.checkpoint()
            return
        stream = await self._open()
        if self.primed:
            stream.finish()
            await stream.wait_over()

    # ----- The endpoint's side

    async def go_stream(self) -> None:
        """Make it a stream now, if the client takes one: the result takes long."""
        if self.checked.sse and not self.finished:
            await self._open()

    async def refuse(self, answer: Answer, challenge: HeaderList) -> None:
        """Send the one response, an error, with what tells the client what it lacks."""
        self.headers = [*challenge, *self.headers]
        await self.answer(answer, answer.status)

    def ends_whole(self) -> bool:
        """Whether the response may go out as one JSON body, as it mostly does; then it is for the caller to send."""
        if self.opened is not None or not self.checked.json:
            return False
        self.finished = True
        self.cancel = None
        return True

    async def answer(self, answer: Answer | None, status: int = 200) -> None:
        """Send the one response, or end without one (a cancelled request gets none)."""
        await self.answer_all([] if answer is None else [answer.body], status, batch=False)

    async def answer_all(self, bodies: Sequence[bytes], status: int = 200, *, batch: bool = True) -> None:
        """Send all responses of a batch."""
        self.finished = True
        # The call holds this reply as its outlet; holding the call as well would make a cycle.
        self.cancel = None
        if self.opened is not None:
            # It may be about to become a stream just now.
            await self.opened.wait()
        stream = self.stream
        if stream is not None:
            logged = True
            for index, body in enumerate(bodies):
                logged = await self._emit(body, last=index == len(bodies) - 1) and logged
            if not bodies:
                logged = await self._keep(b"", last=True) is not None
            if self.order is not None and self.session is not None:
                leases = self.streams.leases
                if logged or self.session.live.ended:  # of a session that has ended nobody resumes anything
                    await self._lease(leases.release(self.session.key, self.stream_id))
                else:
                    # Who resumes it never finds its end: but that nobody holds the lease any more.
                    leases.abandon(self.session.key, self.stream_id)
            stream.finish()
            await stream.wait_over()
        elif not bodies:
            # An accepted message without a response.
            await self.exchange.respond(202, self.headers)
        elif self.checked.json or status != 200:
            body = b"[" + b",".join(bodies) + b"]" if batch else bodies[0]
            await self.exchange.respond(status, [JSON, *self.headers], body)
        else:
            events = b"".join(map(sse.message, bodies))
            await self.exchange.respond(status, [*HEADERS, *self.headers], events)

    async def _open(self) -> EventStream:
        while self.opened is not None:
            await self.opened.wait()
            if self.stream is not None:
                return self.stream
        stream = self.streams.new_stream(self.exchange, "post")
        if self.finished:
            # Who opened it was cancelled, and the response has been sent without it.
            stream.give_up()
            return stream
        opened = self.opened = trio.Event()
        try:
            session = self.session
            if session is not None and self._resumable():
                self.stream_id = secrets.token_urlsafe(9)
                self.order = trio.Lock()
                if not await self._lease(self.streams.leases.hold(session.key, self.stream_id, self.ids)):
                    # Who resumed it elsewhere would never learn that we are gone: so nobody can.
                    self.log = self.order = None
                first = await self._keep(b"") if self.primed else None
                self.primed = first is not None
                if first is not None:
                    stream.push(sse.priming(first, retry=self.streams.retry))
            if self.cancel is None:
                self.exchange.on_close(stream.close)
            self.stream = stream
            self.streams.start_stream(stream, [*HEADERS, *self.headers])
        finally:
            # When this was cancelled on the way, who waits for the stream opens it.
            if self.stream is None:
                self.opened = None
            opened.set()
        return stream

    async def _emit(self, message: bytes, *, last: bool = False) -> bool:
        """Send it, and log it where events are logged; False if that did not work."""
        stream = await self._open()
        if self.order is None:
            data = sse.message(message)
            await stream.room(len(data))
            stream.push(data)
            return True
        async with self.order:
            event_id = await self._keep(message, last=last)
            data = sse.message(message, event_id)
            await stream.room(len(data))
            stream.push(data)
            return event_id is not None

    async def _keep(self, data: bytes, *, last: bool = False) -> str | None:
        """Log an event of a stream that can be resumed; its id, or None if it is not kept."""
        session = self.session
        if session is None or not self._resumable():
            return None
        try:
            number = await session.log(self.stream_id, data, last=last)
        except StoreError as exc:
            # The client gets it all the same; it only cannot resume from here.
            logger.warning("An event of a stream could not be logged: %s", exc)
            return None
        return f"{self.stream_id}.{number}"

    async def _lease(self, change: Awaitable[None]) -> bool:
        try:
            await change
        except StoreError as exc:
            logger.warning("A lease could not be changed: %s", exc)
            return False
        return True

    def _resumable(self) -> bool:
        """Whether events are logged: not once the session has ended, for then they would be kept for nobody."""
        return self.log is not None and self.session is not None and not self.session.live.ended

    def lost(self) -> None:
        """The client is gone."""
        if self.stream is not None:
            self.stream.close()
        if self.cancel is not None:
            self.cancel()
