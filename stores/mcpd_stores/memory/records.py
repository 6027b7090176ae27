"""Records in this process's memory.

All records of one TTL live equally long after their last use, so the order of use is the order of expiry: they are a
linked list, the least recently used first. Touch, create and expiry cost the same whether there are ten records or a
million, and never much at once.
"""

from __future__ import annotations

import itertools
from math import inf
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from mcpd.errors import RecordExistsError, ShareFullError, StoreFullError
from mcpd.ports import Dropped
from mcpd_stores.memory.index import Index

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from mcpd.ports import Share

CHUNK: Final = 250
"""Records looked at between two checkpoints: a million that expire together must not stop the loop."""


class _Order(msgspec.Struct, gc=False, eq=False):
    """The records of one TTL, the least recently used first, which is also the first to expire."""

    ttl: float
    size: int = 0
    first: _Record | None = None
    last: _Record | None = None


class _Own(msgspec.Struct, gc=False, eq=False):
    """The records of one owner, the least recently used first. There is none without records."""

    name: str
    size: int = 0
    first: _Record | None = None
    last: _Record | None = None


class _Record(msgspec.Struct, gc=False, eq=False):
    # Neighbours hold each other, and the garbage collector does not know it (gc=False): a million that it had to visit
    # would stop the loop for a third of a second each time. So who takes a record out also unties it, and
    # `MemoryRecords.__del__` unties what is left.
    key: str
    data: bytes
    deadline: float
    order: _Order
    before: _Record | None = None
    after: _Record | None = None
    own: _Own | None = None
    older: _Record | None = None
    newer: _Record | None = None

    @property
    def used(self) -> float:
        """When it was used last."""
        return self.deadline - self.order.ttl


