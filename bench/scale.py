"""A million sessions in one process, and ten thousand open streams: what does each cost, and does anything slow down?

    python bench/scale.py [--quick] [--sessions 1000000] [--streams 10000] [--rounds 7] [--out bench/results]

mcpd only, on its direct front and the memory store. Two servers run side by side: one with a thousand sessions and one
that grows. Their latencies are taken in turn, so what else the machine does strikes both alike, and their ratio counts.
"""

from __future__ import annotations

import argparse
import random
import resource
import shlex
import signal
import statistics
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from matplotlib.figure import Figure
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import Progress

import _wire
from _report import COLUMNS, table, taken, write
from _target import BenchError, loopback_port, serving
from _wire import Wire

if TYPE_CHECKING:
    from collections.abc import Generator

APP = Path(__file__).resolve().parent / "_scale_app.py"
AT_ONCE = 50
"""Requests in one packet while sessions are made; never while anything is timed."""
BASE = 1_000
CALLS = 1_500
"""In each round. The 99th percentile of fewer says little."""
HEARTBEAT = 5.0
JUMP = 100_000.0
SPARE_DESCRIPTORS = 500

Row = dict[str, Any]


class Subject:
    """One server, its sessions, and one connection to it."""

    def __init__(self, url: str, pid: int) -> None:
        self.port = loopback_port(url)
        self.process = psutil.Process(pid)
        self.wire = Wire(self.port)
        self.sessions: list[bytes] = []
        self.others = 0
        """Sessions that were opened and are not used."""
        self._number = 0
        self._random = random.Random(1)

    def fill(self, size: int, progress: Progress, label: str) -> None:
        """Open sessions until there are *size*."""
        task = progress.add_task(label, total=size, completed=len(self.sessions))
        while len(self.sessions) < size:
            self.sessions += self.wire.open(min(AT_ONCE, size - len(self.sessions)), self.next_ids(AT_ONCE))
            progress.update(task, completed=len(self.sessions))

    @property
    def live(self) -> int:
        """How many sessions there are."""
        return len(self.sessions) + self.others

    def resident(self) -> int:
        """Bytes of the process: the least of some readings."""
        return min(self._resident_soon() for _ in range(10))

    def _resident_soon(self) -> int:
        time.sleep(0.02)
        return int(self.process.memory_info().rss)

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def calls(self, count: int) -> list[float]:
        """How long calls on random sessions take, in microseconds."""
        return self.wire.timed([_wire.call(self._any(), self.next_ids(), "echo", {"text": "x"}) for _ in range(count)])

    def pings(self, count: int) -> list[float]:
        """How long it takes to touch random sessions."""
        return self.wire.timed([_wire.ping(self._any(), self.next_ids()) for _ in range(count)])

    def creations(self, count: int) -> list[float]:
        """How long it takes to open one more session."""
        self.others += count
        return self.wire.timed([_wire.initialize(self.next_ids()) for _ in range(count)])

    def reconnect(self) -> None:
        """Connect anew: the server closes connections that were idle for long."""
        self.wire.close()
        self.wire = Wire(self.port)

    def look(self, session: bytes) -> Row:
        """What the server says of itself; the longest pass of its loop begins anew."""
        found: Row = self.wire.result(_wire.call(session, self.next_ids(), "look", {}))
        return found

    def jump(self) -> bytes:
        """Let every session expire at once but one, which is given."""
        session = self._any()
        self.wire.ask(_wire.call(session, self.next_ids(), "jump", {"seconds": JUMP}))
        self.reconnect()  # to the server it was idle for a day
        return self.wire.open(1, self.next_ids())[0]

    def _any(self) -> bytes:
        return self._random.choice(self.sessions)

    def next_ids(self, count: int = 1) -> int:
        self._number += count
        return self._number


@contextmanager
def subject(heartbeat: float = 600.0) -> Generator[Subject]:
    """A fresh server, warm."""
    command = shlex.join([sys.executable, str(APP)]) + f" {{port}} {heartbeat:g}"
    with serving(command, "http://127.0.0.1:{port}/mcp") as target:
        if target.pid is None:
            raise BenchError("the server's process cannot be seen")
        one = Subject(target.url, target.pid)
        one.sessions = one.wire.open(AT_ONCE, one.next_ids(AT_ONCE))
        one.calls(500)
        one.pings(100)
        one.creations(100)
        yield one
        one.wire.close()


