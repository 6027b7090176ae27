"""One SSE response: a bounded buffer between those who have something to say and the one task that writes."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from math import inf
from typing import TYPE_CHECKING, Final

import trio

from mcpd.errors import ExchangeClosedError
from mcpd.protocol import sse

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpd.endpoint.exchange import Exchange, HeaderList
    from mcpd.endpoint.heartbeats import Heartbeats

logger: Final = logging.getLogger("mcpd.streams")

HEADERS: Final[HeaderList] = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    # "servers SHOULD include the X-Accel-Buffering: no header" (2026-07-28, basic/transports/streamable-http).
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """Events on their way to one client.

    Memory is bounded: a producer that can wait does so (`room`); one that cannot (`push` of a change) finds the stream
    closed when the client has fallen *max_buffer* bytes behind. It ends cleanly (`finish`) or is given up (`close`).
    """

    __slots__ = (
        "_buffer",
        "_counts",
        "_deadline",
        "_done",
        "_end",
        "_exchange",
        "_finishing",
        "_heartbeats",
        "_kind",
        "_max_buffer",
        "_over",
        "_room",
        "_size",
        "_sleeper",
        "_write_timeout",
        "closed",
    )

    def __init__(
        self,
        exchange: Exchange,
        *,
        kind: str,
        counts: dict[str, int],
        heartbeats: Heartbeats,
        max_buffer: int,
        write_timeout: float,
    ) -> None:
        """
        Args:
          exchange: whose response it is.
          kind: what it counts as.
          counts: open streams by kind.
          heartbeats: says when it was silent for too long.
          max_buffer: bytes that may wait for the client to read.
          write_timeout: seconds that one write may take before the client counts as gone.
        """  # noqa: D205, D212 - the class says it
        self._exchange = exchange
        self._kind = kind
        self._counts = counts
        self._heartbeats = heartbeats
        self._max_buffer = max_buffer
        self._write_timeout = write_timeout
        self._buffer: list[bytes] = []
        self._size = 0
        self._finishing = False
        # Thousands of these may be open, so no event is made before somebody waits for it.
        self._sleeper: trio.lowlevel.Task | None = None
        self._room: trio.Event | None = None
        self._over = False
        self._done: trio.Event | None = None
        self._deadline = inf
        self._end: Callable[[], object] | None = None
        self.closed = False
        """Nothing more will reach the client."""

    async def wait_over(self) -> None:
        """Return once the response is complete, or given up."""
        if self._over:
            await trio.lowlevel.checkpoint()
            return
        if self._done is None:
            self._done = trio.Event()
        await self._done.wait()

    def push(self, data: bytes) -> bool:
        """Put encoded events into the buffer; False when nobody will read them."""
        if self.closed or self._finishing:
            return False
        if self._size + len(data) > self._max_buffer and self._size:
            logger.warning("A client does not read its stream: closed with %d bytes waiting", self._size)
            self.close()
            return False
        self._buffer.append(data)
        self._size += len(data)
        self._wake()
        return True

    def beat(self) -> None:
        """Send a comment if nothing else is being sent."""
        if self._sleeper is not None:
            self.push(sse.HEARTBEAT)

    async def room(self, size: int) -> None:
        """Wait until *size* more bytes fit, or the stream is closed."""
        await trio.lowlevel.checkpoint()
        while not self.closed and self._size and self._size + size > self._max_buffer:
            if self._room is None:
                self._room = trio.Event()
            await self._room.wait()

    def end_at(self, deadline: float, end: Callable[[], object]) -> None:
        """Call *end*, which finishes the stream, at *deadline* on Trio's clock, unless it has ended before."""
        self._deadline = deadline
        self._end = end

    def finish(self) -> None:
        """End the response after what is in the buffer."""
        self._finishing = True
        self._wake()

    def close(self) -> None:
        """Give up: the client is gone, or does not read."""
        self.closed = True
        self._buffer.clear()
        self._size = 0
        self._wake()
        self._let_in()

    def give_up(self) -> None:
        """Close what nobody writes."""
        self.close()
        self._end = None  # it knows this stream, and nothing is to wait for the garbage collector
        self._over = True
        if self._done is not None:
            self._done.set()

    async def run(self, headers: HeaderList) -> None:
        """Write until the stream is finished or closed. Cancelling it closes it."""
        self._counts[self._kind] += 1
        try:
            await self._write_all(headers)
        except ExchangeClosedError:
            pass
        except Exception:
            # One client's stream must not take the server with it.
            logger.exception("Writing a stream failed")
        finally:
            self._counts[self._kind] -= 1
            self._heartbeats.forget(self)
            self.give_up()

    async def _write_all(self, headers: HeaderList) -> None:
        exchange = self._exchange
        await exchange.start(200, headers)
        if not self._buffer and not self._finishing:
            # Some proxies hold even the response's head back until its first byte.
            self.push(sse.HEARTBEAT)
        while not self.closed:
            if self._end is not None and self._deadline <= trio.current_time():
                end, self._end = self._end, None
                end()
            if self._buffer:
                data = b"".join(self._buffer)
                self._buffer.clear()
                self._heartbeats.heard(self)
                with trio.move_on_after(self._write_timeout) as patience:
                    await exchange.write(data)
                if patience.cancelled_caught:
                    logger.warning("A client has read nothing for %g s: its stream is closed", self._write_timeout)
                    return
                self._size = max(0, self._size - len(data))
                self._let_in()
                del data, patience  # or they would be kept while the stream is silent
            elif self._finishing:
                await exchange.finish()
                return
            else:
                await self._sleep()

    async def _sleep(self) -> None:
        """Wait for something to write, or for the time to end."""
        with nullcontext() if self._end is None else trio.CancelScope(deadline=self._deadline):
            self._sleeper = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._stop_sleeping)

    def _stop_sleeping(self, _: object) -> trio.lowlevel.Abort:
        self._sleeper = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _wake(self) -> None:
        sleeper, self._sleeper = self._sleeper, None
        if sleeper is not None:
            trio.lowlevel.reschedule(sleeper)

    def _let_in(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None
