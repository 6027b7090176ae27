"""The store itself: it puts the three ports together, and sweeps."""

from __future__ import annotations

from typing import Final

import trio

from mcpd.errors import StoreError
from mcpd_stores.memory.bus import MemoryBus
from mcpd_stores.memory.events import MemoryEvents
from mcpd_stores.memory.records import MemoryRecords

SWEEP_EVERY: Final = 1.0
"""Seconds between two sweeps. A record past its deadline is hidden at once, and freed by the next sweep."""


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
