"""What a GET of a legacy session opens: its standalone stream, or the rest of any of its streams.

Source: 2025-11-25, basic/transports, "Listening for Messages from the Server" and "Resumability and Redelivery".
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

import trio

from mcpd.endpoint.guard import refusal
from mcpd.endpoint.stream import HEADERS, EventStream
from mcpd.errors import StoreError
from mcpd.protocol import sse as sse_encoding
from mcpd.server.changes import Change
from mcpd.sessions.leases import LOOK_AGAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcpd.endpoint.endpoint import Endpoint
    from mcpd.endpoint.exchange import Admitted
    from mcpd.ports import EventLog
    from mcpd.sessions.sessions import Session

logger: Final = logging.getLogger("mcpd.http")
LISTENER: Final = "0"
"""The standalone stream in the event log; the streams of POSTs have random names, and longer ones."""


class SessionStreams:
    """Opens the streams, and holds them open."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Args: *endpoint*: the whole."""
        self._endpoint = endpoint

    async def open(self, get: Admitted, session: Session, log: EventLog | None) -> None:
        """Answer a GET with the stream that it asks for, until that ends.

        Args:
          get: what is answered.
          session: whose stream.
          log: where its events are, if they can be resumed.

        Raises:
          LimitError: too many streams are open.
          ProtocolError: the session has ended, or the event is not known.
          StoreError: the store cannot be reached.
        """
        last = None if log is None else get.exchange.headers.get(b"last-event-id")
        stream_id, _, after = (last or "").rpartition(".")
        standalone = last is None or stream_id == LISTENER
        leaving = int(standalone and session.live.standalone is not None)
        with self._endpoint.stream_places.held(get.owner, leaving=leaving):
            if log is None or standalone:
                await self._listen(get, session, log, None if last is None else after)
            else:
                await self._resume(get, session, log, (stream_id, after))

    async def _listen(self, get: Admitted, session: Session, log: EventLog | None, after: str | None) -> None:
        """The standalone stream: changes, as they come. With *after*, first what was missed."""
        endpoint = self._endpoint
        stream = endpoint.new_stream(get.exchange, "get")
        listener = Listener(session, stream, log, after)
        if after is not None and log is not None and await log.read(session.key, LISTENER, after=after) is None:
            raise refusal(400, "That event is not known (any more): open the stream without Last-Event-ID")
        live = session.live
        # Before the first event: what changes after that is told.
        endpoint.subscriptions.add(listener)
        try:
            if after is None and log is not None:
                number = await session.log(LISTENER, b"")
                if session.revision.priming:
                    stream.push(sse_encoding.priming(f"{LISTENER}.{number}", retry=endpoint.retry))
            await endpoint.sessions.take_over(session, stream)
            if live.ended:
                raise refusal(404, "Session not found: it has ended or expired; initialize again")
            del session.record  # it may be open for hours, and whoever needs the record then needs it as it is then
            if after is None:
                await self._hold(get, session, stream)
                return
            async with trio.open_nursery() as nursery:
                nursery.start_soon(listener.catch_up)
                await self._hold(get, session, stream)
                nursery.cancel_scope.cancel()
        finally:
            endpoint.subscriptions.remove(listener)
            if live.standalone is not None and live.standalone.stream is stream:
                live.standalone = None

    async def _resume(self, get: Admitted, session: Session, log: EventLog, event: tuple[str, str]) -> None:
        """The rest of a POST's stream, as far as it has come and as it goes on, here or on another replica."""
        stream_id, after = event
        if await log.read(session.key, stream_id, after=after) is None:
            raise refusal(400, "That event is not known (any more): its stream cannot be resumed")
        stream = self._endpoint.new_stream(get.exchange, "resume")

        async def read_on() -> None:
            position = after
            while not stream.closed:
                found = await log.read(session.key, stream_id, after=position)
                if found is None:
                    break
                events, finished = found
                for missed in events:
                    position = missed.id
                    if missed.data:
                        data = sse_encoding.message(missed.data, f"{stream_id}.{missed.id}")
                        await stream.room(len(data))
                        stream.push(data)
                if finished:
                    break
                if not events:
                    await self._wait(session, log, stream_id, position)

        async def follow() -> None:
            try:
                await read_on()
            except StoreError as exc:
                # The response has begun; who wants the rest asks for it when the store is back.
                logger.warning("A resumed stream could not be followed any further: %s", exc)
            stream.finish()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await self._hold(get, session, stream)
            nursery.cancel_scope.cancel()

    async def _wait(self, session: Session, log: EventLog, stream_id: str, position: str) -> None:
        """Return when the stream may have gone on. If who ran its call is gone, it ends here, with an error."""
        with trio.move_on_after(LOOK_AGAIN) as silence:
            await log.wait(session.key, stream_id, after=position)
        if silence.cancelled_caught:
            leases = self._endpoint.leases
            lost = await leases.lost(session.key, stream_id)
            for index, error in enumerate(lost):
                await log.append(session.key, stream_id, error, last=index == len(lost) - 1)
            if lost:
                await leases.settled(session.key, stream_id)

    async def _hold(self, get: Admitted, session: Session, stream: EventStream) -> None:
        """Write the stream until it ends, is closed by the client, or the session, the server or the token ends."""
        endpoint = self._endpoint
        get.exchange.on_close(stream.close)
        session.live.streams.add(stream)
        endpoint.streams.add(stream)
        if session.live.ended or endpoint.draining:
            stream.finish()
        endpoint.end_with_token(get.principal, stream, stream.finish)
        try:
            await stream.run([*HEADERS, *get.checked.cors])
        finally:
            session.live.streams.discard(stream)
            endpoint.streams.discard(stream)