def percentile(values: list[float], part: float) -> float:
    """The value below which that part of them lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


class Bench:
    """One run."""

    def __init__(self, options: argparse.Namespace, progress: Progress) -> None:
        self._options = options
        self._progress = progress
        self._deadline = time.monotonic() + options.limit

    def sessions(self, sizes: list[int]) -> list[Row]:
        """What each number of sessions costs."""
        rows: list[Row] = []
        with subject() as small, subject() as grown:
            small.fill(BASE, self._progress, f"{BASE:,} sessions to compare with")
            began = grown.resident(), grown.live
            for size in sizes:
                self._check_time()
                used = grown.cpu()
                before = len(grown.sessions)
                grown.fill(size, self._progress, f"{size:,} sessions")
                row: Row = {"sessions": size}
                row["create_cpu_us"] = (grown.cpu() - used) / max(1, size - before) * 1e6
                row["bytes"] = (grown.resident() - began[0]) / (grown.live - began[1])
                row |= self._latencies(size, small, grown)
                rows.append(row)
        for row in rows:
            self._check_time()
            with subject() as fresh:
                fresh.fill(row["sessions"], self._progress, f"{row['sessions']:,} sessions that will expire")
                row.update(self._expire(fresh))
        return rows

    def _latencies(self, size: int, small: Subject, grown: Subject) -> Row:
        rounds: list[Row] = []
        small.reconnect()
        task = self._progress.add_task(f"calls at {size:,}", total=self._options.rounds)
        grown.look(grown.sessions[0])
        longest = 0.0
        for number in range(self._options.rounds):
            pair = (small, grown) if number % 2 else (grown, small)  # neither is always the first
            taken_by: dict[Subject, list[float]] = {}
            cpu: dict[Subject, float] = {}
            for each in pair:
                each.look(each.sessions[0])
                taken_by[each] = each.calls(self._options.calls)
                looked = each.look(each.sessions[0])
                cpu[each] = looked["cpu_p99_us"]
                longest = max(longest, looked["cpu_ms"]) if each is grown else longest
            pings, creations = grown.pings(200), grown.creations(100)
            rounds.append(
                {
                    "call_p50_us": percentile(taken_by[grown], 0.5),
                    "call_p99_us": percentile(taken_by[grown], 0.99),
                    "p50_ratio": percentile(taken_by[grown], 0.5) / percentile(taken_by[small], 0.5),
                    "p99_ratio": percentile(taken_by[grown], 0.99) / percentile(taken_by[small], 0.99),
                    "cpu_p99_us": cpu[grown],
                    "cpu_p99_ratio": cpu[grown] / cpu[small],
                    "touch_p50_us": percentile(pings, 0.5),
                    "create_p50_us": percentile(creations, 0.5),
                }
            )
            self._progress.advance(task)
        row = {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
        return row | {"pass_cpu_ms": max(longest, grown.look(grown.sessions[0])["cpu_ms"])}

    def _expire(self, fresh: Subject) -> Row:
        full = fresh.resident()
        task = self._progress.add_task(f"{len(fresh.sessions):,} expire together", total=len(fresh.sessions))
        used, began = fresh.cpu(), time.monotonic()
        session = fresh.jump()
        calls: list[float] = []
        passes: list[Row] = []
        while True:
            fresh.sessions, kept = [session], fresh.sessions
            calls += fresh.calls(100)
            fresh.sessions = kept
            passes.append(fresh.look(session))
            self._progress.update(task, completed=min(passes[-1]["expired"], len(kept)))
            if passes[-1]["expired"] >= len(kept):
                break
            self._check_time()
        spent, took = fresh.cpu() - used, time.monotonic() - began
        # The calls in between are not part of what expiry costs.
        idle, before = fresh.cpu(), len(calls)
        fresh.sessions = [session]
        fresh.calls(before)
        return {
            "expire_seconds": took,
            "expire_cpu_us": max(0.0, spent - (fresh.cpu() - idle)) / len(kept) * 1e6,
            "expire_call_p99_us": percentile(calls, 0.99),
            "expire_pass_cpu_ms": max(each["cpu_ms"] for each in passes),
            "expire_pass_wall_ms": max(each["wall_ms"] for each in passes),
            "expired_rss_part": fresh.resident() / full,
        }

    def streams(self, counts: list[int]) -> list[Row]:
        """What open streams cost."""
        rows: list[Row] = []
        with subject(HEARTBEAT) as one, ExitStack() as opened:
            one.fill(counts[-1] + AT_ONCE, self._progress, f"{counts[-1]:,} sessions for streams")
            quiet = one.resident()
            streams: list[Wire] = []
            for count in counts:
                self._check_time()
                task = self._progress.add_task(f"{count:,} streams", total=count, completed=len(streams))
                while len(streams) < count:
                    stream = Wire(one.port)
                    opened.callback(stream.close)
                    stream.socket.sendall(_wire.listen(one.sessions[len(streams)]))
                    if not stream.socket.recv(1 << 16).startswith(b"HTTP/1.1 200 "):
                        raise BenchError("a stream was refused")
                    streams.append(stream)
                    self._progress.advance(task)
                new = one.resident()
                one.look(one.sessions[-1])
                calls = self._through_heartbeats(one)
                beats = sum(b":" in stream.socket.recv(1 << 16) for stream in streams)
                if beats != count:
                    raise BenchError(f"{count - beats} streams had no heartbeat")
                rows.append(
                    {
                        "streams": count,
                        "opened_bytes": (new - quiet) / count,
                        "bytes": (one.resident() - quiet) / count,
                        "call_p50_us": percentile(calls, 0.5),
                        "call_p99_us": percentile(calls, 0.99),
                        "pass_cpu_ms": one.look(one.sessions[-1])["cpu_ms"],
                    }
                )
        return rows

    def _through_heartbeats(self, one: Subject) -> list[float]:
        task = self._progress.add_task("heartbeats", total=25)
        calls: list[float] = []
        for number in range(25):
            until = time.monotonic() + HEARTBEAT / 10
            calls += one.calls(40)
            time.sleep(max(0.0, until - time.monotonic()))
            self._progress.update(task, completed=number + 1)
        return calls

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise BenchError("the run is over its time limit; ask for less or raise --limit")


def descriptors(wanted: int) -> int:
    """How many streams can be open, having raised the limit as far as needed and possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = wanted + SPARE_DESCRIPTORS
    most = need if hard == resource.RLIM_INFINITY else min(need, hard)
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(1, max(soft, most) - SPARE_DESCRIPTORS) if most < need else wanted


