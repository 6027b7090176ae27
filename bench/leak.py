"""Does memory follow the sessions that are open, or the sessions there ever were? The bug report's reproduction.

Against a server that runs, and against one that is started for the run:

    python bench/leak.py http://127.0.0.1:8000/mcp
    python bench/leak.py --serve 'mcpd serve --port {port} --session-idle 2s' --settle 4 --rounds 5

It writes `leak.md`, `leak.png` and `leak.json`. Requests go one after the other; only loopback; every answer is
checked and a wrong one ends the run without figures.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from _figures import Control, Ended, Point, Run, dump, load
from _page import CONNECTIONS, DELETED, HEALTH, OPENED, draw, page
from _probe import Probe
from _target import BenchError, Target, loopback_port, serving
from _traffic import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

CONTROLS = {HEALTH: 5_000, CONNECTIONS: 1_000, OPENED: 1_000, DELETED: 500}
CROWD = 50
"""Connections that are open at once before they are closed, so that the server is idle on each when its client goes."""
SETTLED_ASKED = 50
"""Sessions of the last batch that are asked whether they are gone, after each round's memory has been read."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One server with the means to drive and to watch it."""

    url: str
    client: Client
    probe: Probe
    has_health: bool


class Bench:
    """One run: what was asked for, the progress on the screen, and the servers it opens."""

    def __init__(self, options: argparse.Namespace, progress: Progress) -> None:
        self._options = options
        self._progress = progress
        self._deadline = time.monotonic() + options.limit
        self._ended: list[Ended] = []

    def run(self) -> Run:
        """Measure the curve and the controls. Raises `BenchError` as soon as anything makes the figures worthless."""
        options = self._options
        with self._subject() as subject:
            points = self._curve(subject)
            server, measure = subject.client.server, subject.probe.measure
            controls = [] if options.serve else self._controls(subject)
        if options.serve:
            for traffic in CONTROLS:
                with self._subject() as subject:
                    controls += self._controls(subject, traffic)
        return Run(
            server=server,
            measure=measure,
            taken=datetime.now(UTC).strftime("%Y-%m-%d"),
            machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
            warm_up=options.warm_up,
            fresh=options.serve is not None,
            keep_alive=not options.new_connections,
            batch=options.batch,
            settle=options.settle,
            points=points,
            controls=controls,
            ended=self._ended,
        )

    @contextmanager
    def _subject(self) -> Generator[Subject]:
        options = self._options
        with serving(options.serve, options.url, pid=options.pid) as target:
            client = Client(target.url, keep_alive=not options.new_connections, deadline=self._deadline)
            has_health = client.health()
            self._each("warm-up, GET /health", options.warm_up, client.health)
            self._each("warm-up, initialize + DELETE", options.warm_up, lambda: client.delete(client.initialize()))
            client.pause()
            yield Subject(target.url, client, Probe(target, metrics=self._metrics(target)), has_health)

    def _metrics(self, target: Target) -> str | None:
        metrics: str | None = self._options.metrics
        return None if metrics is None else metrics.replace("{port}", str(loopback_port(target.url)))

    def _curve(self, subject: Subject) -> list[Point]:
        options = self._options
        points = [_point(0, subject.probe)]
        sessions: list[str] = []
        for number in range(1, options.rounds + 1):
            for batch in range(1, options.batches + 1):
                label = f"round {number} of {options.rounds}, batch {batch}"
                self._each(label, options.batch, lambda: sessions.append(subject.client.initialize()))
                subject.client.pause()
                points.append(_point(len(sessions), subject.probe))
            _all_different(sessions)
            if options.settle is not None:
                self._wait(f"round {number} of {options.rounds}, sessions expire", options.settle)
                points.append(_point(len(sessions), subject.probe, settled=True))
                self._ask_ended(subject.client, f"their idle time, round {number}", sessions[-SETTLED_ASKED:])
        return points

    def _controls(self, subject: Subject, *chosen: str) -> list[Control]:
        client = subject.client
        sessions: list[str] = []
        deleted: list[str] = []

        def open_and_delete() -> None:
            deleted.append(client.initialize())
            client.delete(deleted[-1])

        def come_and_go() -> None:
            crowd = [Client(subject.url, keep_alive=True, deadline=self._deadline) for _ in range(CROWD)]
            for each in crowd:
                each.health()
            for each in crowd:
                each.pause()

        traffic: dict[str, Callable[[], object]] = {
            HEALTH: client.health,
            CONNECTIONS: come_and_go,
            OPENED: lambda: sessions.append(client.initialize()),
            DELETED: open_and_delete,
        }
        controls: list[Control] = []
        for name in chosen or CONTROLS:
            if name in {HEALTH, CONNECTIONS} and not subject.has_health:
                continue
            before = subject.probe.read()
            self._each(name, CONTROLS[name] // (CROWD if name == CONNECTIONS else 1), traffic[name])
            client.pause()
            after = subject.probe.read()
            controls.append(
                Control(
                    traffic=name,
                    requests=CONTROLS[name],
                    before=before.live,
                    after=after.live,
                    sessions=after.sessions,
                    connections=after.connections,
                )
            )
        _all_different(sessions + deleted)
        if deleted:
            self._ask_ended(client, "DELETE", deleted)
        return controls

    def _ask_ended(self, client: Client, by: str, sessions: list[str]) -> None:
        """Ask the ended sessions only after the memory has been read: the report's traffic has no such requests."""
        answered = [client.is_answered(session) for session in sessions]
        client.pause()
        self._ended.append(Ended(by=by, asked=len(answered), answered=sum(answered)))

    def _each(self, label: str, count: int, act: Callable[[], object]) -> None:
        task = self._progress.add_task(label, total=count)
        for _ in range(count):
            act()
            self._progress.advance(task)

    def _wait(self, label: str, seconds: float) -> None:
        steps = max(1, round(seconds * 5))
        task = self._progress.add_task(f"{label} ({seconds:g} s)", total=steps)
        for _ in range(steps):
            time.sleep(seconds / steps)
            self._progress.advance(task)


def _point(initialized: int, probe: Probe, *, settled: bool = False) -> Point:
    reading = probe.read()
    return Point(
        initialized=initialized, live=reading.live, rss=reading.rss, sessions=reading.sessions, settled=settled
    )


def _all_different(sessions: list[str]) -> None:
    if len(set(sessions)) != len(sessions):
        raise BenchError("the server gave one session ID to two sessions; its memory per session means nothing")


def _bounded(least: float, most: float, kind: type[int | float]) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least:g} to {most:g}")
        return value

    return parse


