"""The bug report's 16 days in minutes: does a server that runs for weeks hold more each day?

    python bench/soak.py [--day 8] [--days 16] [--only mcpd] [--out bench/results]

The production story of the report: a controller initializes about once a minute (1,300 times a day) and never ends a
session, eight tools are called a day, each by a client of its own that just goes away, and a few dashboards hold a GET
stream, which they open anew each day. A day takes `--day` seconds, and the idle time of a session shrinks with it,
though to no less than a second: on a busy machine a shorter one would end sessions that are in use. So a day of 8 s
has an idle time of three hours, and that many more sessions open than the 30 minutes of the default.

It writes `soak.md`, `soak.png` and `soak.json`. Only loopback; every answer is checked, and a wrong one ends the run.
"""

from __future__ import annotations

import argparse
import http.client
import os
import platform
import shlex
import sys
import time
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from matplotlib.figure import Figure
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import Progress

from _peers import PEERS_BY_NAME, MissingError
from _probe import Probe
from _target import BenchError, serving
from _traffic import Client

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1024 * 1024
PER_DAY = 1_300
"""Sessions that the report's controller opens a day, by its own cross-check."""
CALLS = 8
DASHBOARDS = 3
IDLE = 1 / 48
"""Of a day: 30 minutes."""
SHORTEST = 1.0
REPORT = [18.5, 30.9, 42.2, 56.4, 68.2, 80.5, 93.3, 105.4, 118.2, 130.3, 142.8, 155.2, 167.4, 180.0, 192.5, 204.8]
"""MiB of heap in use at the end of each day, from the report."""
REPORT_NAME = "the report (kagent-tools 0.2.1 on mcp-go 0.43.2, heap in use)"
SERVERS = {"mcpd": "mcpd direct", "mcpd on Hypercorn": "mcpd hypercorn", "mcp-go 0.43.2": "mcp-go 0.43.2"}


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """What a server held at the end of a day, and how many sessions were open if it says so."""

    live: int
    sessions: int | None
    initialized: int
    took: float


class Soak(msgspec.Struct, frozen=True, kw_only=True):
    """One server's days. The first entry is the start, before any traffic but a warm-up."""

    server: str
    measure: str
    days: list[Day]

    @property
    def growth(self) -> float:
        """Bytes a day, from the end of the second day to that of the last: the first ones fill pools and caches."""
        settled = self.days[2:]
        return (settled[-1].live - settled[0].live) / (len(settled) - 1)


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """All servers of one run."""

    taken: str
    machine: str
    day: float
    soaks: list[Soak]


class Visitor(Client):
    """A client that does more than the report's reproduction: it finishes its initialization, and calls a tool."""

    def begin(self) -> str:
        """Open a session as a client of a library does."""
        session = self.initialize()
        message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        self._post(session, message, HTTPStatus.ACCEPTED)
        return session

    def call(self, session: str) -> None:
        """Call the tool that every peer has."""
        params = {"name": "add", "arguments": {"a": 1, "b": 2}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        body = self._post(session, message, HTTPStatus.OK)
        if b"3" not in body or b'"error"' in body:
            raise BenchError(f"tools/call was answered {body[:300]!r}")

    def _post(self, session: str, message: dict[str, object], wanted: HTTPStatus) -> bytes:
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-session-id": session,
        }
        status, _, body = self._ask("POST", self._path, msgspec.json.encode(message), headers)
        if status != wanted:
            raise BenchError(f"{message['method']} was answered {status}: {body[:300]!r}")
        return body


class Dashboard:
    """A client with a GET stream, for as long as it is open."""

    def __init__(self, url: str, visitor: Visitor) -> None:
        origin, _, path = url.removeprefix("http://").partition("/")
        self._connection = http.client.HTTPConnection(origin, timeout=10.0)
        headers = {"accept": "text/event-stream", "mcp-session-id": visitor.begin()}
        self._connection.request("GET", f"/{path}", headers=headers)
        answer = self._connection.getresponse()
        if answer.status != HTTPStatus.OK:
            raise BenchError(f"GET was answered {answer.status}")
        self._answer = answer

    def close(self) -> None:
        """Go away, after a look whether the stream was open all the time."""
        sock = self._connection.sock
        sock.setblocking(False)  # noqa: FBT003 - the socket's own signature
        try:
            # Heartbeats may have come, and no end.
            while sock.recv(65_536):
                pass
        except BlockingIOError:
            pass
        else:
            raise BenchError("a GET stream was ended by the server")
        finally:
            self._answer.close()
            self._connection.close()