class Listener:
    """A standalone GET stream as a subscriber to changes."""

    def __init__(self, session: Session, stream: EventStream, log: EventLog | None, after: str | None = None) -> None:
        """
        Args:
          session: whose stream.
          stream: where to write.
          log: so that it can be resumed.
          after: the last event that the client has; until `catch_up` is done, changes are only logged.
        """  # noqa: D205, D212 - the class says it
        self._session = session
        self._stream = stream
        self._log = log
        self._after = None if log is None else after
        # Between a read that finds nothing more and the first change that is written, none may be logged.
        self._turn = None if self._after is None else trio.Lock()

    async def catch_up(self) -> None:
        """Write what was missed, as fast as the client reads it."""
        log, turn = self._log, self._turn
        if log is None or turn is None:
            return
        try:
            while self._after is not None:
                async with turn:
                    found = await log.read(self._session.key, LISTENER, after=self._after)
                    if not found or not found[0]:
                        self._after = None
                        return
                for event in found[0]:
                    self._after = event.id
                    if event.data:
                        data = sse_encoding.message(event.data, f"{LISTENER}.{event.id}")
                        await self._stream.room(len(data))
                        self._stream.push(data)
        except StoreError as exc:
            # The client asks again for what it has not got.
            logger.warning("A resumed stream could not be followed any further: %s", exc)
            self._stream.finish()

    async def deliver(self, change: Change) -> None:
        """Send the change if the session wants it."""
        session = self._session
        if session.live.ended or change.kind == "task":
            return  # what is logged now would be kept for nobody; and of tasks only the modern era is told like this
        if change.kind == "resource":
            # What it is subscribed to stands in its record: any replica may have changed it since the stream was
            # opened.
            record = await session.reload()
            if record is None or change.uri not in record.subscriptions:
                return
        await self._tell(change)

    async def missed(self, lists: Sequence[Change]) -> None:
        """Changes may have been lost."""
        record = await self._session.reload()
        if record is not None and not self._session.live.ended:
            for change in (*lists, *(Change("resource", uri) for uri in record.subscriptions)):
                await self._tell(change)

    async def _tell(self, change: Change) -> None:
        session = self._session
        message = change.notification()
        event_id = None
        async with self._turn or nullcontext():
            if self._log is not None:
                event_id = f"{LISTENER}.{await session.log(LISTENER, message)}"
            if self._after is None:
                self._stream.push(sse_encoding.message(message, event_id))
