"""A limit on memory that holds: near it nothing more is kept, and idle sessions give way, the oldest first.

A process that is killed for its memory loses all its sessions; so it is better to part with some in time. What cannot
give way, handles and tasks, stops at a lower mark: else it would, once grown, drive out every session, and for hours.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mcpd.ports import RecordStore

logger: Final = logging.getLogger("mcpd.memory")
HIGH_WATER: Final = 0.9
"""The part of the limit above which sessions give way."""
STATE_WATER: Final = 0.8
"""The part of the limit above which handles and tasks may not grow."""
SMALL: Final = 4096
"""Bytes by which a record may always grow that is there already: the number of records is bounded as well."""
_LOOK_EVERY: Final = 0.5
_SETTLE: Final = 3.0
"""Seconds between two evictions: what was freed has to show first."""
_UNSEEN: Final = 0.01
"""The part of the limit by which records may grow unseen."""
_BESIDES: Final = 1_000
"""Bytes that a record takes besides its content, roughly."""
_STEP: Final = 0.1
"""The part of the sessions that gives way at once."""
_CGROUPS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_UNLIMITED: Final = 1 << 60


def cgroup_limit() -> int | None:
    """The memory limit of this process's control group, in bytes; None when there is none."""
    for name in _CGROUPS:
        try:
            limit = int(Path(name).read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        return limit if limit < _UNLIMITED else None
    return None


def resident() -> int:
    """The bytes of this process that are in memory now; 0 where that cannot be told."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


class MemoryGuard:
    """Watches the memory of this process."""

    def __init__(self, limit: int | None, *, used: Callable[[], int] = resident) -> None:
        """Args: *limit*: bytes, None for no limit; *used*: tells how many are used."""
        self.limit = limit
        self._used = used
        self._seen = 0
        self._unseen = 0
        self._refused = False

    @property
    def pressed(self) -> bool:
        """Whether sessions have to give way."""
        return self.limit is not None and self._seen > self.limit * HIGH_WATER

    def has_room(self, size: int, part: float = STATE_WATER) -> bool:
        """Whether *size* bytes more may be kept, of what may take *part* of the limit.

        What was refused is let in again when memory is free, also where nobody watches.
        """
        limit = self.limit
        if limit is None:
            return True
        self._unseen += size + _BESIDES
        # Many between two looks could pass the limit, so look then.
        if self._unseen > limit * _UNSEEN or self._seen > limit * part:
            self._look(limit)
        fits = self._seen <= limit * part
        self._refused = self._refused or not fits
        return fits

    def _look(self, limit: int) -> None:
        self._unseen = 0
        before, self._seen = self._seen, self._used()
        for part, what in ((STATE_WATER, "handles and tasks"), (HIGH_WATER, "sessions")):
            if before <= limit * part < self._seen:
                logger.warning("Memory is at %d of %d MiB: no new %s", self._seen >> 20, limit >> 20, what)

    async def run(self, sessions: RecordStore, busy: Collection[str]) -> None:
        """Watch, and let idle *sessions* give way near the limit, until cancelled; those in *busy* stay."""
        if self.limit is None:
            return
        while True:
            self._look(self.limit)
            if self.pressed:
                evicted = await sessions.evict(max(1, round(await sessions.count() * _STEP)), spare=busy)
                if evicted:
                    logger.warning("%d idle sessions gave way to save memory", evicted)
            if self.pressed or self._refused:
                self._refused = False
                _give_back()
                await trio.sleep(_SETTLE)
            else:
                await trio.sleep(_LOOK_EVERY)


def _give_back() -> None:
    """Let the C library return what it holds free; only some can."""
    name = ctypes.util.find_library("c")
    trim = None if name is None else getattr(ctypes.CDLL(name), "malloc_trim", None)
    if trim is not None:
        trim(0)
