"""The store in this process's memory: nothing to install, nothing shared, gone with the process.

A record stands once, in the expiry order of its TTL: an ordered map from key to record, the least recently used first.
All records of one order live equally long after their last use, so the order of use is the order of expiry; touch,
create and expiry cost the same whether there are ten records or a million. The same map answers look-ups.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict, deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from mcpd.errors import RecordExistsError, StoreError, StoreFullError
from mcpd.ports import Dropped, Event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Container, Sequence

SWEEP_EVERY: Final = 1.0
"""Seconds between two sweeps. A record past its deadline is hidden at once, and freed by the next sweep."""
_CHUNK: Final = 500
"""Records or streams freed between two checkpoints: a million that expire together must not stop the loop."""


class _Record(msgspec.Struct, gc=False):
    # gc=False: bytes and a float cannot be part of a cycle, and a million of them would slow each collection.
    data: bytes
    deadline: float


class MemoryRecords:
    """`mcpd.ports.RecordStore` in a dict. Keys may be any strings; they are only ever compared."""

    def __init__(self, capacity: int | None, dropped: Callable[[str], object]) -> None:
        """Args: *capacity*: how many records at most; *dropped*: called with each key that expired or gave way."""
        self._capacity = capacity
        self._dropped = dropped
        self._orders: dict[float, OrderedDict[str, _Record]] = {}
        self.evicted = 0
        self.expired = 0

    @property
    def dropped(self) -> Dropped:
        """What has expired or given way so far."""
        return Dropped(self.expired, self.evicted)

    async def create(self, key: str, record: bytes, *, ttl: float, spare: Container[str] = ()) -> None:
        """Keep a new record; at the cap the least recently used one that is not in *spare* gives way."""
        await trio.lowlevel.checkpoint()
        now = trio.current_time()
        if self._find(key, now) is not None:
            raise RecordExistsError(f"There is a record {key!r} already")
        if self._pop(key):  # expired, not swept yet, and perhaps in the order of another TTL
            self.expired += 1
            self._dropped(key)
        if self._capacity is not None and self._size() >= self._capacity:
            self._make_room(now, spare)
        self._put(key, _Record(record, now + ttl), ttl)

    async def load(self, key: str, *, ttl: float) -> bytes | None:
        """The record, used just now; None when it is unknown or expired."""
        await trio.lowlevel.checkpoint()
        now = trio.current_time()
        record = self._touch(key, now, ttl)
        return None if record is None else record.data

    async def save(self, key: str, record: bytes, *, ttl: float, expected: bytes) -> bool:
        """Compare and set."""
        await trio.lowlevel.checkpoint()
        now = trio.current_time()
        found = self._find(key, now)
        if found is None or found.data != expected:
            return False
        found.data = record
        self._touch(key, now, ttl)
        return True

    async def renew(self, keys: Collection[str], *, ttl: float) -> None:
        """Count the records as used just now."""
        await trio.lowlevel.checkpoint()
        now = trio.current_time()
        for key in keys:
            self._touch(key, now, ttl)

    async def delete(self, key: str) -> bool:
        """Remove the record, and say whether it was there."""
        await trio.lowlevel.checkpoint()
        there = self._find(key, trio.current_time()) is not None
        self._pop(key)
        return there

    async def count(self) -> int:
        """How many records are alive: what has expired but was not swept yet does not count."""
        await trio.lowlevel.checkpoint()
        now = trio.current_time()
        size = self._size()
        for order in self._orders.values():
            size -= sum(1 for _ in itertools.takewhile(lambda record: record.deadline <= now, order.values()))
        return size

    async def sweep(self) -> None:
        """Free what has expired, a chunk at a time."""
        now = trio.current_time()
        for ttl, order in list(self._orders.items()):
            freed = 0
            while order and next(iter(order.values())).deadline <= now:
                key, _ = order.popitem(last=False)
                self.expired += 1
                self._dropped(key)
                freed += 1
                if freed % _CHUNK == 0:
                    await trio.lowlevel.checkpoint()
            if not order and self._orders.get(ttl) is order:
                del self._orders[ttl]

    def _size(self) -> int:
        return sum(map(len, self._orders.values()))

    def _find(self, key: str, now: float) -> _Record | None:
        for order in self._orders.values():
            record = order.get(key)
            if record is not None:
                return record if record.deadline > now else None
        return None

    def _touch(self, key: str, now: float, ttl: float) -> _Record | None:
        order = self._orders.get(ttl)
        record = None if order is None else order.get(key)
        if order is not None and record is not None and record.deadline > now:
            record.deadline = now + ttl
            order.move_to_end(key)
            return record
        # It lives in the order of another TTL, as a session does until it is initialized.
        record = self._find(key, now)
        if record is not None:
            self._pop(key)
            record.deadline = now + ttl
            self._put(key, record, ttl)
        return record

    def _put(self, key: str, record: _Record, ttl: float) -> None:
        order = self._orders.get(ttl)
        if order is None:
            order = self._orders[ttl] = OrderedDict()
        order[key] = record

    def _pop(self, key: str) -> bool:
        return any(order.pop(key, None) is not None for order in self._orders.values())

    def _make_room(self, now: float, spare: Container[str]) -> None:
        # Each order starts with its least recently used record; the oldest of these first records is the oldest of all.
        oldest: tuple[float, str] | None = None
        for ttl, order in self._orders.items():
            for key, record in order.items():
                if record.deadline <= now or key not in spare:
                    used = record.deadline - ttl if record.deadline > now else -1.0
                    if oldest is None or used < oldest[0]:
                        oldest = (used, key)
                    break
        if oldest is None:
            raise StoreFullError(f"All {self._capacity} records are in use")
        self._pop(oldest[1])
        if oldest[0] < 0:
            self.expired += 1
        else:
            self.evicted += 1
        self._dropped(oldest[1])


class _Stream:
    __slots__ = ("changed", "events", "finished", "size", "touched")

    def __init__(self) -> None:
        self.events: deque[tuple[int, bytes]] = deque()
        self.size = 0
        self.finished = False
        self.touched = 0.0
        self.changed = trio.lowlevel.ParkingLot()


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
        found.changed.unpark_all()
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
        _, data = stream.events.popleft()
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
        found.changed.unpark_all()


class MemoryBus:
    """`mcpd.ports.Bus` for the endpoints of one process that share a store."""

    def __init__(self, *, backlog: int = 10_000) -> None:
        """Args: *backlog*: how many messages a subscriber may lag behind; what goes beyond is dropped."""
        self._backlog = backlog
        self._topics: dict[str, set[trio.MemorySendChannel[bytes]]] = {}
        self.dropped = 0

    async def publish(self, topic: str, message: bytes) -> None:
        """Send to all who are subscribed now."""
        await trio.lowlevel.checkpoint()
        for subscriber in list(self._topics.get(topic, ())):
            try:
                subscriber.send_nowait(message)
            except trio.WouldBlock:
                self.dropped += 1

    @asynccontextmanager
    async def subscribe(self, topic: str) -> AsyncGenerator[trio.MemoryReceiveChannel[bytes], None]:
        """Receive what is published while this is open."""
        await trio.lowlevel.checkpoint()
        send, receive = trio.open_memory_channel[bytes](self._backlog)
        self._topics.setdefault(topic, set()).add(send)
        try:
            async with send, receive:
                yield receive
        finally:
            self._topics[topic].discard(send)
            if not self._topics[topic]:
                del self._topics[topic]


class MemoryStore:
    """`mcpd.ports.Store` in memory."""

    def __init__(self, url: str = "memory", *, events: MemoryEvents | None = None) -> None:
        """
        Args:
          url: as given by ``--store``; there is nothing to set in it.
          events: an event log with bounds of your own.

        Raises:
          StoreError: *url* wants something that this store has not.
        """  # noqa: D205, D212 - the class says it
        if url.partition(":")[0].lower() != "memory" or url.partition(":")[2].strip("/"):
            raise StoreError(f"The memory store has nothing to set; use --store memory, not {url!r}")
        self.events = MemoryEvents() if events is None else events
        self.bus = MemoryBus()
        self._records: dict[str, MemoryRecords] = {}

    @property
    def name(self) -> str:
        """``memory``."""
        return "memory"

    @property
    def shared(self) -> bool:
        """Never: it is this process's memory."""
        return False

    def records(self, kind: str, *, capacity: int | None = None) -> MemoryRecords:
        """The records of one kind; the first caller sets the capacity."""
        found = self._records.get(kind)
        if found is None:
            dropped = self.events.forget_now if kind == "session" else _ignore
            found = self._records[kind] = MemoryRecords(capacity, dropped)
        return found

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Sweep, for ever."""
        task_status.started()
        while True:
            await trio.sleep(SWEEP_EVERY)
            for records in list(self._records.values()):
                await records.sweep()
            await self.events.sweep()

    async def ping(self) -> None:
        """Memory is there."""
        await trio.lowlevel.checkpoint()


def _ignore(_: str) -> None: ...