def _named_run(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE, as in mcp-go=results/leak-mcp-go.json")
    return name, Path(path)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("url", nargs="?", default="http://127.0.0.1:{port}/mcp", help="MCP endpoint, loopback (%(default)s)")
    add("--serve", metavar="COMMAND", help="start this server for the run; {port} becomes a free port")
    add("--pid", type=_bounded(1, 2**31, int), help="its process (default: the one that listens on the port)")
    add("--metrics", metavar="URL", help="its Prometheus page (default: /metrics of the same server, if there is one)")
    add("--warm-up", type=_bounded(1, 10_000, int), default=500, help="sessions opened and deleted first (%(default)s)")
    add("--batches", type=_bounded(1, 20, int), default=4, help="batches in a round (%(default)s)")
    add("--batch", type=_bounded(1, 10_000, int), default=500, help="initialize requests in a batch (%(default)s)")
    add("--rounds", type=_bounded(1, 20, int), default=1, help="rounds of batches (%(default)s)")
    add(
        "--settle",
        metavar="SECONDS",
        type=_bounded(0.1, 3_600, float),
        help="wait after each round: idle time + margin",
    )
    add("--new-connections", action="store_true", help="one connection for each request, as curl does in the report")
    add(
        "--limit",
        metavar="SECONDS",
        type=_bounded(1, 14_400, float),
        default=1_800.0,
        help="for all of it (%(default)g)",
    )
    add("--name", help="what to call this run (default: what the server calls itself)")
    add("--compare", metavar="NAME=FILE", type=_named_run, action="append", default=[], help="draw an earlier run too")
    add("--out", metavar="DIR", type=Path, default=Path("bench/results"), help="where the results go (%(default)s)")
    add("--stem", default="leak", help="file name of the results, without its ending (%(default)s)")
    options = parser.parse_args(arguments)
    if options.serve is None and "{port}" in options.url:
        parser.error("give the URL of a running server, or --serve 'COMMAND ... {port}'")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; 0 when figures were written, 1 when they could not be, 2 for wrong arguments."""
    options = _options(arguments)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the server is stopped then, too
    try:
        others = {name: load(path) for name, path in options.compare}
        with Progress(*columns, console=console) as progress:
            run = Bench(options, progress).run()
    except BenchError as exc:
        console.print(f"leak.py: {exc}", style="red", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        return 130
    name = options.name or run.server
    options.out.mkdir(parents=True, exist_ok=True)
    plot = options.out / f"{options.stem}.png"
    draw(plot, {name: run, **others})
    text = page(name, run, others, plot.name)
    plot.with_suffix(".md").write_text(text)
    plot.with_suffix(".json").write_bytes(dump(run))
    Console().print(Markdown(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