class MemoryRecords:
    """`mcpd.ports.RecordStore` and `AtHand` in this process. Keys may be any strings; they are only ever compared."""

    def __init__(self, capacity: int | None, dropped: Callable[[str], object]) -> None:
        """Args: *capacity*: how many records at most; *dropped*: called with each key that expired or gave way."""
        self._capacity = capacity
        self._dropped = dropped
        self._index: Index[_Record] = Index()
        self._orders: dict[float, _Order] = {}
        self._owners: Index[_Own] = Index()
        self.evicted = 0
        self.expired = 0

    def __del__(self) -> None:
        """Untie what nobody will use any more: see `_Record`."""
        for order in self._orders.values():
            record, order.first, order.last = order.first, None, None
            while record is not None:
                following = record.after
                record.before = record.after = record.older = record.newer = None
                if record.own is not None:
                    record.own.first = record.own.last = None
                record = following

    @property
    def dropped(self) -> Dropped:
        """What has expired or given way so far."""
        return Dropped(self.expired, self.evicted)

    async def create(
        self,
        key: str,
        record: bytes,
        *,
        ttl: float,
        spare: Collection[str] | None = (),
        share: Share | None = None,
    ) -> None:
        """Keep a new record; at a cap the least recently used one that is not in *spare* gives way, if any may."""
        await trio.lowlevel.checkpoint()
        while True:
            now = trio.current_time()
            found = self._index.get(key)
            if found is not None:
                if found.deadline > now:
                    raise RecordExistsError(f"There is a record {key!r} already")
                self._drop(found, now)  # expired, and not swept yet
            own = None if share is None else self._owners.get(share.owner)
            if share is not None and own is not None and own.size >= share.capacity:
                if not await self._evict_own(share, spare):
                    raise ShareFullError(f"All {share.capacity} records of this owner are in use")
            elif self._capacity is None or self._index.size < self._capacity:
                break
            elif not await self._evict_one(spare):
                raise StoreFullError(f"All {self._capacity} records are in use")
        new = _Record(key, record, now + ttl, self._order(ttl))
        self._index.add(key, new)
        self._append(new)
        if share is not None:
            if own is None:
                own = _Own(share.owner)
                self._owners.add(share.owner, own)
            new.own = own
            self._join(new, own)

    async def load(self, key: str, *, ttl: float) -> bytes | None:
        """The record, used just now; None when it is unknown or expired."""
        await trio.lowlevel.checkpoint()
        return self.load_nowait(key, ttl=ttl, now=trio.current_time())

    def load_nowait(self, key: str, *, ttl: float, now: float) -> bytes | None:
        """The same, at once."""
        record = self._index.get(key)
        if record is None or record.deadline <= now:
            return None
        self._touch(record, now, ttl)
        return record.data

    async def save(self, key: str, record: bytes, *, ttl: float, expected: bytes) -> bool:
        """Compare and set."""
        await trio.lowlevel.checkpoint()
        now = trio.current_time()
        found = self._find(key, now)
        if found is None or found.data != expected:
            return False
        found.data = record
        self._touch(found, now, ttl)
        return True

    async def renew(self, keys: Collection[str], *, ttl: float) -> None:
        """Count the records as used just now."""
        await trio.lowlevel.checkpoint()
        now = trio.current_time()
        for key in keys:
            record = self._find(key, now)
            if record is not None:
                self._touch(record, now, ttl)

    async def delete(self, key: str) -> bool:
        """Remove the record, and say whether it was there."""
        await trio.lowlevel.checkpoint()
        record = self._index.get(key)
        if record is None:
            return False
        self._remove(record)
        return record.deadline > trio.current_time()

    async def evict(self, number: int, *, spare: Collection[str] | None = ()) -> int:
        """Let the least recently used ones give way."""
        await trio.lowlevel.checkpoint()
        for done in range(number):
            if not await self._evict_one(spare):
                return done
            if done % CHUNK == CHUNK - 1:
                await trio.lowlevel.checkpoint()
        return number

    async def count(self) -> int:
        """How many records are alive.

        What has expired and was not swept yet does not count, but it is not searched for long: while a million wait to
        be swept, they are still among those counted.
        """
        await trio.lowlevel.checkpoint()
        now = trio.current_time()
        expired = sum(1 for _ in itertools.islice(self._expired(now), CHUNK))
        return self._index.size - expired

    async def sweep(self) -> None:
        """Free what has expired, a chunk at a time."""
        now = trio.current_time()
        looked = 0
        for order in list(self._orders.values()):
            while True:
                looked += 1
                if looked % CHUNK == 0:
                    await trio.lowlevel.checkpoint()
                record = order.first
                if record is None or record.deadline > now:
                    break
                self._drop(record, now)

    def _expired(self, now: float) -> Iterator[_Record]:
        for order in self._orders.values():
            record = order.first
            while record is not None and record.deadline <= now:
                yield record
                record = record.after

    def _find(self, key: str, now: float) -> _Record | None:
        record = self._index.get(key)
        return record if record is not None and record.deadline > now else None

    def _touch(self, record: _Record, now: float, ttl: float) -> None:
        record.deadline = now + ttl
        order, after = record.order, record.after
        if order.ttl != ttl:
            # Another TTL is another order, as when a session has been initialized.
            self._unlink(record)
            record.order = self._order(ttl)
            self._append(record)
        elif after is not None:
            # As `_unlink` and `_append`, in place: this is done for every request.
            before, last = record.before, order.last
            after.before = before
            if before is None:
                order.first = after
            else:
                before.after = after
            record.before, record.after, order.last = last, None, record
            if last is not None:
                last.after = record
        own, newer = record.own, record.newer
        if own is not None and newer is not None:
            older, newest = record.older, own.last
            newer.older = older
            if older is None:
                own.first = newer
            else:
                older.newer = newer
            record.older, record.newer, own.last = newest, None, record
            if newest is not None:
                newest.newer = record

    async def _evict_one(self, spare: Collection[str] | None) -> bool:
        if spare is not None:
            for order in list(self._orders.values()):
                await self._pass_over(order, spare)
        now = trio.current_time()
        # Each order begins with its least recently used record, and the oldest of these is the oldest of all.
        firsts = [order.first for order in self._orders.values() if order.first is not None]
        idle = [
            record for record in firsts if record.deadline <= now or (spare is not None and record.key not in spare)
        ]
        if not idle:
            return False
        self._drop(min(idle, key=lambda record: record.used if record.deadline > now else -inf), now)
        return True

    async def _evict_own(self, share: Share, spare: Collection[str] | None) -> bool:
        """Make room in the owner's share; False if nothing of it may give way."""
        await self.sweep()
        own = self._owners.get(share.owner)
        if own is None or own.size < share.capacity:
            return True
        for passed in range(1, own.size + 1 if spare is not None else 1):
            now = trio.current_time()
            record = own.first
            if record is None:
                return True
            if record.deadline <= now or record.key not in (spare or ()):
                self._drop(record, now)
                return True
            self._touch(record, now, record.order.ttl)  # as in _pass_over
            if passed % CHUNK == 0:
                await trio.lowlevel.checkpoint()
        return False

    async def _pass_over(self, order: _Order, spare: Collection[str]) -> None:
        """Let the order begin with a record that may give way, if it has one."""
        for passed in range(1, order.size + 1):
            now = trio.current_time()
            record = order.first
            if record is None or record.deadline <= now or record.key not in spare:
                return
            # To be in use is to be used now: it goes to the end, or every search would begin with it again.
            self._touch(record, now, order.ttl)
            if passed % CHUNK == 0:
                await trio.lowlevel.checkpoint()

    def _drop(self, record: _Record, now: float) -> None:
        self._remove(record)
        if record.deadline <= now:
            self.expired += 1
        else:
            self.evicted += 1
        self._dropped(record.key)

    def _remove(self, record: _Record) -> None:
        self._unlink(record)
        own = record.own
        if own is not None:
            self._part(record, own)
            if not own.size:
                self._owners.remove(own.name)
        self._index.remove(record.key)

    def _order(self, ttl: float) -> _Order:
        order = self._orders.get(ttl)
        if order is None:
            order = self._orders[ttl] = _Order(ttl)
        return order

    def _append(self, record: _Record) -> None:
        order = record.order
        record.before, record.after = order.last, None
        if order.last is None:
            order.first = record
        else:
            order.last.after = record
        order.last = record
        order.size += 1

    def _unlink(self, record: _Record) -> None:
        order, before, after = record.order, record.before, record.after
        if before is None:
            order.first = after
        else:
            before.after = after
        if after is None:
            order.last = before
        else:
            after.before = before
        record.before = record.after = None
        order.size -= 1
        if not order.size:
            del self._orders[order.ttl]

    def _join(self, record: _Record, own: _Own) -> None:
        record.older, record.newer = own.last, None
        if own.last is None:
            own.first = record
        else:
            own.last.newer = record
        own.last = record
        own.size += 1

    def _part(self, record: _Record, own: _Own) -> None:
        older, newer = record.older, record.newer
        if older is None:
            own.first = newer
        else:
            older.newer = newer
        if newer is None:
            own.last = older
        else:
            newer.older = older
        record.older = record.newer = record.own = None
        own.size -= 1
