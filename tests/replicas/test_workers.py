"""``mcpd serve --workers N``: several processes on one port, and their parent."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import AbstractContextManager

import psutil
import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from tests.harness import Client, ConnectionLost, Process, process
from tests.harness.process import ROOT
from tests.replicas.group import APP
from tests.stores.redis_server import RedisServer, until


def workers(
    redis: RedisServer, *options: str, code: int | None = 0, number: int = 3
) -> AbstractContextManager[Process]:
    return process(APP, "--store", redis.url(), "--workers", str(number), *options, code=code)


def children(parent: Process) -> set[int]:
    return {child.pid for child in psutil.Process(parent.pid).children()}


async def pids(client: Client, number: int) -> Counter[int]:
    """Who serves so many calls that are made at the same time."""
    found: Counter[int] = Counter()

    async def one() -> None:
        found[int((await client.call("pid")).text)] += 1

    async with trio.open_nursery() as nursery:
        for _ in range(number):
            nursery.start_soon(one)
    return found


async def all_serve(client: Client, expected: set[int]) -> None:
    seen: set[int] = set()
    with trio.fail_after(15):
        while seen != expected:
            seen |= (await pids(client, 30)).keys()
            assert seen <= expected


async def all_up(parent: Process, number: int = 3) -> set[int]:
    """The workers, once each of them serves: the first to listen makes the start-up line."""
    await until(lambda: len(children(parent)) == number, within=10)
    found = children(parent)
    await all_serve(parent, found)
    return found


async def test_all_serve_and_one_that_dies_is_replaced(redis_server: RedisServer) -> None:
    with workers(redis_server) as parent:
        first = await all_up(parent)
        session = await parent.initialize()
        assert [(await session.call("count")).text for _ in range(9)] == [str(n) for n in range(1, 10)]
        victim = min(first)
        os.kill(victim, signal.SIGKILL)
        await until(lambda: len(children(parent) - first) == 1, within=10)
        assert victim not in children(parent)
        assert "A worker ended with status -9" in parent.stderr
        await all_serve(parent, children(parent))
        assert (await session.call("count")).text == "10"
    assert not any(psutil.pid_exists(pid) for pid in first)


async def test_questions_can_be_answered_at_any_worker_without_a_setting(redis_server: RedisServer) -> None:
    capabilities = {"elicitation": {}}
    answer = {"action": "accept", "content": {"name": "Ada"}}
    with workers(redis_server) as parent:
        assert "MCPD_STATE_KEYS" not in parent.stderr

        async def one() -> None:
            params = {"name": "ask_twice", "arguments": {}, "inputResponses": {"first": answer}}
            told = (await parent.modern("tools/call", params, capabilities=capabilities)).result
            params |= {"requestState": told["requestState"], "inputResponses": {"last": answer}}
            last = (await parent.modern("tools/call", params, capabilities=capabilities)).result
            assert last["content"][0]["text"] == "Ada Ada"

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(one)


async def test_metrics_are_those_of_all_workers(redis_server: RedisServer) -> None:
    with workers(redis_server) as parent:
        await all_up(parent)
        for _ in range(6):
            await parent.initialize()
        pages = [(await parent.request("GET", "/metrics")).body.decode() for _ in range(5)]
        for page in pages:
            families = list(text_string_to_metric_families(page))
            assert len({family.name for family in families}) == len(families)
            samples = [(s.name, *sorted(s.labels.items())) for family in families for s in family.samples]
            assert len(set(samples)) == len(samples)
            created = [s.value for f in families for s in f.samples if s.name == "mcpd_sessions_created_total"]
            assert created == [6.0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_all_workers(redis_server: RedisServer, number: signal.Signals) -> None:
    answers: list[str] = []
    with workers(redis_server) as parent:
        session = await parent.initialize()

        async def one(text: str) -> None:
            answers.append((await session.call("echo", {"text": text, "seconds": 1.5})).text)

        async with session.get() as stream, trio.open_nursery() as nursery:
            await stream.event()
            for each in "abcdef":
                nursery.start_soon(one, each)
            await trio.sleep(0.7)  # they have begun, in whichever worker
            parent.signal(number)
            assert await stream.rest(within=3) == []
        assert sorted(answers) == list("abcdef")
        assert await trio.to_thread.run_sync(parent.wait) == 0


async def test_a_second_signal_ends_all_at_once(redis_server: RedisServer) -> None:
    with workers(redis_server, code=-signal.SIGTERM) as parent:
        everybody = await all_up(parent)
        session = await parent.initialize()
        async with session.open_call("hold", {"label": "x"}, progress=1) as call:
            await call.message()
            parent.signal(signal.SIGTERM)
            await until(lambda: "SIGTERM: draining" in parent.stderr)
            began = trio.current_time()
            parent.signal(signal.SIGTERM)
            with pytest.raises(ConnectionLost):
                await call.rest(within=3)
            assert await trio.to_thread.run_sync(parent.wait) == -signal.SIGTERM
            assert trio.current_time() - began < 3
    assert not any(psutil.pid_exists(pid) for pid in everybody)


async def test_a_parent_that_is_killed_leaves_no_worker_behind(redis_server: RedisServer) -> None:
    with workers(redis_server, code=-signal.SIGKILL) as parent:
        everybody = await all_up(parent)
        session = await parent.initialize()
        async with (
            session.get() as stream,
            session.open_call("spell", {"word": "abc", "pause": 0.5}, progress=1) as call,
        ):
            await stream.event()
            await call.message()
            parent.signal(signal.SIGKILL)
            # They drain as if they had been told to: streams end, and what has begun comes to its end.
            assert await stream.rest(within=3) == []
            assert (await call.rest(within=5))[-1]["result"]["content"][0]["text"] == "abc"
        await until(lambda: not any(map(psutil.pid_exists, everybody)), within=10)
        assert parent.stderr.count("The process that started this worker is gone: draining") == 3
        # Nobody keeps the port.
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(parent.address)


def test_a_signal_during_the_start_ends_it(redis_server: RedisServer) -> None:
    command = [
        sys.executable,
        "-m",
        "mcpd",
        "serve",
        APP,
        "--port",
        "0",
        "--workers",
        "2",
        "--store",
        redis_server.url(),
    ]
    popen = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        assert popen.stderr is not None
        while "2 workers" not in popen.stderr.readline():
            pass
        # The workers are being started: they do not listen to signals yet.
        popen.terminate()
        assert popen.wait(15) == 0
    finally:
        popen.kill()
        popen.wait()
        popen.communicate()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--store", "memory"], "mcpd: 3 workers need a store that processes share, such as --store redis"),
        (["--max-sessions", "0"], "mcpd: max_sessions must be at least 1, not 0"),
        (["--state-keys", "short"], "mcpd: state_keys: A state key needs at least 16 characters"),
        (["--store", "redis://127.0.0.1:1/"], "mcpd: Cannot connect to redis://127.0.0.1:1/"),
        (["--auth-tokens", "/nowhere"], "mcpd: "),
    ],
)
def test_what_cannot_work_is_said_once(options: list[str], said: str, redis_server: RedisServer) -> None:
    command = [sys.executable, "-m", "mcpd", "serve", "--port", "0", "--workers", "3", "--store", redis_server.url()]
    began = time.monotonic()
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=30, check=False)
    lines = [line for line in done.stderr.splitlines() if "WARNING" not in line]
    assert (done.returncode, done.stdout, len(lines)) == (2, "", 1), done.stderr
    assert lines[0].startswith(said)
    assert time.monotonic() - began < 15


def test_a_port_that_is_taken_is_said_once(redis_server: RedisServer) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [
            sys.executable,
            "-m",
            "mcpd",
            "serve",
            "--port",
            port,
            "--workers",
            "3",
            "--store",
            redis_server.url(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (2, f"mcpd: Cannot listen on 127.0.0.1:{port}: Address already in use\n")


async def test_logs_of_workers_are_lines_of_their_own(redis_server: RedisServer) -> None:
    with workers(redis_server, "--log-format", "json", number=2) as parent:
        await all_up(parent, 2)
        parent.signal(signal.SIGTERM)
        assert await trio.to_thread.run_sync(parent.wait) == 0
        said = parent.stderr
    logged = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert len([each for each in logged if "draining" in each["message"]]) == 2
