"""How many requests a second, and how long one takes: mcpd and its peers in one interleaved run.

    python bench/throughput.py [--rounds 5] [--seconds 3] [--only 'mcpd direct' --only ...] [--out bench/results]

Each server has one core, the load generator (wrk) another. In each round every server is measured once, in turn, so
that what else the machine does strikes all alike. Every request has an id of its own; before a server is measured its
answers are checked one by one, and a run with a single error counts for nothing. What is reported are medians over the
rounds, and ratios to mcpd. A single connection is measured twice: as the machine is, and with its cores kept awake.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import ExitStack, contextmanager, nullcontext
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress

from _peers import FLOOR, PEERS, PEERS_BY_NAME, MissingError, Peer
from _report import taken
from _target import BenchError, _free_port

if TYPE_CHECKING:
    from collections.abc import Generator

    Figures = dict[tuple[str, str], list[dict[str, Any]]]

OURS = "mcpd direct"
ALONE, AWAKE = "legacy c=1", "legacy c=1, cores awake"
CASES = [(ALONE, "legacy", 1), (AWAKE, "legacy", 1)]
CASES += [
    (f"{era} c={count}", era, count) for era, count in (("legacy", 16), ("legacy", 64), ("modern", 1), ("modern", 16))
]
# At SCHED_IDLE it runs where nothing else wants to: it takes next to nothing from anything, but the core never sleeps.
STAY_AWAKE = """
import os, sys
parent = os.getppid()
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
print("awake", flush=True)
while os.getppid() == parent:  # asked seldom, for the kernel is not interrupted as readily
    for _ in range(10_000_000): pass