def soak(name: str, options: argparse.Namespace, advance: Callable[[], object]) -> Soak:
    """Let one server live through it. Raises `MissingError` if it cannot be had here."""
    peer = PEERS_BY_NAME[SERVERS[name]]
    command = peer.prepare()
    if name.startswith("mcpd"):
        command += ["--session-idle", f"{max(SHORTEST, options.day * IDLE):.3f}s"]
    os.environ.update(peer.environment)
    with serving(shlex.join(command), "http://127.0.0.1:{port}/mcp") as target:
        deadline = time.monotonic() + options.days * options.day * 10 + 120
        visitor = Visitor(target.url, keep_alive=True, deadline=deadline)
        for _ in range(200):
            visitor.delete(visitor.begin())
        visitor.pause()
        probe = Probe(target)
        reading = probe.read()
        days = [Day(live=reading.live, sessions=reading.sessions, initialized=0, took=0.0)]
        initialized = 0
        for _ in range(options.days):
            began = time.monotonic()
            dashboards = [Dashboard(target.url, visitor) for _ in range(DASHBOARDS)]
            for number in range(PER_DAY):
                visitor.begin()
                if number % (PER_DAY // CALLS) == PER_DAY // CALLS // 2:
                    visitor.call(visitor.begin())
                    initialized += 1
                pause = began + (number + 1) * options.day / PER_DAY - time.monotonic()
                time.sleep(max(0.0, pause))
            initialized += PER_DAY + DASHBOARDS
            visitor.pause()
            reading = probe.read()
            took = time.monotonic() - began
            days.append(Day(live=reading.live, sessions=reading.sessions, initialized=initialized, took=took))
            for dashboard in dashboards:
                dashboard.close()
            advance()
        return Soak(server=name, measure=probe.measure, days=days)


def page(story: Story, plot: str) -> str:
    """The story as a table and its sums."""
    names = [f"{each.server}, {'heap' if 'heap' in each.measure else 'RSS'}" for each in story.soaks]
    lines = [
        "# Sixteen days of the report, replayed",
        "",
        f"Taken {story.taken} on {story.machine}; a day takes {story.day:g} s. MiB is 1,048,576 bytes.",
        "",
        f"![live memory by day]({plot})",
        "",
        _row(["day", "sessions opened", *(f"{name} (MiB)" for name in names), "the report's heap (MiB)"]),
        "| ---: " * (len(names) + 3) + "|",
    ]
    for number, moments in enumerate(zip(*(each.days for each in story.soaks), strict=True)):
        report = f"{REPORT[number - 1]:.1f}" if 0 < number <= len(REPORT) else "-"
        memory = [f"{day.live / MIB:.2f}" for day in moments]
        lines.append(_row([str(number), f"{moments[0].initialized:,}", *memory, report]))
    lines.append("")
    for each in story.soaks:
        open_now = each.days[-1].sessions
        kept = "" if open_now is None else f"; at the end {open_now} sessions are open"
        each_session = each.growth / (each.days[-1].initialized / (len(each.days) - 1))
        lines.append(
            f"- {each.server}: {each.growth / MIB:+.3f} MiB a day from the second day on, "
            f"{each_session:+.0f} bytes for each session{kept}. Measure: `{each.measure}`."
        )
    rises = [after - before for before, after in pairwise(REPORT)]
    lines.append(f"- The report: {sum(rises) / len(rises):+.1f} MiB a day, until the kernel killed it at 256 MiB.")
    return "\n".join(lines) + "\n"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def draw(path: Path, story: Story) -> None:
    """Plot live memory by day."""
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.plot(range(1, len(REPORT) + 1), REPORT, "k--", marker=".", label=REPORT_NAME)
    for each in story.soaks:
        kind = "heap" if "heap" in each.measure else "RSS"
        axes.plot(
            range(len(each.days)), [day.live / MIB for day in each.days], marker=".", label=f"{each.server}, {kind}"
        )
    axes.axhline(256, color="grey", linewidth=0.8, linestyle=":")
    axes.text(len(REPORT), 258, "the pod's limit", fontsize="small", color="grey", horizontalalignment="right")
    axes.set_title("A controller that initializes once a minute and never deletes", fontsize="medium")
    axes.set_xlabel("days since the start")
    axes.set_ylabel("live memory (MiB)")
    axes.set_ylim(0, 270)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(0, 0.93))
    figure.savefig(path, dpi=120, metadata={"Software": None})


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--day", type=float, default=8.0, help="seconds that a day takes (%(default)g)")
    parser.add_argument("--days", type=int, default=16, help="how many days (%(default)s)")
    parser.add_argument("--only", action="append", choices=SERVERS, help="only this server; may be repeated")
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path("bench/results"), help="where results go")
    options = parser.parse_args()
    if not 1 <= options.day <= 600 or not 4 <= options.days <= 100:  # growth is a slope over the settled days
        parser.error("a day takes from 1 to 600 seconds, and there are from 4 to 100 of them")
    console = Console(stderr=True)
    soaks: list[Soak] = []
    with Progress(console=console) as progress:
        for name in options.only or SERVERS:
            task = progress.add_task(name, total=options.days)
            try:
                soaks.append(soak(name, options, lambda task=task: progress.advance(task)))  # type: ignore[misc]
            except MissingError as exc:
                console.print(f"{name} is left out: {exc}", markup=False, soft_wrap=True)
            except BenchError as exc:
                console.print(f"soak.py: {name}: {exc}", style="red", markup=False, soft_wrap=True)
                return 1
    if not soaks:
        return 1
    story = Story(
        taken=datetime.now(UTC).strftime("%Y-%m-%d"),
        machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        day=options.day,
        soaks=soaks,
    )
    options.out.mkdir(parents=True, exist_ok=True)
    plot = options.out / "soak.png"
    draw(plot, story)
    text = page(story, plot.name)
    plot.with_suffix(".md").write_text(text)
    plot.with_suffix(".json").write_bytes(msgspec.json.format(msgspec.json.encode(story), indent=1) + b"\n")
    Console().print(Markdown(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
