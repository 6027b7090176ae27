"""The figures of one run, as written to JSON, and the sums that are made of them."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import msgspec

from _target import BenchError

if TYPE_CHECKING:
    from pathlib import Path

MB = 1_000_000
"""The report counts in decimal megabytes; a session's share is in KiB (1,024 bytes)."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Memory after so many `initialize` in all; `settled` if read after the wait for sessions to expire."""

    initialized: int
    live: int
    rss: int | None
    sessions: int | None
    settled: bool = False


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """Memory around one kind of traffic on its own; `requests` counts its cycles (initialize + DELETE is one).

    `sessions` and `connections` are what the server still had open afterwards, with the client gone.
    """

    traffic: str
    requests: int
    before: int
    after: int
    sessions: int | None
    connections: int | None

    @property
    def delta(self) -> int:
        """Bytes held after the traffic that were not held before it."""
        return self.after - self.before

    @property
    def each(self) -> float:
        """Bytes held for each request (for each session, where the traffic opens sessions)."""
        return self.delta / self.requests


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the sessions that should have ended were still answered (the specification wants 404)."""

    by: str
    asked: int
    answered: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run against one server."""

    server: str
    measure: str
    taken: str
    machine: str
    warm_up: int
    fresh: bool
    keep_alive: bool
    batch: int
    settle: float | None
    points: list[Point]
    controls: list[Control]
    ended: list[Ended]

    @property
    def settled(self) -> list[Point]:
        """The points read after the wait for sessions to expire (whether they did or not)."""
        return [point for point in self.points if point.settled]

    @property
    def opened(self) -> float:
        """Bytes gained per `initialize` over the first round, its sessions open if the idle time is longer."""
        first = self.points[0]
        last = next((self.points[i - 1] for i, point in enumerate(self.points) if point.settled), self.points[-1])
        return (last.live - first.live) / (last.initialized - first.initialized)

    @property
    def retained(self) -> float | None:
        """Bytes gained per `initialize` that stay after the wait: the slope (least squares) over the settled points.

        It starts at the first settled point, so that what the allocator took for the first peak is not counted as
        a leak. None with fewer than three such points.
        """
        settled = self.settled
        if len(settled) < 3:  # two points always lie on a line
            return None
        return statistics.linear_regression([p.initialized for p in settled], [p.live for p in settled]).slope


def load(path: Path) -> Run:
    """Read a run that was written before. Raises `BenchError` when the file is not one."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Run)
    except (OSError, msgspec.DecodeError) as exc:
        raise BenchError(f"--compare: {path} is not the leak.json of an earlier run: {exc}") from exc


def dump(run: Run) -> bytes:
    """Encode a run so that a person can read it and `load` takes it back."""
    return msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n"
