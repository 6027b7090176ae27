"""The metrics: exactly the names and labels that dashboards rely on, true counts, and as many series whoever calls."""

import random
import socket
import string
import time
from functools import partial

import pytest
import trio

from mcpd import Server, Settings, ToolError
from mcpd.endpoint.operations import Operations
from mcpd.errors import ProtocolError, StoreError
from mcpd.fronts.http import new_endpoint
from mcpd.fronts.siblings import merged
from mcpd.memory import MemoryGuard
from mcpd.metrics import Metrics
from mcpd.ports import Store
from mcpd_stores.memory import MemoryStore
from tests.harness import MODERN, modern_request, rpc, serving
from tests.operations.pages import read
from tests.stores.flaky import FlakyStore

NAMES = {
    "mcpd_sessions_active": set(),
    "mcpd_sessions_max": set(),
    "mcpd_sessions_created_total": set(),
    "mcpd_sessions_ended_total": {"reason"},
    "mcpd_sessions_rejected_total": {"reason"},
    "mcpd_calls_rejected_total": {"reason"},
    "mcpd_streams_rejected_total": {"reason"},
    "mcpd_tasks_rejected_total": {"reason"},
    "mcpd_handles_rejected_total": {"reason"},
    "mcpd_streams_open": {"kind"},
    "mcpd_calls_in_flight": set(),
    "mcpd_requests_total": {"era", "method", "outcome"},
    "mcpd_request_duration_seconds_bucket": {"era", "method", "le"},
    "mcpd_request_duration_seconds_count": {"era", "method"},
    "mcpd_request_duration_seconds_sum": {"era", "method"},
    "mcpd_tool_invocations_total": {"tool"},
    "mcpd_tool_invocation_failures_total": {"tool"},
    "mcpd_store_operation_duration_seconds_bucket": {"store", "operation", "le"},
    "mcpd_store_operation_duration_seconds_count": {"store", "operation"},
    "mcpd_store_operation_duration_seconds_sum": {"store", "operation"},
    "mcpd_store_up": set(),
    "mcpd_events_dropped_total": set(),
    "mcpd_trio_tasks": set(),
    "mcpd_loop_lag_seconds": set(),
    "mcpd_build_info": {"version", "python", "trio"},
}
REASONS = ["deleted", "expired", "evicted", "aborted", "shutdown"]


def new_server() -> Server:
    server = Server("counted", version="1")

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def wait(seconds: float) -> str:
        await trio.sleep(seconds)
        return "waited"

    @server.tool
    async def fail(how: str) -> str:
        raise {"tool": ToolError("no"), "protocol": ProtocolError(-32602, "no")}.get(how) or RuntimeError("no")

    @server.resource("note://{name}")
    async def note(name: str) -> str:
        return name

    @server.prompt
    async def ask(topic: str) -> str:
        return topic

    return server


async def test_has_exactly_the_names_and_labels_that_are_documented(autojump_clock, front):
    async with serving(new_server(), front=front) as http:
        session = await http.initialize()
        await session.call("echo", {"text": "hello"})
        with pytest.raises(AssertionError):
            _ = (await session.call("fail", {"how": "protocol"})).result
        page = await read(http.endpoint)
    found = {name: set(labels) for name, labels in page.labels.items() if name.startswith("mcpd_")}
    assert found == NAMES
    for name in ("process_resident_memory_bytes", "process_cpu_seconds_total", "python_gc_collections_total"):
        assert name in page.labels


async def test_the_series_are_the_same_whatever_clients_send(autojump_clock, front):
    choose = random.Random(6)

    def word() -> str:
        return "".join(choose.choices(string.ascii_letters, k=12))

    async def send_everything(names: dict[str, str]) -> None:
        """One of each kind of request; where *names* gives a name it is one that exists."""
        session = await http.initialize(names.get("version") or word())
        tool, prompt = names.get("tool") or word(), names.get("prompt") or word()
        for method, params in {
            "tools/call": {"name": tool, "arguments": {"text": word()}},
            "prompts/get": {"name": prompt, "arguments": {"topic": word()}},
            "resources/read": {"uri": f"note://{word()}"},
            "tools/list": {},
            "ping": {},
            names.get("method") or word(): {},
        }.items():
            await session.post(method, params)
            await session.send([rpc(method, params, id=1)])
            for version in (MODERN, word()):
                await http.modern(method, params, version=version, name=params.get("name") or params.get("uri"))
        headers = {"User-Agent": word(), "MCP-Protocol-Version": word(), "Mcp-Session-Id": word()}
        await http.request("POST", headers=headers, json=rpc(word(), {}, id=word()))
        await http.request(word().upper(), headers=headers)
        await http.request("POST", body=word().encode())
        await session.delete()

    async with serving(new_server(), front=front) as http:
        for method in ("tools/list", "initialize"):
            await send_everything({"tool": "echo", "prompt": "ask", "version": "2025-03-26", "method": method})
        await send_everything({})
        before = (await read(http.endpoint)).series
        for _ in range(50):
            await send_everything({})
        assert (await read(http.endpoint)).series == before


