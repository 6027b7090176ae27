"""What does a session cost: while it is open, after DELETE, and after it has expired? mcpd and its peers.

    python bench/memory.py [--quick] [--sessions 2000] [--only 'mcpd direct' --only ...] [--out bench/results]

One server at a time, each figure from a fresh one after a warm-up; RSS of its process. Requests go one after the other
and every answer is checked. A peer that is not installed here is skipped by name.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import Progress

from _peers import PEERS_BY_NAME, MissingError, Peer
from _probe import Probe
from _report import COLUMNS, bars, table, taken, write
from _target import BenchError, serving
from _traffic import Client

if TYPE_CHECKING:
    from collections.abc import Callable

PEERS = (
    "mcpd direct",
    "mcpd hypercorn",
    "Python SDK 2.3.0 (JSON)",
    "FastMCP 4.2.3 (JSON)",
    "TypeScript SDK 2.4.0 (JSON)",
    "official Go SDK 1.7.0",
    "mcp-go 0.43.2",
    "mcp-go 1.0.0-beta.1",
)
WARM_UP = 300
IDLE = 2.0
SMALL = 4 * 1024
"""Bytes below which ten times as many sessions are opened: few small ones fit into room the allocator had already."""
MOST = 20_000

Figures = dict[str, float | None]


class Bench:
    """One run."""

    def __init__(self, options: argparse.Namespace, progress: Progress) -> None:
        self._count: int = options.sessions
        self._deadline = time.monotonic() + options.limit
        self._progress = progress

    def measure(self, peer: Peer) -> Figures:
        """All figures of one peer: bytes for each session, and RSS at the start.

        Raises:
          MissingError: it cannot be had here.
          BenchError: it gave a wrong answer.
        """
        command = peer.prepare()
        count = self._count
        start, opened = self._run(peer, command, count)
        if opened < SMALL and count < MOST:
            count = min(MOST, count * 10)
            start, opened = self._run(peer, command, count)
        _, deleted = self._run(peer, command, count, delete=True)
        expired = None
        if "mcpd" in peer.name:
            # The idle time of the others is half an hour or endless, and their servers here have no option for it.
            _, expired = self._run(peer, [*command, "--session-idle", f"{IDLE}s"], count, wait=IDLE + 2)
        return {"start": start, "opened": opened, "deleted": deleted, "expired": expired, "count": count}

    def _run(
        self, peer: Peer, command: list[str], count: int, *, delete: bool = False, wait: float = 0.0
    ) -> tuple[float, float]:
        environment = [f"{name}={value}" for name, value in peer.environment.items()]
        with serving(shlex.join(["env", *environment, *command]), "http://127.0.0.1:{port}/mcp") as target:
            client = Client(target.url, keep_alive=True, deadline=self._deadline)
            probe = Probe(target)
            act: Callable[[], object] = (lambda: client.delete(client.initialize())) if delete else client.initialize
            for _ in range(WARM_UP):
                act()
            if wait:
                time.sleep(wait)
            before = probe.read().live
            what = "opened and deleted" if delete else "left to expire" if wait else "opened"
            task = self._progress.add_task(f"{peer.name}: {what}", total=count)
            for _ in range(count):
                act()
                self._progress.advance(task)
            client.pause()
            if wait:
                time.sleep(wait)
            return float(before), (probe.read().live - before) / count


def page(found: dict[str, Figures], skipped: dict[str, str]) -> list[str]:
    """The page."""

    def kib(value: float | None) -> str:
        return "-" if value is None else f"{value / 1024:.2f}"

    rows = [
        (
            name,
            kib(row["opened"]),
            kib(row["deleted"]),
            kib(row["expired"]),
            f"{(row['start'] or 0) / 2**20:.0f}",
            f"{row['count']:,.0f}",
        )
        for name, row in found.items()
    ]
    return [
        "# Memory of a session",
        "",
        f"{taken()} KiB of RSS for each session: open and idle; after DELETE; after its idle time.",
        f"Each figure from a fresh server, warmed up with {WARM_UP} sessions. Expiry is measured where the idle time",
        "can be set; where memory was reused, what is left can be less than nothing.",
        "",
        "![memory of a session](memory.png)",
        "",
        *table(("server", "open", "deleted", "expired", "RSS at the start, MiB", "sessions"), rows),
        "",
        *(f"- Skipped: {name}: {reason}" for name, reason in skipped.items()),
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; 0 when figures were written, 1 when there are none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="200 sessions, 2,000 small ones")
    add("--sessions", type=int, default=2_000, help="how many, up to 9,000: some peers have a cap (%(default)s)")
    add("--only", action="append", choices=PEERS, help="measure these only")
    add("--limit", type=float, default=3_600.0, metavar="SECONDS", help="for all of it (%(default)g)")
    add("--out", type=Path, default=Path("bench/results"), help="where the results go (%(default)s)")
    options = parser.parse_args(arguments)
    if options.quick:
        options.sessions = 200
    if not 1 <= options.sessions <= 9_000:
        parser.error("--sessions is from 1 to 9000")
    console = Console(stderr=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the server is stopped then, too
    found: dict[str, Figures] = {}
    skipped: dict[str, str] = {}
    try:
        with Progress(*COLUMNS, console=console) as progress:
            bench = Bench(options, progress)
            for name in options.only or PEERS:
                try:
                    found[name] = bench.measure(PEERS_BY_NAME[name])
                except (MissingError, BenchError) as exc:
                    skipped[name] = str(exc)
                    console.print(f"skipped {name}: {exc}", style="yellow", markup=False, soft_wrap=True)
    except KeyboardInterrupt:
        return 130
    if not found:
        return 1
    text = write(options.out, "memory", page(found, skipped), found)
    figure = Figure(figsize=(9, 0.5 * len(found) + 1.5), layout="constrained")
    bars(
        figure.subplots(),
        {name: (row["opened"] or 0) / 1024 for name, row in found.items()},
        "KiB of RSS for an open, idle session",
        "{:,.2f}",
    )
    figure.savefig(options.out / "memory.png", dpi=120, metadata={"Software": None})
    Console().print(Markdown(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