def page(rows: list[Row], streams: list[Row], notes: list[str]) -> list[str]:
    """The page."""
    session_rows = [
        (
            f"{row['sessions']:,}",
            f"{row['bytes'] / 1024:.2f}",
            f"{row['call_p50_us']:,.0f}",
            f"{row['call_p99_us']:,.0f}",
            f"{row['p50_ratio']:.2f}",
            f"{row['p99_ratio']:.2f}",
            f"{row['cpu_p99_us']:,.0f}",
            f"{row['cpu_p99_ratio']:.2f}",
            f"{row['touch_p50_us']:,.0f}",
            f"{row['create_p50_us']:,.0f}",
            f"{row['create_cpu_us']:.0f}",
            f"{row['pass_cpu_ms']:.1f}",
        )
        for row in rows
    ]
    expiry_rows = [
        (
            f"{row['sessions']:,}",
            f"{row['expire_seconds']:.1f}",
            f"{row['expire_cpu_us']:.1f}",
            f"{row['expire_pass_cpu_ms']:.1f}",
            f"{row['expire_pass_wall_ms']:.1f}",
            f"{row['expire_call_p99_us']:,.0f}",
            f"{row['expired_rss_part']:.0%}",
        )
        for row in rows
    ]
    stream_rows = [
        (
            f"{row['streams']:,}",
            f"{row['opened_bytes'] / 1024:.1f}",
            f"{row['bytes'] / 1024:.1f}",
            f"{row['call_p50_us']:,.0f}",
            f"{row['call_p99_us']:,.0f}",
            f"{row['pass_cpu_ms']:.1f}",
        )
        for row in streams
    ]
    return [
        "# Sessions and streams in number",
        "",
        f"{taken()} mcpd, direct front, memory store, one process. Times in microseconds unless they say ms or s.",
        *notes,
        "",
        "![sessions in number](scale.png)",
        "",
        "## Live sessions",
        "",
        f"Latency on random sessions, one call at a time; ratios to a server of {BASE:,} sessions that runs beside it.",
        "CPU is the server's processor time for a call, which what else the machine does can hardly change. The",
        "longest pass is the processor time in which the loop looked at no socket.",
        "",
        *table(
            (
                "sessions",
                "KiB each",
                "call p50",
                "call p99",
                "p50 ratio",
                "p99 ratio",
                "CPU p99",
                "CPU p99 ratio",
                "touch p50",
                "create p50",
                "create CPU",
                "longest pass ms",
            ),
            session_rows,
        ),
        "",
        "## All of them expire at one moment",
        "",
        *table(
            (
                "sessions",
                "gone after s",
                "CPU each",
                "longest pass, CPU ms",
                "on the clock, ms",
                "call p99 meanwhile",
                "RSS left",
            ),
            expiry_rows,
        ),
        "",
        "## Open GET streams",
        "",
        f"A heartbeat every {HEARTBEAT:g} s. Memory beyond that of their sessions, at first and after two heartbeats.",
        "",
        *table(
            ("streams", "KiB each", "KiB with heartbeats", "call p50", "call p99", "longest pass, CPU ms"), stream_rows
        ),
    ]