"""
CLIENT = {"name": "bench", "version": "1"}
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
console = Console(stderr=True)


class Running:
    """A server that runs."""

    def __init__(self, peer: Peer, port: int) -> None:
        self.peer = peer
        self.port = port
        self.session = ""

    def initialize(self) -> str:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE})
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        connection.request("POST", "/mcp", body, headers)
        answer = connection.getresponse()
        answer.read()
        session = answer.headers.get("Mcp-Session-Id")
        if answer.status != 200 or session is None:
            raise BenchError(f"{self.peer.name} answers initialize with {answer.status}")
        headers |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"}
        connection.request("POST", "/mcp", '{"jsonrpc":"2.0","method":"notifications/initialized"}', headers)
        connection.getresponse().read()
        connection.close()
        return session

    def load(self, what: str, connections: int, seconds: float, *, verify: bool = False) -> dict[str, Any]:
        """Run wrk for a while; raises BenchError if anything was not answered as it should be."""
        environment = os.environ | {"WHAT": what, "SESSION": self.session, "FIRST": str(next(_ids))}
        if verify:
            environment["VERIFY"] = "1"
        command = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "-s", str(PEERS / "load.lua")]
        done = subprocess.run(
            ["taskset", "-c", str(_cores()[1]), *command, f"http://127.0.0.1:{self.port}"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        line = next((line for line in done.stdout.splitlines() if line.startswith("JSON ")), None)
        if line is None:
            raise BenchError(f"wrk failed: {(done.stderr or done.stdout)[-300:]}")
        found: dict[str, Any] = json.loads(line.removeprefix("JSON "))
        if found["failed"] or found["bad"] or (verify and not found["good"]):
            trouble = f"{found['failed']} failed, {found['bad']} bad {found['example']}"
            raise BenchError(f"{self.peer.name}, {what}: {trouble}")
        found["rate"] = found["requests"] / found["seconds"]
        return found


# All of eight digits; what was used long ago may come again.
_ids = itertools.cycle(range(0, 80_000_000, 1_000_000))


def _cores() -> tuple[int, int]:
    cores = sorted(os.sched_getaffinity(0))
    return cores[0], cores[-1]


@contextmanager
def started(peer: Peer, command: list[str]) -> Generator[Running]:
    port = _free_port()
    arguments = ["taskset", "-c", str(_cores()[0]), *(part.replace("{port}", str(port)) for part in command)]
    process = subprocess.Popen(
        arguments, env=os.environ | peer.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_for(port, process)
        running = Running(peer, port)
        running.session = running.initialize()
        yield running
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        try:
            HTTPConnection("127.0.0.1", port, timeout=1).connect()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise BenchError(f"nothing listens on port {port}")


@contextmanager
def awake() -> Generator[None]:
    """Keep the cores from sleeping; raises BenchError if that is not possible here."""
    commands = [[sys.executable, "-c", STAY_AWAKE, str(core)] for core in _cores()]
    spinning = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    try:
        if not all(each.stdout is not None and each.stdout.readline() for each in spinning):
            raise BenchError("the cores cannot be kept awake here")
        yield
        if any(each.poll() is not None for each in spinning):
            raise BenchError("the cores were not kept awake to the end")
    finally:
        for each in spinning:
            each.kill()
            each.communicate()


def measure(peers: list[Peer], rounds: int, seconds: float, progress: Progress) -> Figures:
    """All figures by peer and measurement, one for each round."""
    found: Figures = defaultdict(list)
    cases = CASES
    try:
        with awake():
            pass
    except BenchError as exc:
        console.print(f"[yellow]skipped {AWAKE}: {exc}")
        cases = [case for case in CASES if case[0] != AWAKE]
    with ExitStack() as stack:
        servers: list[Running] = []
        task = progress.add_task("starting", total=len(peers))
        for peer in peers:
            progress.update(task, description=f"starting {peer.name}")
            try:
                running = stack.enter_context(started(peer, peer.prepare()))
                for era in peer.eras:
                    running.load(era, 4, peer.warm_up, verify=True)
            except (MissingError, BenchError) as exc:
                console.print(f"[yellow]skipped {peer.name}: {exc}")
            else:
                servers.append(running)
            progress.advance(task)
        task = progress.add_task("measuring", total=rounds * len(servers) * len(cases))
        for number in range(rounds):
            for case, era, connections in cases:
                with awake() if case == AWAKE else nullcontext():
                    for server in servers:
                        progress.update(task, description=f"round {number + 1}: {server.peer.name}, {case}")
                        if era in server.peer.eras and (connections == 1 or server.peer is not FLOOR):
                            found[server.peer.name, case].append(server.load(era, connections, seconds))
                        progress.advance(task)
    servers = [server for server in servers if server.peer is not FLOOR]
    task = progress.add_task("initialize", total=rounds * len(servers))
    for _ in range(rounds):
        # Sessions stay: each round begins with new servers, or the caps of some would be measured.
        for server in servers:
            progress.update(task, description=f"initialize: {server.peer.name}")
            with started(server.peer, server.peer.prepare()) as fresh:
                fresh.load("initialize", 4, 1)
                found[server.peer.name, "initialize c=4"].append(fresh.load("initialize", 4, min(seconds, 2)))
            progress.advance(task)
    return found


def report(found: Figures, out: Path, rounds: int) -> str:
    """The tables as Markdown, and the plot."""
    rates = {key: [run["rate"] for run in runs] for key, runs in found.items()}
    latencies = {key: [run["p50_us"] for run in runs] for key, runs in found.items()}
    names = [name for name in dict.fromkeys(name for name, _ in found) if name != FLOOR.name]
    cases = [case for case in dict.fromkeys(case for _, case in found) if case != AWAKE]
    lines = [
        "# How many requests a second",
        "",
        f"{taken()} Medians of {rounds} interleaved rounds, one core for the server.",
        "In brackets: mcpd's rate over the peer's, the median of the rounds' ratios.",
        "",
        "| server | " + " | ".join(f"{case} req/s" for case in cases) + " |",
        "|---" * (len(cases) + 1) + "|",
    ]
    for name in names:
        cells = [_cell(rates.get((name, case)), rates.get((OURS, case)), rates.get((name, case))) for case in cases]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "## How long one call takes alone",
        "",
        "The median at one connection in microseconds, as the machine is and with its cores kept awake; in brackets",
        "the peer's over mcpd's. A fixed answer, sent without a look at what came, shows what is not the servers'.",
        "",
        "| server | as it is | cores awake |",
        "|---|---|---|",
    ]
    for name in [*names, FLOOR.name]:
        pairs = [(latencies.get((name, case)), latencies.get((OURS, case))) for case in (ALONE, AWAKE)]
        cells = [_cell(theirs, theirs, ours) for theirs, ours in pairs]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    _plot(names, rates, out)
    return "\n".join(lines) + "\n"


def _cell(shown: list[float] | None, over: list[float] | None, under: list[float] | None) -> str:
    """The median of *shown*, and in brackets that of the ratios of *over* to *under*, unless they are the same."""
    if shown is None:
        return "-"
    if over is None or under is None or over is under:
        return f"{statistics.median(shown):,.0f}"
    ratios = [a / b for a, b in zip(over, under, strict=False)]
    return f"{statistics.median(shown):,.0f} ({statistics.median(ratios):.2f})"


def _plot(names: list[str], rates: dict[tuple[str, str], list[float]], out: Path) -> None:
    import matplotlib as mpl  # noqa: PLC0415 - a second of start-up that a wrong argument need not wait for

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(9, 0.5 * len(names) + 1.5))
    case = "legacy c=16"
    shown = [name for name in names if (name, case) in rates][::-1]
    colors = ["#c33" if "mcpd" in name else "#567" for name in shown]
    bars = axes.barh(shown, [statistics.median(rates[name, case]) for name in shown], color=colors)
    axes.bar_label(bars, fmt="{:,.0f}", padding=3)
    axes.set_xlabel("tools/call a second, one core, 16 connections")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(out / "throughput.png", dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one measurement")
    parser.add_argument("--only", action="append", choices=list(PEERS_BY_NAME), help="measure these peers only")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    for tool in ("wrk", "taskset"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is needed; install it, for example from your system's package of that name")
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("two cores are needed: one for the server, one for the load")
    peers = [peer for name, peer in PEERS_BY_NAME.items() if not options.only or name in options.only]
    peers.append(FLOOR)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        with Progress(console=console) as progress:
            found = measure(peers, options.rounds, options.seconds, progress)
    except BenchError as exc:
        sys.exit(f"throughput.py: {exc}")
    page = report(found, options.out, options.rounds)
    (options.out / "throughput.md").write_text(page)
    kept = ("rate", "p50_us", "p99_us")
    raw = {
        f"{name} | {case}": {figure: [run[figure] for run in runs] for figure in kept}
        for (name, case), runs in found.items()
    }
    (options.out / "throughput.json").write_text(json.dumps(raw, indent=1) + "\n")
    print(page)


if __name__ == "__main__":
    main()
