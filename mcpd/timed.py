"""A store whose operations are timed, for the metrics."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from mcpd.ports import AtHand, Inspectable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import trio

    from mcpd.ports import Bus, Dropped, EventLog, Kept, RecordStore, Share, Store
    from mcpd.server.meter import Meter


class TimedStore:
    """`mcpd.ports.Store` around another one."""

    def __init__(self, store: Store, meter: Meter) -> None:
        """Args: *store*: does the work; *meter*: counts."""
        self._store = store
        self._meter = meter

    @property
    def name(self) -> str:
        return self._store.name

    @property
    def shared(self) -> bool:
        return self._store.shared

    @property
    def events(self) -> EventLog:
        return self._store.events

    @property
    def bus(self) -> Bus:
        return self._store.bus

    def records(self, kind: str, *, capacity: int | None = None) -> RecordStore:
        records = self._store.records(kind, capacity=capacity)
        if isinstance(records, Inspectable):
            return TimedInspectable(records, self._meter, records)
        if isinstance(records, AtHand):
            return TimedAtHand(records, self._meter, records)
        return TimedRecords(records, self._meter)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        await self._store.run(task_status=task_status)

    async def ping(self) -> None:
        await self._store.ping()


class TimedRecords:
    """`mcpd.ports.RecordStore` around another one. Failures are timed as well."""

    def __init__(self, records: RecordStore, meter: Meter) -> None:
        self._records = records
        self._times = meter.store_operations

    async def create(
        self,
        key: str,
        record: bytes,
        *,
        ttl: float,
        spare: Collection[str] | None = (),
        share: Share | None = None,
    ) -> None:
        began = perf_counter()
        try:
            await self._records.create(key, record, ttl=ttl, spare=spare, share=share)
        finally:
            self._times["create"].observe(perf_counter() - began)

    async def load(self, key: str, *, ttl: float) -> bytes | None:
        began = perf_counter()
        try:
            return await self._records.load(key, ttl=ttl)
        finally:
            self._times["load"].observe(perf_counter() - began)

    async def save(self, key: str, record: bytes, *, ttl: float, expected: bytes) -> bool:
        began = perf_counter()
        try:
            return await self._records.save(key, record, ttl=ttl, expected=expected)
        finally:
            self._times["save"].observe(perf_counter() - began)

    async def renew(self, keys: Collection[str], *, ttl: float) -> None:
        began = perf_counter()
        try:
            await self._records.renew(keys, ttl=ttl)
        finally:
            self._times["renew"].observe(perf_counter() - began)

    async def delete(self, key: str) -> bool:
        began = perf_counter()
        try:
            return await self._records.delete(key)
        finally:
            self._times["delete"].observe(perf_counter() - began)

    async def evict(self, number: int, *, spare: Collection[str] | None = ()) -> int:
        return await self._records.evict(number, spare=spare)

    async def count(self) -> int:
        return await self._records.count()

    @property
    def dropped(self) -> Dropped:
        return self._records.dropped


class TimedAtHand(TimedRecords):
    """The same for records that are `mcpd.ports.AtHand`, and so is this. What is at hand takes no time worth a look."""

    def __init__(self, records: RecordStore, meter: Meter, at_hand: AtHand) -> None:
        super().__init__(records, meter)
        self.load_nowait = at_hand.load_nowait


class TimedInspectable(TimedRecords):
    """The same for records that are `mcpd.ports.Inspectable`, and so is this. Looking into them is not timed."""

    def __init__(self, records: RecordStore, meter: Meter, sight: Inspectable) -> None:
        super().__init__(records, meter)
        self._sight = sight

    def name(self, key: str) -> str:
        return self._sight.name(key)

    async def page(self, cursor: str, *, limit: int) -> tuple[Sequence[Kept], str]:
        return await self._sight.page(cursor, limit=limit)

    async def peek(self, name: str) -> Kept | None:
        return await self._sight.peek(name)

    async def remove(self, name: str) -> bool:
        return await self._sight.remove(name)
