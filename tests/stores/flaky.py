"""A store that fails when a test says so, after the hooks of Trio's memory streams."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager

import trio

from mcpd.errors import StoreError
from mcpd.ports import Dropped, Event, EventLog, RecordStore, Share, Store

Hook = Callable[[str], Awaitable[object]]
"""Awaited before each verb with its name, as ``session.load``, ``events.append`` or ``bus.publish``; it may raise."""


class Outage:
    """A hook: while verbs are in `down`, they fail."""

    def __init__(self, *down: str) -> None:
        self.down = set(down)
        self.seen: list[str] = []

    async def __call__(self, verb: str) -> None:
        self.seen.append(verb)
        if verb in self.down:
            raise StoreError(f"{verb}: connection refused by 10.1.2.3:6379")


class FlakyStore:
    """*inner*, with *hook* awaited before each verb."""

    def __init__(self, inner: Store, hook: Hook) -> None:
        self.inner = inner
        self.hook = hook
        self.name = "flaky"
        self.shared = inner.shared
        self.events: EventLog = _Events(inner.events, hook)
        self.bus = _Bus(inner, hook)

    def records(self, kind: str, *, capacity: int | None = None) -> RecordStore:
        return _Records(kind, self.inner.records(kind, capacity=capacity), self.hook)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        await self.hook("run")
        await self.inner.run(task_status=task_status)

    async def ping(self) -> None:
        await self.hook("ping")
        await self.inner.ping()


class _Records:
    def __init__(self, kind: str, inner: RecordStore, hook: Hook) -> None:
        self._kind = kind
        self._inner = inner
        self._hook = hook

    async def create(
        self,
        key: str,
        record: bytes,
        *,
        ttl: float,
        spare: Collection[str] | None = (),
        share: Share | None = None,
    ) -> None:
        await self._hook(f"{self._kind}.create")
        await self._inner.create(key, record, ttl=ttl, spare=spare, share=share)

    async def load(self, key: str, *, ttl: float) -> bytes | None:
        await self._hook(f"{self._kind}.load")
        return await self._inner.load(key, ttl=ttl)

    async def save(self, key: str, record: bytes, *, ttl: float, expected: bytes) -> bool:
        await self._hook(f"{self._kind}.save")
        return await self._inner.save(key, record, ttl=ttl, expected=expected)

    async def renew(self, keys: Collection[str], *, ttl: float) -> None:
        await self._hook(f"{self._kind}.renew")
        await self._inner.renew(keys, ttl=ttl)

    async def delete(self, key: str) -> bool:
        await self._hook(f"{self._kind}.delete")
        return await self._inner.delete(key)

    async def evict(self, number: int, *, spare: Collection[str] | None = ()) -> int:
        await self._hook(f"{self._kind}.evict")
        return await self._inner.evict(number, spare=spare)

    async def count(self) -> int:
        return await self._inner.count()  # for the tests themselves

    @property
    def dropped(self) -> Dropped:
        return self._inner.dropped


class _Events:
    def __init__(self, inner: EventLog, hook: Hook) -> None:
        self._inner = inner
        self._hook = hook

    async def append(self, session: str, stream: str, data: bytes, *, last: bool = False) -> str:
        await self._hook("events.append")
        return await self._inner.append(session, stream, data, last=last)

    async def read(self, session: str, stream: str, *, after: str) -> tuple[Sequence[Event], bool] | None:
        await self._hook("events.read")
        return await self._inner.read(session, stream, after=after)

    async def wait(self, session: str, stream: str, *, after: str) -> None:
        await self._hook("events.wait")
        await self._inner.wait(session, stream, after=after)

    async def forget(self, session: str) -> None:
        await self._hook("events.forget")
        await self._inner.forget(session)

    @property
    def dropped(self) -> int:
        return self._inner.dropped


class _Bus:
    def __init__(self, inner: Store, hook: Hook) -> None:
        self._inner = inner
        self._hook = hook

    async def publish(self, topic: str, message: bytes) -> None:
        await self._hook("bus.publish")
        await self._inner.bus.publish(topic, message)

    @asynccontextmanager
    async def subscribe(self, topic: str) -> AsyncGenerator[trio.MemoryReceiveChannel[bytes], None]:
        await self._hook("bus.subscribe")
        async with self._inner.bus.subscribe(topic) as channel:
            yield channel
