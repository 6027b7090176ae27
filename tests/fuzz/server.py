"""Hostile messages to real servers, on both fronts at once, for as long as you like.

    python -m tests.fuzz.server --minutes 60 [--clients 6] [--seed 1] [--report fuzz.md]

Each client mixes eras, mutates valid messages by their structure, and goes away at any time. At the end the servers
must hold what they held at the start: tasks, descriptors, sessions; memory must not have gone on growing; and no log
may have a traceback. Exit status 1 if something is wrong; the Markdown report has it all.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import psutil
import trio
from prometheus_client.parser import text_string_to_metric_families

from tests.fuzz.clients import Fuzzer, Outcomes
from tests.harness import FRONTS, Process, process

APP: Final = "tests.fuzz.app:server"
OPTIONS: Final = [
    *("--session-idle", "5s", "--initialization-timeout", "3s", "--task-ttl", "5s", "--header-timeout", "5s"),
    *(
        "--body-timeout",
        "5s",
        "--stream-after",
        "0.2s",
        "--max-sessions",
        "500",
        "--heartbeat",
        "1s",
        "--log-level",
        "warning",
    ),
]
SETTLES_WITHIN: Final = 60.0
"""Seconds after the last client has gone within which a server must be as it was at its start."""
_MIB: Final = 1024 * 1024
_JUDGED_FROM: Final = 30.0
"""Minutes that a run must take before its memory is judged. Streams that have ended are kept for five minutes, so only
then has all that is kept come to its size in the second quarter."""
_ALLOWED: Final = 4 * _MIB


class Held(NamedTuple):
    """What a server holds."""

    tasks: int
    descriptors: int
    sessions: int
    calls: int
    streams: int
    rss: int


class Target:
    """One server under fire."""

    def __init__(self, front: str, served: Process) -> None:
        self.front = front
        self.served = served
        self.outcomes = Outcomes()
        self.before: Held | None = None
        self.after: Held | None = None
        self.rss: list[tuple[float, int]] = []
        """Bytes, by seconds since the start."""

    async def held(self) -> Held:
        """Ask it."""
        response = await self.served.request("GET", "/metrics")
        values: dict[str, float] = {}
        for family in text_string_to_metric_families(response.body.decode()):
            for sample in family.samples:
                values[sample.name] = values.get(sample.name, 0.0) + sample.value
        return Held(
            tasks=int(values["mcpd_trio_tasks"]),
            descriptors=psutil.Process(self.served.pid).num_fds(),
            sessions=int(values["mcpd_sessions_active"]),
            calls=int(values["mcpd_calls_in_flight"]),
            streams=int(values["mcpd_streams_open"]),
            rss=self.served.rss(),
        )

    async def at_rest(self) -> Held:
        """What it holds when all that clients have left has ended or expired."""
        with trio.fail_after(SETTLES_WITHIN):
            while (held := await self.held())[2:5] != (0, 0, 0):  # noqa: ASYNC110 - another process's
                await trio.sleep(0.2)
        return held

    async def settle(self) -> None:
        """Wait until it holds what it held at the start; if it does not come to that, it is wrong."""
        assert self.before is not None
        with trio.move_on_after(SETTLES_WITHIN):
            while True:
                self.after = await self.held()
                if self.after[1:5] == self.before[1:5] and self.after.tasks <= self.before.tasks:
                    return
                await trio.sleep(0.2)
        self.outcomes.wrong.append(f"it does not settle: {self.after}, at the start {self.before}")

    def growth(self) -> tuple[float, int] | None:
        """MiB an hour over the second half of the run, and by how many bytes its last quarter is above its second."""
        if len(self.rss) < 8:
            return None
        half = self.rss[len(self.rss) // 2 :]
        slope, _ = statistics.linear_regression([when for when, _ in half], [size for _, size in half])
        quarter = len(self.rss) // 4
        sizes = [size for _, size in self.rss]
        return slope * 3600 / _MIB, min(sizes[-quarter:]) - min(sizes[quarter : 2 * quarter])

    def judge(self, minutes: float) -> None:
        """Look at what only the end shows."""
        log = self.served.stderr
        if "Traceback" in log or " ERROR " in log:
            self.outcomes.wrong.append("its log has errors: " + log[max(0, log.find("Traceback") - 500) :][:5000])
        grown = self.growth()
        if grown is not None and minutes >= _JUDGED_FROM and grown[1] > _ALLOWED + self.rss[len(self.rss) // 2][1] / 10:
            self.outcomes.wrong.append(
                f"its memory grows: {grown[1] / _MIB:.1f} MiB from the second quarter to the last"
            )


async def fuzz(
    targets: list[Target], seconds: float, clients: int, seed: int, advance: Callable[[float], None]
) -> None:
    """Let so many clients at each of the servers."""
    began = trio.current_time()
    for target in targets:
        # What is imported at first use is no growth.
        warm = Fuzzer(target.served, Outcomes(), random.Random(0))
        await warm.run(trio.current_time() + min(2.0, seconds / 4))
    for target in targets:
        target.before = await target.at_rest()
    until = trio.current_time() + max(seconds - (trio.current_time() - began), seconds / 2)

    async def watch() -> None:
        started = trio.current_time()
        while trio.current_time() < until:
            for target in targets:
                target.rss.append((trio.current_time() - started, target.served.rss()))
            advance((trio.current_time() - began) / seconds)
            await trio.sleep(min(10.0, seconds / 100))

    async with trio.open_nursery() as nursery:
        for place, target in enumerate(targets):
            for number in range(clients):
                source = random.Random(f"{seed} {place} {number}")
                nursery.start_soon(Fuzzer(target.served, target.outcomes, source).run, until)
        nursery.start_soon(watch)
    for target in targets:
        target.served.close_connections()
        await target.settle()
        target.judge(seconds / 60)


@contextmanager
def servers(fronts: list[str]) -> Generator[list[Target]]:
    """A server on each of the fronts."""
    with ExitStack() as stack:
        yield [
            Target(front, stack.enter_context(process(APP, "--front", front, *OPTIONS, allow_traceback=True)))
            for front in fronts
        ]


def page(targets: list[Target], minutes: float, seed: int) -> str:
    """The report."""
    lines = [
        "# Hostile messages to real servers",
        "",
        f"{minutes:g} minutes, seed {seed}, {time.strftime('%Y-%m-%d')}.",
        "",
    ]
    for target in targets:
        outcomes = target.outcomes
        lines += [f"## {target.front}", "", "| what | before | after |", "| --- | ---: | ---: |"]
        for name, before, after in zip(Held._fields, target.before or (), target.after or (), strict=False):
            lines.append(f"| {name} | {before:,} | {after:,} |")
        grown = target.growth()
        if grown is not None:
            lines += [
                "",
                f"RSS: {grown[0]:+.2f} MiB an hour over the second half, {grown[1] / _MIB:+.2f} MiB from the second",
            ]
            lines[-1] += " quarter to the last."
        steps = ", ".join(f"{name} {number:,}" for name, number in outcomes.actions.most_common())
        lines += [
            "",
            f"{sum(outcomes.actions.values()):,} steps ({steps}); the slowest took {outcomes.slowest:.2f} s.",
            "",
        ]
        lines += ["| outcome | number |", "| --- | ---: |"]
        lines += [f"| {name} | {number:,} |" for name, number in sorted(outcomes.statuses.items())]
        lines += ["", f"**Wrong: {len(outcomes.wrong)}**", "", *(f"- `{each}`" for each in outcomes.wrong[:30]), ""]
    return "\n".join(lines)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (%(default)g)")
    parser.add_argument("--clients", type=int, default=6, help="clients of each server (%(default)s)")
    parser.add_argument("--front", choices=FRONTS, action="append", help="only this front")
    parser.add_argument(
        "--seed", type=int, default=None, help="to repeat a run, as far as two programs can; else a new one"
    )
    parser.add_argument("--report", type=Path, default=Path(".cache/fuzz/server.md"), help="where (%(default)s)")
    given = parser.parse_args()
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    console = Console(stderr=True)
    columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with servers(given.front or FRONTS) as targets, Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=1.0)

        def advance(done: float) -> None:
            steps = sum(sum(target.outcomes.actions.values()) for target in targets)
            wrong = sum(len(target.outcomes.wrong) for target in targets)
            progress.update(bar, completed=done, description=f"{steps:,} steps, {wrong} wrong")

        trio.run(fuzz, targets, given.minutes * 60, given.clients, seed, advance)
    text = page(targets, given.minutes, seed)
    given.report.parent.mkdir(parents=True, exist_ok=True)
    given.report.write_text(text, encoding="utf-8")
    Console().print(Markdown(text))
    console.print(f"The report is in {given.report}", markup=False)
    return 1 if any(target.outcomes.wrong for target in targets) else 0


if __name__ == "__main__":
    sys.exit(main())
