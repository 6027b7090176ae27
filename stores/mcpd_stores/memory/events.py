"""The event log in this process's memory."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from mcpd.ports import Event
from mcpd_stores.memory.index import Index

if TYPE_CHECKING:
    from collections.abc import Sequence

_CHUNK: Final = 250
"""Streams dropped between two checkpoints."""
_LARGE: Final = 1 / 64
"""Of all bytes: a stream that takes more gives way before those that do not."""


class _Begun(msgspec.Struct, gc=False):
    # Most sessions have one stream that never has more than the event that begins it, for nothing changes. In full
    # these streams would cost more than all else that is kept of a session.
    stream: str
    number: int


class _Stream:
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
          max_bytes: how many bytes all events take together; the stream that was silent longest gives way, one that
          takes much before any other.
          keep: seconds that a finished stream can still be resumed.
        """  # noqa: D205, D212 - the class says it
        self._per_stream = per_stream
        self._max_bytes = max_bytes
        self._keep = keep
        self._numbers = itertools.count(1)
        # At most one of a session; it is not below then.
        self._begun: Index[_Begun] = Index()
        self._sessions: dict[str, dict[str, _Stream]] = {}
        # Those that are finished, in the order in which they were.
        self._finished: OrderedDict[tuple[str, str], _Stream] = OrderedDict()
        # By last event, the one that was silent longest first.
        self._order: OrderedDict[tuple[str, str], _Stream] = OrderedDict()
        # The large ones among these, of which there are few.
        self._large: OrderedDict[tuple[str, str], _Stream] = OrderedDict()
        self._large_size = max_bytes * _LARGE
        self._bytes = 0
        self.dropped = 0

    async def append(self, session: str, stream: str, data: bytes, *, last: bool = False) -> str:
        """Add an event and return its id: a number that no other event of this process has."""
        await trio.lowlevel.checkpoint()
        number = next(self._numbers)
        found = self._find(session, stream)
        if found is None:
            if not data and not last and session not in self._sessions and self._begun.get(session) is None:
                self._begun.add(session, _Begun(stream, number))
                return str(number)
            found = self._new(session, stream)
        found.events.append((number, data))
        found.size += len(data)
        self._bytes += len(data)
        self._touch((session, stream), found, last=last)
        if len(found.events) > self._per_stream:
            self._drop_event(found)
        while self._bytes > self._max_bytes:
            # The large ones first: who is flooded must not cost all others the ends of their calls.
            key, oldest = next(iter((self._large or self._order).items()))
            if oldest is found:
                self._drop_event(found)
                if found.size <= self._large_size:
                    self._large.pop(key, None)
            else:
                self._drop_stream(*key)
        found.tell()
        return str(number)

    async def read(self, session: str, stream: str, *, after: str) -> tuple[Sequence[Event], bool] | None:
        """The events after *after*; None when there is no such event of this stream."""
        await trio.lowlevel.checkpoint()
        found = self._find(session, stream)
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
        found = self._find(session, stream)
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
        if self._begun.get(session) is not None:
            self._begun.remove(session)
        for stream in list(self._sessions.get(session, ())):
            self._drop_stream(session, stream)

    async def sweep(self) -> None:
        """Drop the streams that finished long ago."""
        deadline = trio.current_time() - self._keep
        dropped = 0
        while self._finished:
            key, stream = next(iter(self._finished.items()))
            if stream.touched > deadline:
                break
            self._drop_stream(*key)
            dropped += 1
            if dropped % _CHUNK == 0:
                await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()

    def _find(self, session: str, stream: str) -> _Stream | None:
        begun = self._begun.get(session)
        if begun is None or begun.stream != stream:
            return self._sessions.get(session, {}).get(stream)
        # There is more to it now.
        self._begun.remove(session)
        found = self._new(session, stream)
        found.events.append((begun.number, b""))
        self._touch((session, stream), found, last=False)
        return found

    def _new(self, session: str, stream: str) -> _Stream:
        found = self._sessions.setdefault(session, {})[stream] = _Stream()
        return found

    def _touch(self, key: tuple[str, str], stream: _Stream, *, last: bool) -> None:
        stream.finished = last
        stream.touched = trio.current_time()
        self._order[key] = stream
        self._order.move_to_end(key)
        if stream.size > self._large_size:
            self._large[key] = stream
            self._large.move_to_end(key)
        self._finished.pop(key, None)
        if last:
            self._finished[key] = stream

    def _drop_event(self, stream: _Stream) -> None:
        _, data = stream.events.pop(0)
        stream.size -= len(data)
        self._bytes -= len(data)
        self.dropped += 1

    def _drop_stream(self, session: str, stream: str) -> None:
        found = self._order.pop((session, stream))
        self._finished.pop((session, stream), None)
        self._large.pop((session, stream), None)
        self._bytes -= found.size
        streams = self._sessions[session]
        del streams[stream]
        if not streams:
            del self._sessions[session]
        found.tell()
