"""A server with all that is its own and no transport's: what HTTP, stdio and the in-process client share.

Core = dispatcher (server)  +  subscriptions, tasks, handles (on the store)
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio

from mcpd.errors import SettingError
from mcpd.handles import Handles
from mcpd.memory import MemoryGuard, cgroup_limit
from mcpd.server.dispatch import Dispatcher
from mcpd.server.meter import Meter
from mcpd.server.offer import CacheHint
from mcpd.server.seal import Sealer
from mcpd.sessions.subscriptions import Subscriptions
from mcpd.tasks.tasks import Tasks
from mcpd.timed import TimedStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from mcpd.ports import Store
    from mcpd.server.server import Server
    from mcpd.settings import Settings

logger: Final = logging.getLogger("mcpd")


class Core:
    """One server on one store."""

    def __init__(self, server: Server, store: Store, settings: Settings) -> None:
        """
        Args:
          server: what is served.
          store: where what outlives a request is kept.
          settings: all bounds.

        Raises:
          SettingError: a state key that is none.
        """  # noqa: D205, D212 - the class says it
        try:
            sealer = Sealer(settings.state_keys, ttl=settings.state_ttl)
        except ValueError as exc:
            raise SettingError(f"state_keys: {exc}") from None
        if store.shared and not sealer.shared:
            logger.warning("Several replicas need the same state keys (MCPD_STATE_KEYS), or questions end in errors")
        self.server = server
        self.meter = Meter()
        if settings.metrics:
            store = TimedStore(store, self.meter)
        self.store = store
        self.settings = settings
        self.subscriptions = Subscriptions(server, store.bus)
        self.memory = MemoryGuard(settings.memory_limit or cgroup_limit())
        self.handles = Handles(
            store,
            capacity=settings.max_handles,
            each=settings.per_principal("handles"),
            max_ttl=settings.max_handle_ttl,
            memory=self.memory,
            rejected=self.meter.rejected["handles"],
        )
        self.tracing = settings.tracing
        kind = Dispatcher
        if self.tracing:
            from mcpd.tracing import TracedDispatcher as kind  # noqa: N813, PLC0415 - who does not trace has no need of it
        self.dispatcher = kind(
            server,
            read_only=settings.read_only,
            cache=CacheHint(round(settings.cache_ttl * 1000), settings.cache_scope),
            sealer=sealer,
            handles=self.handles,
            meter=self.meter if settings.metrics else None,
        )
        self.tasks = Tasks(
            store,
            self.dispatcher,
            self.subscriptions,
            capacity=settings.max_tasks,
            each=settings.per_principal("tasks"),
            ttl=settings.task_ttl,
            max_bytes=settings.max_task_size,
            memory=self.memory,
            rejected=self.meter.rejected["tasks"],
        )

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[trio.Nursery, None]:
        """Serve requests while this is open; a background task that fails ends it, for a server must not limp."""
        async with self.dispatcher.offer.running(), trio.open_nursery() as nursery:
            await nursery.start(self.store.run)
            await nursery.start(self.subscriptions.run)
            await nursery.start(self.tasks.run)
            try:
                yield nursery
            finally:
                nursery.cancel_scope.cancel()