def draw(path: Path, rows: list[Row]) -> None:
    """Plot cost by number."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    memory, latency = figure.subplots(1, 2)
    sizes = [row["sessions"] for row in rows]
    memory.plot(sizes, [row["bytes"] / 1024 for row in rows], "o-", color="#c33")
    memory.set_title("KiB of RSS for each session", fontsize="medium")
    lines = (("call_p50_us", "call p50"), ("cpu_p99_us", "call, CPU p99"), ("create_p50_us", "create p50"))
    for key, name in lines:
        latency.plot(sizes, [row[key] for row in rows], "o-", label=name)
    latency.plot(sizes, [row["touch_p50_us"] for row in rows], "o-", label="touch p50")
    latency.set_title("microseconds", fontsize="medium")
    latency.legend(fontsize="small")
    for axes in (memory, latency):
        axes.set_xscale("log")
        axes.set_xlabel("live sessions")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; 0 when figures were written, 1 when they could not be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="a small run: 10,000 sessions, 500 streams")
    add("--sessions", type=int, default=1_000_000, help="how many at most, up to 2,000,000 (%(default)s)")
    add("--streams", type=int, default=10_000, help="how many at most, up to 20,000 (%(default)s)")
    add("--rounds", type=int, default=7, help="rounds of calls at each size (%(default)s)")
    add("--calls", type=int, default=CALLS, help="calls in a round (%(default)s)")
    add("--limit", type=float, default=3_600.0, metavar="SECONDS", help="for all of it (%(default)g)")
    add("--out", type=Path, default=Path("bench/results"), help="where the results go (%(default)s)")
    options = parser.parse_args(arguments)
    if options.quick:
        options.sessions, options.streams = min(options.sessions, 10_000), min(options.streams, 500)
        options.rounds, options.calls = 3, 300
    if not (BASE <= options.sessions <= 2_000_000 and 1 <= options.streams <= 20_000):
        parser.error(f"--sessions is from {BASE} to 2000000, --streams from 1 to 20000")
    console = Console(stderr=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the servers are stopped then, too
    streams = descriptors(options.streams)
    notes = []
    if streams < options.streams:
        notes.append(
            f"The hard limit of open files (`ulimit -Hn`) allowed {streams:,} streams, not {options.streams:,}."
        )
        console.print(notes[-1])
    sizes = sorted({size for size in (BASE, 10_000, 100_000) if size < options.sessions} | {options.sessions})
    counts = sorted({min(1_000, streams), streams})
    try:
        with Progress(*COLUMNS, console=console) as progress:
            bench = Bench(options, progress)
            stream_rows = bench.streams(counts)
            rows = bench.sessions(sizes)
    except BenchError as exc:
        console.print(f"scale.py: {exc}", style="red", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        return 130
    text = write(options.out, "scale", page(rows, stream_rows, notes), {"sessions": rows, "streams": stream_rows})
    draw(options.out / "scale.png", rows)
    Console().print(Markdown(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
