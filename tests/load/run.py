"""The load: processes of clients that come and go, some of them suddenly, and what the server is like before and after.

    warm up -> rest -> first look -> load -> rest -> second look

The warm-up is the same load for a shorter time: what a process takes once, for so many clients, is no wear.
"""

import json
import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from tests.harness import process
from tests.load.clients import ANSWER_WITHIN, Orders, Outcome, run
from tests.load.vitals import Observed, Vitals
from tests.processes import free_port
from tests.stores.redis_server import server

IDLE: Final = 8.0
OPTIONS: Final = (
    *("--session-idle", f"{IDLE:g}s", "--initialization-timeout", f"{IDLE:g}s"),
    *("--heartbeat", "2s", "--write-timeout", "4s", "--drain-timeout", "2s"),
)
WORKERS: Final = 2
RESTS_WITHIN: Final = ANSWER_WITHIN + IDLE + 30.0
"""Seconds after the last client: its question is given up, its session expires, leases and events with them."""
ENDS_WITHIN: Final = 90.0
_EVERY: Final = 0.5


@dataclass
class Report:
    """What came of it."""

    front: str
    store: str
    clients: int
    seconds: float
    outcomes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By era, action and outcome."""
    left: Counter[str] = field(default_factory=Counter)
    """How clients have left."""
    wrong: list[str] = field(default_factory=list)
    """What must not happen."""
    looks: list[Vitals] = field(default_factory=list)
    """At rest: before and after."""
    latencies: list[tuple[float, float]] = field(default_factory=list)
    peak: dict[str, int] = field(default_factory=dict)
    """The most there was at one time."""

    def saw(self, vitals: Vitals) -> None:
        """It was so at one moment."""
        for name, number in (vitals.held | {"memory": vitals.memory}).items():
            self.peak[name] = max(self.peak.get(name, 0), number)

    def answered(self, action: str) -> int:
        return sum(number for key, number in self.outcomes.items() if key[1:] == (action, "answered"))

    @property
    def growth(self) -> int:
        """Bytes of memory that the load has left."""
        before, after = self.looks
        return after.memory - before.memory

    def lines(self) -> Iterator[str]:
        """As Markdown."""
        total = Counter[str]()
        for (_, _, outcome), number in self.outcomes.items():
            total[outcome] += number
        yield (
            f"{self.clients} clients, {self.seconds:g} s, store {self.store}, front {self.front}: "
            f"{total.total():,} calls, " + ", ".join(f"{number:,} {what}" for what, number in sorted(total.items()))
        )
        yield "Clients left: " + ", ".join(f"{number:,} {how}" for how, number in sorted(self.left.items()))
        yield ""
        yield from self._held()
        yield ""
        yield from self._calls(sorted(total))
        for each in self.wrong[:50]:
            yield f"WRONG: {each}"

    def _held(self) -> Iterator[str]:
        before, after = self.looks
        yield "| | before | at most | after |"
        yield "| --- | ---: | ---: | ---: |"
        for name, number in before.held.items():
            yield f"| {name.replace('_', ' ')} | {number} | {self.peak.get(name, '')} | {after.held[name]} |"
        memory = [before.memory, self.peak.get("memory", 0), after.memory]
        yield f"| memory (RSS, MiB) | {' | '.join(f'{size / 2**20:.1f}' for size in memory)} |"
        for index, what in enumerate(("median", "99th percentile")):
            first, last = (latency[index] * 1000 for latency in self.latencies)
            yield f"| a call alone (ms, {what}) | {first:.2f} | | {last:.2f} |"

    def _calls(self, outcomes: list[str]) -> Iterator[str]:
        yield f"| | {' | '.join(outcomes)} |"
        yield f"| --- |{' ---: |' * len(outcomes)}"
        for mode, action in sorted({key[:2] for key in self.outcomes}, key=lambda key: key[::-1]):
            numbers = (self.outcomes[mode, action, outcome] or "" for outcome in outcomes)
            yield f"| {action}, {mode} | {' | '.join(map(str, numbers))} |"


class _Crowd:
    """Processes of clients."""

    def __init__(self, orders: Orders, processes: int) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([run.__module__])  # or each would import the SDK, for seconds
        self._orders = orders
        self._alive: list[BaseProcess] = []
        self._started = 0
        for _ in range(processes):
            self._start()

    def _start(self) -> None:
        backend = ("trio", "asyncio")[self._started % 2]
        orders = self._orders._replace(number=self._started, backend=backend)
        started = self._context.Process(target=run, args=(orders,), daemon=True)
        started.start()
        self._alive.append(started)
        self._started += 1

    def kill_one(self, chance: random.Random, *, stopped: float) -> int:
        """Kill one, *stopped* for its last seconds; another one comes in its place. Says how many clients it had."""
        victim = self._alive.pop(chance.randrange(len(self._alive)))
        assert victim.pid is not None
        if stopped:
            os.kill(victim.pid, signal.SIGSTOP)
            time.sleep(stopped)
        victim.kill()
        victim.join()
        self._start()
        return self._orders.clients

    def wait(self, report: Report) -> None:
        """Until the last call has ended."""
        deadline = time.monotonic() + ENDS_WITHIN
        for each in self._alive:
            each.join(max(0.0, deadline - time.monotonic()))
            if each.exitcode is None:
                report.wrong.append(f"clients are still waiting {ENDS_WITHIN:g} s after their last call began")
            elif each.exitcode:
                report.wrong.append(f"a process of clients ended with {each.exitcode}")

    def end(self) -> None:
        for each in self._alive:
            each.kill()
            each.join()


@contextmanager
def _crowd(orders: Orders, processes: int) -> Generator[_Crowd]:
    crowd = _Crowd(orders, processes)
    try:
        yield crowd
    finally:
        crowd.end()


def load(
    seconds: float,
    seed: str,
    *,
    front: str,
    store: str,
    clients: int,
    processes: int,
    warm_up: float,
    rate: float,
    tell: Callable[[str, float, Vitals], object] = lambda phase, done, vitals: None,
) -> Report:
    """Load a server of its own, and say what is left of it.

    *rate* is how many calls a second all clients make together; *tell* hears of what goes on: the phase, how much of
    it is over, and what the server has.
    """
    report = Report(front, store, clients, seconds)
    chance = random.Random(seed)
    with ExitStack() as stack:
        options = list(OPTIONS)
        redis = None
        if store == "redis":
            redis = stack.enter_context(server())
            options += ["--store", f"redis://{redis.address}/0?event_keep=5", "--workers", str(WORKERS)]
        inside = free_port()
        options += ["--front", front, "--metrics-port", str(inside)]
        served = stack.enter_context(process("tests.load.app:server", *options, code=0))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        observed = Observed(served, inside, redis)

        def go(phase: str, lasting: float) -> None:
            log = Path(folder, phase)
            until = time.monotonic() + lasting
            orders = Orders(served.url, 0, clients // processes, f"{seed} {phase}", until, clients / rate, "", log)
            with _crowd(orders, processes) as crowd:
                for done in _disturb(crowd, report, lasting, chance):
                    vitals = observed.vitals()
                    report.saw(vitals)
                    tell(phase, done, vitals)
                crowd.wait(report)
            for line in log.read_text().splitlines():
                outcome = Outcome(*json.loads(line))
                if outcome.outcome == "left":
                    report.left[outcome.action] += 1
                    continue
                report.outcomes[outcome.mode, outcome.action, outcome.outcome] += 1
                if outcome.outcome == "failed":
                    report.wrong.append(f"{phase}: {outcome}")

        def look(as_before: Vitals | None = None) -> Vitals:
            tell("rest", 0.0, observed.vitals())
            observed.rest(RESTS_WITHIN, as_before=as_before)
            report.latencies.append(observed.latency())
            observed.give_back()
            report.looks.append(observed.rest(RESTS_WITHIN, as_before=as_before))
            return report.looks[-1]

        go("warm-up", warm_up)
        before = look()
        go("load", seconds)
        after = look(before)
        for name, number in after.held.items():
            if number != before.held[name]:
                report.wrong.append(f"{name}: {before.held[name]} before, {number} after")
        report.wrong += [line for line in served.stderr.splitlines() if " ERROR " in line or "Traceback" in line]
    return report


def _disturb(crowd: _Crowd, report: Report, seconds: float, chance: random.Random) -> Iterator[float]:
    """Kill a process of clients now and then; in between, say how much of the time is over."""
    began = time.monotonic()
    next_kill = began + min(seconds / 3, chance.uniform(4, 12))
    while (now := time.monotonic()) < began + seconds:
        yield (now - began) / seconds
        if now > next_kill:
            stopped = chance.choice([0.0, chance.uniform(1, 5)])
            how = "stopped and killed with their process" if stopped else "killed with their process"
            report.left[how] += crowd.kill_one(chance, stopped=stopped)
            next_kill = time.monotonic() + chance.uniform(4, 12)
        time.sleep(_EVERY)
