"""How long until a server answers, and how large is it when it does nothing? mcpd and its peers.

    python bench/startup.py [--quick] [--rounds 7] [--only 'mcpd direct' --only ...] [--out bench/results]

From the start of the process to the first answer to `initialize`. In each round every server is started once, in turn,
so that what else the machine does strikes all alike; what is reported are medians. Files are in the page cache: the
first round does not count. A peer that is not installed here is skipped by name.
"""

from __future__ import annotations

import argparse
import http.client
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil
from matplotlib.figure import Figure
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import Progress

from _peers import PEERS_BY_NAME, MissingError
from _report import COLUMNS, bars, table, taken, write
from _target import BenchError, _free_port
from _traffic import Client

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
IMPORTS = {"mcpd": "mcpd", "Python SDK": "mcp.server.lowlevel", "FastMCP": "fastmcp"}
"""What a program imports to define a server, by how the name of the peer begins."""
PATIENCE = 30.0
POLL = 0.002
SETTLE = 0.5

Figures = dict[str, float]


def start(command: list[str], environment: dict[str, str]) -> Figures:
    """Start a server, ask it once, look at its size, and stop it."""
    port = _free_port()
    arguments = [part.replace("{port}", str(port)) for part in command]
    client = Client(f"http://127.0.0.1:{port}/mcp", keep_alive=True, deadline=time.monotonic() + PATIENCE)
    began = time.perf_counter()
    process = subprocess.Popen(
        arguments, env=os.environ | environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait(port, process, began)
        client.initialize()
        answered = time.perf_counter() - began
        client.pause()
        time.sleep(SETTLE)
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        return {"ms": answered * 1e3, "rss": float(sum(member.memory_info().rss for member in family))}
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(port: int, process: subprocess.Popen[bytes], began: float) -> None:
    while time.perf_counter() - began < PATIENCE and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
        try:
            connection.connect()
        except OSError:
            time.sleep(POLL)
        else:
            return
        finally:
            connection.close()
    raise BenchError(f"it does not listen within {PATIENCE:g} s, or has ended")


def imported(name: str, python: str) -> float | None:
    """Milliseconds that importing the library takes, beyond those of an empty interpreter; None for other languages."""
    module = next((module for prefix, module in IMPORTS.items() if name.startswith(prefix)), None)
    if module is None:
        return None

    def run(code: str) -> float:
        began = time.perf_counter()
        subprocess.run([python, "-c", code], check=True, capture_output=True)
        return (time.perf_counter() - began) * 1e3

    return run(f"import {module}") - run("pass")


def page(found: dict[str, Figures], skipped: dict[str, str], rounds: int) -> list[str]:
    """The page."""
    rows = [
        (
            name,
            f"{row['ms']:,.0f}",
            f"{row['import_ms']:,.0f}" if "import_ms" in row else "-",
            f"{row['rss'] / 2**20:.1f}",
        )
        for name, row in found.items()
    ]
    return [
        "# Start-up",
        "",
        f"{taken()} Medians of {rounds} interleaved rounds. The first answer is to `initialize`, from the start",
        "of the process; the import is that of the library alone; RSS is that of an idle server after one answer.",
        "",
        "![start-up](startup.png)",
        "",
        *table(("server", "first answer, ms", "import, ms", "RSS idle, MiB"), rows),
        "",
        *(f"- Skipped: {name}: {reason}" for name, reason in skipped.items()),
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; 0 when figures were written, 1 when there are none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="two rounds")
    add("--rounds", type=int, default=7, help="how often each is started, up to 50 (%(default)s)")
    add("--only", action="append", choices=PEERS, help="measure these only")
    add("--out", type=Path, default=Path("bench/results"), help="where the results go (%(default)s)")
    options = parser.parse_args(arguments)
    rounds = 2 if options.quick else options.rounds
    if not 1 <= rounds <= 50:
        parser.error("--rounds is from 1 to 50")
    console = Console(stderr=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the server is stopped then, too
    skipped: dict[str, str] = {}
    commands: dict[str, list[str]] = {}
    seen: dict[str, list[Figures]] = {}
    try:
        with Progress(*COLUMNS, console=console) as progress:
            names = options.only or PEERS
            task = progress.add_task("installing", total=len(names))
            for name in names:
                try:
                    commands[name] = PEERS_BY_NAME[name].prepare()
                    start(commands[name], PEERS_BY_NAME[name].environment)
                    seen[name] = []
                except (MissingError, BenchError) as exc:
                    skipped[name] = str(exc)
                    console.print(f"skipped {name}: {exc}", style="yellow", markup=False, soft_wrap=True)
                progress.advance(task)
            task = progress.add_task("starting", total=rounds * len(seen))
            for _ in range(rounds):
                for name, rows in seen.items():
                    row = start(commands[name], PEERS_BY_NAME[name].environment)
                    python = shutil.which(commands[name][0]) or commands[name][0]
                    took = imported(name, python)
                    rows.append(row if took is None else row | {"import_ms": took})
                    progress.advance(task)
    except BenchError as exc:
        console.print(f"startup.py: {exc}", style="red", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        return 130
    if not seen:
        return 1
    found = {name: {key: statistics.median(row[key] for row in rows) for key in rows[0]} for name, rows in seen.items()}
    text = write(options.out, "startup", page(found, skipped, rounds), found)
    figure = Figure(figsize=(11, 0.5 * len(found) + 1.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    bars(left, {name: row["ms"] for name, row in found.items()}, "ms to the first answer", "{:,.0f}")
    bars(right, {name: row["rss"] / 2**20 for name, row in found.items()}, "MiB of RSS, idle", "{:,.0f}")
    figure.savefig(options.out / "startup.png", dpi=120, metadata={"Software": None})
    Console().print(Markdown(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
