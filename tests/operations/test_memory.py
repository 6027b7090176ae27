"""The limit on memory: handles and tasks stop at it, and sessions give way, before the process does."""

import os
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import httpx
import pytest
import trio

from mcpd import Server, ToolError
from mcpd.memory import HIGH_WATER, MemoryGuard, cgroup_limit
from mcpd_stores.memory import MemoryStore
from tests.harness import rpc, serving
from tests.harness.process import process
from tests.operations.pages import Page, read
from tests.server.replica import running
from tests.stores.redis_server import RedisServer, program
from tests.tasks.jobs import TASKS, begin, served, until

MIB = 1 << 20
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


class Memory:
    """What the process is said to use."""

    def __init__(self) -> None:
        self.used = 10 * MIB

    def __call__(self) -> int:
        return self.used


async def test_near_the_limit_the_oldest_idle_sessions_give_way(autojump_clock):
    memory = Memory()
    guard = MemoryGuard(100 * MIB, used=memory)
    records = MemoryStore().records("session", capacity=1000)
    for number in range(100):
        await records.create(f"s{number}", b"", ttl=10_000.0)
        await trio.sleep(1.0)
    busy = {"s0", "s1"}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(guard.run, records, busy)
        await trio.sleep(10)
        assert (await records.count(), guard.pressed) == (100, False)
        memory.used = int(100 * MIB * HIGH_WATER) + 1
        await trio.sleep(1.0)
        assert (await records.count(), guard.pressed) == (90, True)
        left = [number for number in range(100) if await records.load(f"s{number}", ttl=10_000.0) is not None]
        assert left == [0, 1, *range(12, 100)], "busy ones stay, and of the others the oldest go"
        # It is patient: what was freed has to show before more is taken.
        await trio.sleep(1.0)
        assert await records.count() == 90
        await trio.sleep(60.0)
        assert await records.count() < 40
        memory.used = 50 * MIB
        await trio.sleep(4.0)
        kept = await records.count()
        assert not guard.pressed
        await trio.sleep(60.0)
        assert await records.count() == kept
        nursery.cancel_scope.cancel()


async def test_new_sessions_are_refused_and_old_ones_go_on(autojump_clock, front):
    memory = Memory()
    async with serving(Server("s"), front=front, memory_limit=100 * MIB) as http:
        sessions = http.endpoint.sessions
        assert sessions.memory.limit == 100 * MIB
        sessions.memory._used = memory
        await trio.sleep(5.0)  # until it no longer goes by the size of this process
        session = await http.initialize()
        idle = [await http.initialize() for _ in range(19)]
        async with session.get():
            await trio.sleep(1.0)
            memory.used = 95 * MIB
            await trio.sleep(30.0)
            assert (await session.post("ping")).status == 200, "a session in use is spared"
        response = await http.request("POST", json=rpc("initialize", INITIALIZE, id=7))
        assert response.status == 503
        assert response.headers["retry-after"] == "5"
        assert response.error["code"] == -32603
        assert response.answer["id"] == 7
        assert (await idle[0].post("ping")).status == 404
        assert (await http.modern("tools/list")).status == 200, "who needs no session is served"
        page = await read(http.endpoint)
        assert page("mcpd_sessions_rejected_total", reason="memory") == 1
        assert page("mcpd_sessions_ended_total", reason="evicted") == 20 - page("mcpd_sessions_active")
        memory.used = 20 * MIB
        await trio.sleep(5.0)
        await http.initialize()


async def test_near_the_limit_no_handle_is_made_and_none_grows():
    memory = Memory()
    async with running(Server("s"), memory_limit=100 * MIB) as replica:
        replica.core.memory._used = memory
        handles = replica.core.handles.of(None)
        small, large = await handles.create("x"), await handles.create("x" * 10_000)
        memory.used = 81 * MIB
        with pytest.raises(ToolError, match="short of memory for handles"):
            for _ in range(10):  # a percent of the limit may come unseen
                await handles.create("x" * 200_000)
        with pytest.raises(ToolError, match="short of memory for a larger value"):
            await handles.set(large, "x" * 10_001)
        await handles.set(large, "y" * 10_000)
        await handles.set(small, "y" * 1_000)
        assert await handles.get(large) == "y" * 10_000
        memory.used = 79 * MIB
        await handles.create("x" * 200_000)


def reports() -> Server:
    server = Server("reports")

    @server.tool(task="required")
    async def report(size: int) -> str:
        await trio.sleep(1)
        return "x" * size

    return server


async def test_near_the_limit_no_task_begins_and_no_large_result_is_kept(autojump_clock):
    memory = Memory()
    async with served(reports(), memory_limit=100 * MIB) as http:
        http.endpoint.core.memory._used = memory
        small = (await begin(http, "report", {"size": 100}))["taskId"]
        large = (await begin(http, "report", {"size": 2 * MIB}))["taskId"]
        memory.used = 81 * MIB
        assert (await until(http, small, "completed"))["result"]["content"][0]["text"] == "x" * 100
        told = await until(http, large, "failed")
        assert told["error"]["code"] == -32603
        assert "short of memory" in told["error"]["message"]
        response = await http.call("report", {"size": 1}, capabilities=TASKS)
        assert (response.status, response.error["code"]) == (503, -32603)
        assert "short of memory" in response.error["message"]
        await http.initialize()  # a session can give way again
        memory.used = 10 * MIB
        large = (await begin(http, "report", {"size": 2 * MIB}))["taskId"]
        await until(http, large, "completed")


