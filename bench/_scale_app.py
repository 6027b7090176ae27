"""The server of `scale.py`: mcpd with a clock that can be set forward, and a look at how long the loop stands still.

    python bench/_scale_app.py PORT [HEARTBEAT]

A million sessions can only expire at one moment if the clock jumps; they were made over minutes. All else is real:
the front, the sessions, the store and its sweep.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from functools import partial
from typing import Any

import trio

import mcpd
from mcpd import Server, collector
from mcpd_stores.memory import MemoryStore


class JumpingClock(trio.abc.Clock):
    """The system's clock, which can be set forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def start_clock(self) -> None:
        """It runs already."""

    def current_time(self) -> float:
        """Seconds."""
        return time.perf_counter() + self.ahead

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """How long to sleep until then."""
        return deadline - self.current_time()


class Passes(trio.abc.Instrument):
    """The longest pass of the loop: the time from one look at the sockets to the next, in which nobody is heard."""

    def __init__(self) -> None:
        self._cpu = self._wall = 0.0
        self.longest = (0.0, 0.0)
        self.all: deque[float] = deque(maxlen=2_000)
        """Processor time of the last ones, in seconds."""

    def after_io_wait(self, timeout: float) -> None:
        """A pass begins."""
        self._cpu, self._wall = time.thread_time(), time.perf_counter()

    def before_io_wait(self, timeout: float) -> None:
        """It ends."""
        if self._wall:
            cpu, wall = time.thread_time() - self._cpu, time.perf_counter() - self._wall
            self.all.append(cpu)
            self.longest = max(self.longest[0], cpu), max(self.longest[1], wall)


clock = JumpingClock()
passes = Passes()
store = MemoryStore()
server = Server("scale", version="1")


@server.tool
async def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool
async def jump(seconds: float) -> str:
    """Set the clock forward."""
    clock.ahead += seconds
    passes.longest = (0.0, 0.0)
    return "done"


@server.tool
async def look() -> dict[str, Any]:
    """What is there; and of the passes since the last look the longest, in ms, and the processor time at p99, in us."""
    records = store.records("session")
    cpu, wall = passes.longest
    passes.longest = (0.0, 0.0)
    ordered = sorted(passes.all)
    passes.all.clear()
    return {
        "alive": await records.count(),
        "expired": records.expired,
        "cpu_ms": cpu * 1e3,
        "wall_ms": wall * 1e3,
        "cpu_p99_us": ordered[int(len(ordered) * 0.99)] * 1e6 if ordered else 0.0,
    }


async def main(port: int, heartbeat: float) -> None:
    """Serve, with the garbage collector as ``mcpd serve`` has it."""
    collector.settle()
    trio.lowlevel.add_instrument(passes)
    await mcpd.serve(
        server,
        store=store,
        front="direct",
        port=port,
        heartbeat=heartbeat,
        initialization_timeout=40_000.0,
        session_idle=40_000.0,
        max_sessions=3_000_000,
        max_streams=30_000,  # all of one client here, and a principal has nine tenths of them
        max_connections=50_000,
    )


if __name__ == "__main__":
    trio.run(partial(main, int(sys.argv[1]), float([*sys.argv, "15"][2])), clock=clock)