async def test_tools_that_come_and_go_leave_no_series(autojump_clock, front):
    server = new_server()
    async with serving(server, front=front) as http:
        await http.call("echo", {"text": "x"})
        await http.call("fail", {"how": "tool"})
        await http.call("ping")
        before = (await read(http.endpoint)).series
        meter = http.endpoint.core.meter
        for number in range(50):

            async def passing() -> str:
                raise ToolError("no")

            server.tool(passing, name=f"passing-{number}")
            await http.call(f"passing-{number}")
            page = await read(http.endpoint) if number == 20 else None
            assert page is None or page("mcpd_tool_invocation_failures_total", tool="passing-20") == 1
            server.remove_tool(f"passing-{number}")
            # Also where nobody reads the page.
            assert len(meter.tools) <= 3 + 1
        assert (await read(http.endpoint)).series == before
        assert set(meter.tools) == {"echo", "fail"}


async def test_counts_requests_by_what_became_of_them(autojump_clock, front):
    async with serving(new_server(), front=front) as http:
        session = await http.initialize()
        await session.call("echo", {"text": "hello"})
        await session.call("fail", {"how": "tool"})
        await session.post("prompts/get", {"name": "none"})
        await session.post("no/method")
        await http.call("echo", {"text": "hello"})
        await http.modern("no/method")
        await http.modern("server/discover")
        async with session.open_call("wait", {"seconds": 100}) as calling:
            await session.notify("notifications/cancelled", {"requestId": next(http.ids) - 1})
            assert await calling.rest() == []
        page = await read(http.endpoint)

    def requests(era: str, method: str, outcome: str) -> float:
        return page("mcpd_requests_total", era=era, method=method, outcome=outcome)

    assert requests("legacy", "initialize", "ok") == 1
    assert requests("legacy", "tools/call", "ok") == 2
    assert requests("legacy", "tools/call", "cancelled") == 1
    assert requests("legacy", "prompts/get", "error") == 1
    assert requests("legacy", "unknown", "error") == 1
    assert requests("modern", "tools/call", "ok") == 1
    assert requests("modern", "unknown", "error") == 1
    assert requests("modern", "server/discover", "ok") == 1
    assert page("mcpd_request_duration_seconds_count", era="legacy", method="tools/call") == 3
    assert page("mcpd_request_duration_seconds_bucket", era="legacy", method="tools/call", le="+Inf") == 3


async def test_counts_tools_and_their_failures(autojump_clock, front):
    async with serving(new_server(), front=front, allow_errors=True) as http:
        session = await http.initialize()
        for how in ("tool", "protocol", "other"):
            await session.call("fail", {"how": how})
            await http.call("fail", {"how": how})
        await session.call("echo", {"text": "hello"})
        await session.call("echo", {"text": 1})
        await session.call("none", {})
        page = await read(http.endpoint)
    assert page("mcpd_tool_invocations_total", tool="fail") == 6
    assert page("mcpd_tool_invocation_failures_total", tool="fail") == 6
    assert page("mcpd_tool_invocations_total", tool="echo") == 2
    assert page("mcpd_tool_invocation_failures_total", tool="echo") == 1


async def test_shows_calls_and_streams_while_they_last(autojump_clock, front):
    async with serving(new_server(), front=front) as http:
        session = await http.initialize()
        listen = {"notifications": {"toolsListChanged": True}}
        async with (
            session.get() as get,
            http.open_modern("subscriptions/listen", listen) as listening,
            session.open_call("wait", {"seconds": 30}) as calling,
        ):
            await listening.message()
            page = await read(http.endpoint)
            assert page("mcpd_calls_in_flight") == 1
            open_streams = {kind: page("mcpd_streams_open", kind=kind) for kind in ("get", "listen", "post", "resume")}
            assert open_streams == {"get": 1, "listen": 1, "post": 1, "resume": 0}
            first = await calling.event()
            async with session.get(first.id) as resumed:
                await http.settle()
                assert (await read(http.endpoint))("mcpd_streams_open", kind="resume") == 1
                await resumed.rest()
            assert len(await calling.rest()) == 1
            get.connection.cut()
            listening.connection.cut()
        await http.settle()
        await trio.sleep(60)  # the next heartbeat finds that they are gone, at the latest
        page = await read(http.endpoint)
        assert page("mcpd_calls_in_flight") == 0
        assert [page("mcpd_streams_open", kind=kind) for kind in open_streams] == [0, 0, 0, 0]
        assert page("mcpd_requests_total", era="modern", method="subscriptions/listen", outcome="cancelled") == 1


# ----- Sessions


async def test_counts_how_sessions_end(autojump_clock, front):
    async with serving(new_server(), front=front, max_sessions=3, session_idle=100.0) as http:
        first = await http.initialize()
        await first.delete()
        assert (await first.delete()).status == 404
        for _ in range(5):
            await http.initialize()
        page = await read(http.endpoint)
        assert page("mcpd_sessions_active") == page("mcpd_sessions_max") == 3
        assert page("mcpd_sessions_created_total") == 6
        await trio.sleep(50)
        await http.initialize()
        await trio.sleep(60)  # two of three expire
        await http.endpoint.drain()
        page = await read(http.endpoint)
    ended = {reason: page("mcpd_sessions_ended_total", reason=reason) for reason in REASONS}
    assert ended == {"deleted": 1, "expired": 2, "evicted": 3, "aborted": 0, "shutdown": 1}
    assert page("mcpd_sessions_created_total") == sum(ended.values())