@contextmanager
def control_group(limit: int) -> Generator[list[str]]:
    """What runs a command in a control group of its own, below this process's, which may have *limit* bytes."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    found = {name: path for _, names, path in lines for name in names.split(",")}
    kind, name = ("memory", "memory.limit_in_bytes") if "memory" in found else ("", "memory.max")
    group = Path("/sys/fs/cgroup", kind, found.get(kind, "").lstrip("/"), f"mcpd-test-{os.getpid()}")
    try:
        group.mkdir()
        (group / name).write_text(str(limit))
    except OSError as exc:
        if group.exists():
            group.rmdir()
        pytest.skip(f"no control group can be made here: {exc}")
    try:
        yield ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group)]
    finally:
        group.rmdir()


@pytest.mark.parametrize("by", ["setting", "control group"])
def test_a_flood_of_sessions_does_not_kill_a_small_process(front, by):
    """With a large clientInfo each, far more than fits; the process refuses, lives, and its memory stays below."""
    limit = 96 * MIB
    options = ["--front", front, "--max-sessions", "1000000", "--session-idle", "1h"]
    wide = INITIALIZE | {"clientInfo": {"name": "x" * 32_000, "version": "1"}}
    statuses: dict[int, int] = {}
    with ExitStack() as stack:
        if by == "setting":
            served = stack.enter_context(process(None, *options, "--memory-limit", str(limit)))
        else:
            # The kernel kills it at the limit, and not a byte later.
            served = stack.enter_context(process(None, *options, through=stack.enter_context(control_group(limit))))
        client = stack.enter_context(httpx.Client(timeout=30))
        most = base = served.rss()
        assert base < limit * HIGH_WATER, f"{base >> 20} MiB at its start: the limit is too small for this test"
        headers = {"Accept": "application/json, text/event-stream"}
        for number in count():
            response = client.post(served.url, headers=headers, json=rpc("initialize", wide, id=number))
            statuses[response.status_code] = statuses.get(response.status_code, 0) + 1
            most = max(most, served.rss()) if number % 50 == 0 else most
            if statuses.get(503, 0) >= 100 or number > 20_000:
                break
        time.sleep(1.0)  # the guard looks twice a second
        assert served.popen.poll() is None
        assert statuses.keys() == {200, 503}
        assert statuses[200] * 32_000 > (limit * HIGH_WATER - base) * 0.5, "it was refused too early"
        assert most < limit * 1.05
        page = Page(client.get(served.url.removesuffix("/mcp") + "/metrics").text)
        assert page("mcpd_sessions_rejected_total", reason="memory") == statuses[503]
        assert page("mcpd_sessions_ended_total", reason="evicted") > 0
        assert client.get(served.url.removesuffix("/mcp") + "/ready").status_code == 200
        assert "no new sessions" in served.stderr


def test_workers_share_the_limit(tmp_path):
    """Each has its part of what the parent leaves: here too little for a session, where one process has enough."""
    limit = ["--memory-limit", str(160 * MIB)]
    redis = RedisServer(program("redis-server"), str(tmp_path))
    redis.start()
    headers = {"Accept": "application/json, text/event-stream"}
    try:
        for number, status in ((1, 200), (4, 503)):
            options = [*limit, "--workers", str(number), "--store", redis.url(), "--state-keys", "k" * 32]
            with process(None, *options) as served:
                response = httpx.post(served.url, headers=headers, json=rpc("initialize", INITIALIZE, id=1), timeout=60)
                assert response.status_code == status, response.text
                page = Page(httpx.get(served.url.removesuffix("/mcp") + "/metrics", timeout=60).text)
                assert page("mcpd_sessions_rejected_total", reason="memory") == (status == 503)
    finally:
        redis.kill()


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/\n", {"memory.max": "268435456"}, 256 * MIB),
        ("0::/\n", {"memory.max": "max"}, None),
        # A service of systemd, below a slice that has less.
        ("0::/a.slice/b.service\n", {"a.slice/memory.max": "1048576", "a.slice/b.service/memory.max": "2097152"}, MIB),
        ("0::/a.slice/b.service\n", {"a.slice/memory.max": "max", "a.slice/b.service/memory.max": "2097152"}, 2 * MIB),
        ("4:memory:/docker/ab\n1:cpu:/x\n0::/\n", {"memory/memory.limit_in_bytes": "1048576"}, MIB),
        ("4:cpu,memory:/x\n", {"memory/x/memory.limit_in_bytes": "9223372036854771712"}, None),
        ("", {}, None),
    ],
)
def test_the_limit_is_the_least_of_its_control_groups(tmp_path, groups, files, limit):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert cgroup_limit(tmp_path) == limit
