"""The event log in this process's memory."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import trio

from mcpd.ports import Event

if TYPE_CHECKING:
    from collections.abc import Sequence

_CHUNK: Final = 250
"""Streams dropped between two checkpoints."""


class _Stream:
    # Most streams only ever have the event that begins them, and nobody waits for more: they should cost little.
    __slots__ = ("changed", "events", "finished", "size", "touched")

    def __init__(self) -> None:
        self.events: list[tuple[int, bytes]] = []
        self.size = 0
        self.finished = False
        self.touched = 0.0
        self.changed: trio.lowlevel.ParkingLot | None = None
        """Who waits for it to go on."""

    def tell(self) -> None:
        """It has gone on, or is gone."""
        if self.changed is not None:
            self.changed.unpark_all()
            self.changed = None


class MemoryEvents:
    """`mcpd.ports.EventLog`: the last events of each stream, bounded in number, and all together in bytes."""

    def __init__(self, *, per_stream: int = 1_000, max_bytes: int = 64 * 1024 * 1024, keep: float = 300.0) -> None:
        """
        Args:
          per_stream: how many events a stream keeps.
          max_bytes: how many bytes all events take together; the stream that was silent longest gives way.
          keep: seconds that a finished stream can still be resumed.
        """  # noqa: D205, D212 - the class says it
        self._per_stream = per_stream
        self._max_bytes = max_bytes
        self._keep = keep
        self._numbers = itertools.count(1)
        self._sessions: dict[str, dict[str, _Stream]] = {}
        # By last event, the one that was silent longest first.
        self._order: OrderedDict[tuple[str, str], _Stream] = OrderedDict()
        self._bytes = 0
        self.dropped = 0

    async def append(self, session: str, stream: str, data: bytes, *, last: bool = False) -> str:
        """Add an event and return its id: a number that no other event of this process has."""
        await trio.lowlevel.checkpoint()
        streams = self._sessions.setdefault(session, {})
        found = streams.get(stream)
        if found is None:
            found = streams[stream] = _Stream()
        number = next(self._numbers)
        found.events.append((number, data))
        found.size += len(data)
        self._bytes += len(data)
        found.finished = last
        found.touched = trio.current_time()
        self._order[session, stream] = found
        self._order.move_to_end((session, stream))
        if len(found.events) > self._per_stream:
            self._drop_event(found)
        while self._bytes > self._max_bytes:
            key, oldest = next(iter(self._order.items()))
            if oldest is found:
                self._drop_event(found)
            else:
                self._drop_stream(*key)
        found.tell()
        return str(number)

    async def read(self, session: str, stream: str, *, after: str) -> tuple[Sequence[Event], bool] | None:
        """The events after *after*; None when there is no such event of this stream."""
        await trio.lowlevel.checkpoint()
        found = self._sessions.get(session, {}).get(stream)
        # The id must be one we gave: not "+1", not a digit of another script, not one of another stream.
        if found is None or not after.isascii() or not after.isdigit():
            return None
        position = next((i for i, (number, _) in enumerate(found.events) if str(number) == after), None)
        if position is None:
            return None
        events = [Event(str(number), data) for number, data in itertools.islice(found.events, position + 1, None)]
        return events, found.finished

    async def wait(self, session: str, stream: str, *, after: str) -> None:
        """Return when the stream has an event after *after*, or is gone."""
        found = self._sessions.get(session, {}).get(stream)
        if found is None or found.finished or (found.events and str(found.events[-1][0]) != after):
            await trio.lowlevel.checkpoint()
            return
        if found.changed is None:
            found.changed = trio.lowlevel.ParkingLot()
        await found.changed.park()

    async def forget(self, session: str) -> None:
        """Drop all events of the session."""
        await trio.lowlevel.checkpoint()
        self.forget_now(session)

    def forget_now(self, session: str) -> None:
        """The same, for who cannot wait."""
        for stream in list(self._sessions.get(session, ())):
            self._drop_stream(session, stream)

    async def sweep(self) -> None:
        """Drop the streams that finished long ago."""
        deadline = trio.current_time() - self._keep
        old = itertools.takewhile(lambda item: item[1].touched <= deadline, self._order.items())
        due = [(key, stream) for key, stream in old if stream.finished]
        for number, (key, stream) in enumerate(due, 1):
            if self._order.get(key) is stream and stream.touched <= deadline:
                self._drop_stream(*key)
            if number % _CHUNK == 0:
                await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()

    def _drop_event(self, stream: _Stream) -> None:
        _, data = stream.events.pop(0)
        stream.size -= len(data)
        self._bytes -= len(data)
        self.dropped += 1

    def _drop_stream(self, session: str, stream: str) -> None:
        found = self._order.pop((session, stream))
        self._bytes -= found.size
        streams = self._sessions[session]
        del streams[stream]
        if not streams:
            del self._sessions[session]
        found.tell()
