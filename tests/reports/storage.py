"""What the rig keeps its sessions in, and how its time goes by: memory on Trio's mock clock, or a real Redis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpd.ports import Store
from mcpd_stores.memory import MemoryStore
from mcpd_stores.redis import RedisStore
from tests.stores.redis_server import RedisServer, keys_without_ttl, shift, until

in_memory = pytest.mark.parametrize("storage", ["memory"], indirect=True)
"""Marks a test that asks nothing of the store, or jumps the clock: Redis would add nothing but its own time."""


class Storage(Protocol):
    """One kind of store."""

    pause: float
    """Seconds between two things that a tool of the rig does, if nothing else is said."""
    options: tuple[str, ...]
    """For the command line of a process that is to use it."""

    def new(self) -> Store:
        """A store for one served server. On Redis all of them have the same keys."""
        ...

    async def advance(self, seconds: float) -> None:
        """Let so many seconds pass for what is kept and not in use."""
        ...

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for what must come without time or a client: in memory it has come once all tasks wait."""
        ...

    def lose(self) -> None:
        """Forget everything, as a restart does."""
        ...

    def check(self, *gone: str) -> None:
        """Fail if something would be kept for ever, or one of these names is still there."""
        ...


class InMemory:
    """A memory store for each served server."""

    pause = 1.0
    options = ()

    def new(self) -> Store:
        return MemoryStore()

    async def advance(self, seconds: float) -> None:
        before = trio.current_time()
        await trio.sleep(seconds)
        assert trio.current_time() >= before + seconds

    async def until(self, condition: Callable[[], object]) -> None:
        await wait_all_tasks_blocked()
        assert condition()

    def lose(self) -> None:
        pass

    def check(self, *gone: str) -> None:
        pass


class InRedis:
    """A real Redis in which nothing else is. The clock is the real one."""

    pause = 0.01

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        # On a busy machine the usual time-out would make an outage.
        self.url = server.url("timeout=30")
        self.options = ("--store", self.url)
        self._stores: list[RedisStore] = []
        self.lose()

    def new(self) -> Store:
        self._stores = [RedisStore(self.url)]
        return self._stores[0]

    async def advance(self, seconds: float) -> None:
        for store in self._stores:
            await store.refresh()  # as it does every second
        with self._server.client() as client:
            await trio.to_thread.run_sync(shift, client, seconds)

    async def until(self, condition: Callable[[], object]) -> None:
        await until(condition, within=30.0)

    def lose(self) -> None:
        with self._server.client() as client:
            client.flushall()

    def check(self, *gone: str) -> None:
        with self._server.client() as client:
            assert not keys_without_ttl(client)
            kept: list[Any] = list(client.scan_iter(count=1000))
            assert not [key for key in kept for name in gone if name.encode() in key]
