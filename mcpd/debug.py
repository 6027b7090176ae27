"""Looking inside a running server: where its memory is, what its tasks do, how many sessions it has. No contents."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING, Final

import msgspec
import trio

if TYPE_CHECKING:
    from mcpd.endpoint.endpoint import Endpoint

TEXT: Final = b"text/plain; charset=utf-8"
_TOP: Final = 25
_FRAMES: Final = 8


class Debug:
    """The debug pages of an endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Args: *endpoint*: to look into."""
        self._endpoint = endpoint
        self._before: tracemalloc.Snapshot | None = None

    async def heap(self) -> tuple[bytes, bytes]:
        """The largest allocations by where they were made, and what has grown since the last call.

        The first call starts tracing; only what is allocated afterwards is known.
        """
        if not tracemalloc.is_tracing():
            tracemalloc.start(_FRAMES)
            return TEXT, b"Tracing has started. Ask again after some work to see what has been allocated since.\n"
        # Comparing snapshots takes a second or two on a large heap, and must not stop the loop.
        snapshot, report = await trio.to_thread.run_sync(_heap_report, self._before)
        self._before = snapshot
        return TEXT, "\n".join(report).encode() + b"\n"

    async def tasks(self) -> tuple[bytes, bytes]:
        """The tree of tasks and nurseries, each task with where it waits."""
        await trio.lowlevel.checkpoint()
        root = trio.lowlevel.current_root_task()
        lines: list[str] = []
        if root is not None:
            _describe(root, 0, lines)
        return TEXT, "\n".join(lines).encode() + b"\n"

    async def sessions(self) -> tuple[bytes, bytes]:
        """Counts and sizes. What start-up has left is frozen (`mcpd.collector`), and none of the *objects*."""
        endpoint = self._endpoint
        meter = endpoint.core.meter
        told = {
            "sessions": await endpoint.sessions.records.count(),
            "busy": endpoint.sessions.busy(),
            "calls": len(endpoint.calls),
            "streams": dict(meter.streams),
            "created": meter.sessions_created,
            "gc": {"objects": len(gc.get_objects()), "frozen": gc.get_freeze_count(), "counts": gc.get_count()},
        }
        return b"application/json", msgspec.json.format(msgspec.json.encode(told))


def _heap_report(before: tracemalloc.Snapshot | None) -> tuple[tracemalloc.Snapshot, list[str]]:
    hidden = (tracemalloc.Filter(inclusive=False, filename_pattern=tracemalloc.__file__),)
    snapshot = tracemalloc.take_snapshot().filter_traces(hidden)
    traced, peak = tracemalloc.get_traced_memory()
    report = [f"Traced: {traced / 1024:.0f} KiB now, {peak / 1024:.0f} KiB at the most", "", "Largest:"]
    report += [
        f"{entry.size / 1024:10.1f} KiB in {entry.count:7d}  {entry.traceback[0]}"
        for entry in snapshot.statistics("lineno")[:_TOP]
    ]
    if before is not None:
        report += ["", "Grown since the last call:"]
        for change in snapshot.compare_to(before, "traceback")[:_TOP]:
            if change.size_diff > 0:
                report.append(f"{change.size_diff / 1024:+10.1f} KiB in {change.count_diff:+7d}")
                report += [f"{'':14}{frame}" for frame in reversed(change.traceback)]
    return snapshot, report


def _describe(task: trio.lowlevel.Task, depth: int, lines: list[str]) -> None:
    where = "running"
    for frame, line in task.iter_await_frames():
        if "/trio/" not in frame.f_code.co_filename:
            where = f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{line})"
    lines.append(f"{'  ' * depth}{task.name}: {where}")
    for nursery in task.child_nurseries:
        lines.append(f"{'  ' * depth}  nursery of {len(nursery.child_tasks)}")
        for child in sorted(nursery.child_tasks, key=lambda each: each.name):
            _describe(child, depth + 2, lines)
