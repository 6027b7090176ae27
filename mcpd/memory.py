"""A limit on memory that holds: near it nothing more is kept, and idle sessions give way, the oldest first.

A process that is killed for its memory loses all its sessions; so it is better to part with some in time. What cannot
give way, handles and tasks, stops at a lower mark: else it would, once grown, drive out every session, and for hours.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import logging
import os
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, Literal

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
_UNLIMITED: Final = 1 << 60


def cgroup_limit(root: Path = Path("/")) -> int | None:
    """The least memory limit of this process's control group and those above it, in bytes; None when there is none.

    Args:
      root: the root of the file system.
    """
    limits: list[int] = []
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                where, name = root / "sys/fs/cgroup", "memory.max"
            elif "memory" in controllers.split(","):
                where, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
            else:
                continue
            # A container may see its own group as the root, whatever its path is called outside.
            group = PurePosixPath(path.lstrip("/"))
            for folder in (group, *group.parents):
                with suppress(OSError, ValueError):
                    limits.append(int((where / folder / name).read_text(encoding="ascii")))
    return min((limit for limit in limits if limit < _UNLIMITED), default=None)


def worker_limit(limit: int, workers: int) -> int:
    """What one of *workers* may use when all, and the parent that keeps them, have to do with *limit* bytes."""
    given = [found for found in (limit, cgroup_limit()) if found]
    return max(1, (min(given) - resident(os.getppid())) // workers) if given else 0


def resident(process: int | Literal["self"] = "self") -> int:
    """The bytes of a process that are in memory now; 0 where that cannot be told."""
    try:
        statm = Path(f"/proc/{process}/statm").read_text(encoding="ascii")
        return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")
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
