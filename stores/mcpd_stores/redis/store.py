"""`mcpd.ports.Store` on Redis: what the entry points name."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import Final

import trio

from mcpd.errors import StoreError, only
from mcpd.ports import Share
from mcpd_stores.redis.address import parse
from mcpd_stores.redis.bus import RedisBus
from mcpd_stores.redis.dial import Dialer
from mcpd_stores.redis.events import RedisEvents
from mcpd_stores.redis.link import Link
from mcpd_stores.redis.names import Names
from mcpd_stores.redis.records import RedisRecords
from mcpd_stores.redis.replies import ReplyError, explain

REFRESH_EVERY: Final = 1.0
"""Seconds after which the indexes hear what was used."""
SWEEP_EVERY: Final = 15.0
"""Seconds after which what has expired is struck off the indexes, also when nobody creates or counts."""


class RedisStore:
    """Records, events and bus in one Redis, over two connections."""

    def __init__(self, url: str = "redis://127.0.0.1:6379/0") -> None:
        """
        Args:
          url: as given by ``--store``; address.py says what can be in it.

        Raises:
          StoreError: it makes no sense.
        """  # noqa: D205, D212 - the class says it
        address = parse(url)
        dialer = Dialer(address)
        cluster = address.kind == "cluster"
        names = Names(address.prefix)
        self.name: Final = address.name
        self.shared: Final = True
        self.bus: Final = RedisBus(names)
        self._names = names
        self._link = Link(dialer, self.name, timeout=address.timeout, cluster=cluster)
        self._subscriptions = Link(
            dialer,
            self.name,
            timeout=address.timeout,
            cluster=cluster,
            on_connect=self.bus.resubscribe,
            on_push=self.bus.push,
        )
        self.bus.use(self._link, self._subscriptions)
        self.events: Final = RedisEvents(
            self._link,
            self.bus,
            names.events,
            sessions=f"{names.index('session')}:",
            max_bytes=address.event_bytes,
            keep=address.event_keep,
        )
        self._records: dict[str, RedisRecords] = {}

    def records(self, kind: str, *, capacity: int | None = None) -> RedisRecords:
        """The records of one kind; the first caller sets the capacity."""
        found = self._records.get(kind)
        if found is None:
            logs = self._names.events if kind == "session" else ""
            found = self._records[kind] = RedisRecords(
                self._link, self._names.index(kind), capacity=capacity, logs=logs
            )
        return found

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Connect, stay connected, and keep the indexes, until cancelled.

        Raises:
          StoreError: Redis cannot be reached or used at the start. Later it may come and go.
        """
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._link.run)
                await nursery.start(self._subscriptions.run)
                await self._try_out()
                task_status.started()
                swept = trio.current_time()
                while True:
                    await trio.sleep(REFRESH_EVERY)
                    await self.refresh()
                    if trio.current_time() - swept >= SWEEP_EVERY:
                        swept = trio.current_time()
                        await self._sweep()
        except BaseExceptionGroup as group:
            found = only(group)
            if isinstance(found, StoreError):
                raise found from found.__cause__
            raise

    async def refresh(self) -> None:
        """Tell the indexes what was used; `run` does so every second."""
        for records in list(self._records.values()):
            await records.refresh()

    async def _sweep(self) -> None:
        with suppress(StoreError):  # it is away; the next time will do
            for records in list(self._records.values()):
                await records.count()

    async def ping(self) -> None:
        """Both connections answer."""
        try:
            await self._link.call("PING", again=True)
            await self._subscriptions.call("PING", again=True)
        except ReplyError as exc:
            raise explain(exc) from exc

    async def _try_out(self) -> None:
        # Everything once, so that a permission that is lacking or an old Redis shows now and not with the first client.
        records = RedisRecords(self._link, self._names.index("probe"), capacity=None)
        key = secrets.token_urlsafe()
        await records.create(key, b"", ttl=1.0, share=Share(key, 1))
        await records.load(key, ttl=1.0)
        await records.renew([key], ttl=1.0)
        await records.delete(key)
        async with self.bus.subscribe("probe"):
            await self.bus.publish("probe", b"")
        await self.events.append(key, "", b"")
        await self.events.read(key, "", after="0")
        await self.events.forget(key)