async def test_a_session_whose_client_is_gone_before_it_got_the_id_is_aborted(autojump_clock, front):
    held = trio.Event()
    began = trio.Event()

    async def hold(verb: str) -> None:
        if verb == "session.create":
            began.set()
            await held.wait()

    async with serving(new_server(), front=front, store=FlakyStore(MemoryStore(), hold)) as http:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        async with http.connect() as connection:
            await connection.send("POST", json=rpc("initialize", params, id=1))
            with trio.fail_after(60):
                await began.wait()
            connection.cut()
        await http.settle()
        held.set()
        await http.settle()
        page = await read(http.endpoint)
        assert page("mcpd_sessions_created_total") == 1
        assert page("mcpd_sessions_ended_total", reason="aborted") == 1
        assert page("mcpd_sessions_active") == 0
        assert page("mcpd_requests_total", era="legacy", method="initialize", outcome="cancelled") == 1


async def test_counts_sessions_it_refuses(autojump_clock, front):
    down = False

    async def fail(verb: str) -> None:
        if down:
            raise StoreError("down")

    store: Store = FlakyStore(MemoryStore(), fail)
    async with serving(new_server(), front=front, store=store, max_sessions=1) as http:
        session = await http.initialize()
        async with session.get():
            assert (await _initialize(http)).status == 503
        await trio.sleep(60)
        memory = http.endpoint.sessions.memory
        memory.limit, limit = 1, memory.limit
        assert (await _initialize(http)).status == 503
        memory.limit = limit
        down = True
        assert (await _initialize(http)).status == 503
        page = await read(http.endpoint)
        assert page("mcpd_store_up") == 0
        down = False
        assert (await read(http.endpoint))("mcpd_store_up") == 1
    for reason in ("full", "memory", "store"):
        assert page("mcpd_sessions_rejected_total", reason=reason) == 1, reason


async def _initialize(http):
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    response = await http.request("POST", json=rpc("initialize", params, id=1))
    assert response.status == 200 or int(response.headers["retry-after"]) > 0
    return response


async def test_store_operations_are_timed(autojump_clock, front):
    async with serving(new_server(), front=front) as http:
        session = await http.initialize()
        await session.post("ping")
        await session.delete()
        page = await read(http.endpoint)
    for operation in ("create", "save", "delete"):  # of a store in memory nothing has to be waited for to be loaded
        count = page("mcpd_store_operation_duration_seconds_count", store="memory", operation=operation)
        assert count >= 1, operation


async def test_the_loop_lag_is_the_worst_of_the_last_while():
    endpoint = new_endpoint(new_server(), "memory", Settings())
    metrics = Metrics(endpoint)
    async with endpoint.running(), trio.open_nursery() as nursery:
        await nursery.start(metrics.run)
        await trio.sleep(0.3)
        time.sleep(0.6)  # noqa: ASYNC251 - a handler that blocks the loop does no less
        await trio.sleep(0.05)
        _, body = await metrics.page()
        lag = float(next(line.split()[1] for line in body.decode().splitlines() if line.startswith("mcpd_loop_lag")))
        assert 0.2 < lag < 5
        nursery.cancel_scope.cancel()


async def test_without_metrics_there_is_no_page(autojump_clock, front):
    async with serving(new_server(), front=front, metrics=False) as http:
        assert (await http.request("GET", "/metrics")).status == 404
        assert (await http.call("echo", {"text": "hello"})).text == "hello"


def test_the_memory_guard_without_a_limit_is_never_pressed():
    assert not MemoryGuard(None).pressed


@pytest.mark.parametrize("kind", ["modern", "legacy"])
async def test_a_request_in_flight_counts_once_it_is_answered(autojump_clock, front, kind):
    async with serving(new_server(), front=front) as http:
        session = await http.initialize()
        opened = (
            session.open_call("wait", {"seconds": 5})
            if kind == "legacy"
            else http.open("POST", **modern_request("tools/call", {"name": "wait", "arguments": {"seconds": 5}}))
        )
        async with opened as stream:
            page = await read(http.endpoint)
            assert page("mcpd_requests_total", era=kind, method="tools/call", outcome="ok") == 0
            await stream.rest()
        page = await read(http.endpoint)
        assert page("mcpd_requests_total", era=kind, method="tools/call", outcome="ok") == 1


async def test_workers_that_do_not_answer_make_no_empty_page(tmp_path, monkeypatch):
    monkeypatch.setattr("mcpd.fronts.siblings._PATIENCE", 0.1)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "1.sock"))
        silent.listen()
        async with serving(Server("parent")) as http:
            http.endpoint.operations = Operations(http.endpoint, {"/metrics": partial(merged, tmp_path)})
            response = await http.request("GET", "/metrics")
    assert (response.status, response.headers["content-type"]) == (503, "application/json")
    assert "No worker" in response.error["message"]
