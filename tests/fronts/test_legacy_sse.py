"""HTTP+SSE of 2024-11-05 (basic/transports): what goes over the wire, and the official clients of both releases."""

import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urljoin

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpd import Context, Server
from mcpd.endpoint.stream import EventStream
from mcpd.fronts.connection import Connection
from mcpd.server.call import Call
from tests import wire
from tests.clients.test_clients import EVERYWHERE, HERE, MCP1, OURS, SCRIPT_WITHIN, steps_taken
from tests.harness import living, modern_request, rpc, serving
from tests.processes import fixture_server_process, missing
from tests.requirements import requirement

CLIENT = {"capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
REVISIONS = pytest.mark.parametrize("revision", wire.LEGACY)


def a_server(did: list[str] | None = None) -> Server:
    server, told = Server("s", version="1"), [] if did is None else did

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def slow(seconds: float, ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.info("slow")
        try:
            await trio.sleep(seconds)
        except trio.Cancelled:
            told.append("cancelled")
            raise
        return "done"

    @server.tool
    async def model(ctx: Context) -> str:
        return (await ctx.sample("hi", max_tokens=5)).text

    @server.tool
    async def count(ctx: Context) -> int:
        assert ctx.session is not None
        return int(await ctx.session.update("n", lambda n: n + 1, 0))

    return server


async def test_who_does_not_read_holds_up_nobody_else(front, autojump_clock):
    server = a_server()
    async with serving(server, front=front, legacy_sse=True, max_buffer=2_000, write_timeout=30.0) as http:
        session = await http.initialize()
        async with (
            http.open("GET", "/sse", headers={"Accept": "text/event-stream"}, window=500) as deaf,
            session.get() as heard,
        ):
            address = urljoin("http://localhost/sse", (await deaf.event()).data).removeprefix("http://localhost")
            hello = {**CLIENT, "protocolVersion": "2024-11-05", "capabilities": {}}
            await http.request("POST", address, json=rpc("initialize", hello, id=0))
            await http.request("POST", address, json=rpc("notifications/initialized"))
            began = trio.current_time()
            for _ in range(100):
                server.notify_tools_changed()
                assert (await heard.message())["method"] == "notifications/tools/list_changed"
            assert trio.current_time() - began < 1


class Sse:
    """A client's connection: its stream, and where it posts."""

    def __init__(self, http: Any, stream: Any, address: str, revision: str) -> None:
        self.http = http
        self.stream = stream
        self.address = address
        self.revision = revision

    async def post(self, message: Any, **kwargs: Any) -> Any:
        """POST a message; all that comes of it comes on the stream."""
        response = await self.http.request("POST", self.address, json=message, **kwargs)
        assert (response.status, response.body) == (202, b"")
        return response

    async def answer(self, method: str, params: dict[str, Any] | None = None, *, id: Any = 1) -> dict[str, Any]:
        await self.post(rpc(method, params, id=id))
        message: dict[str, Any] = wire.check(self.revision, method, await self.stream.message())
        assert message["id"] == id
        return message

    async def call(self, tool: str, arguments: dict[str, Any] | None = None) -> str:
        result = (await self.answer("tools/call", {"name": tool, "arguments": arguments or {}}))["result"]
        text: str = result["content"][0]["text"]
        return text


@asynccontextmanager
async def connected(
    http: Any, revision: str = "2024-11-05", capabilities: Any = None, *, path: str = "/sse"
) -> AsyncGenerator[Sse, None]:
    """Open the stream, find the address and initialize."""
    async with http.open("GET", path, headers={"Accept": "text/event-stream"}) as stream:
        assert stream.status == 200
        event = await stream.event()
        assert event is not None
        assert event.type == "endpoint"
        client = Sse(
            http, stream, urljoin(f"http://localhost{path}", event.data).removeprefix("http://localhost"), revision
        )
        params = {**CLIENT, "protocolVersion": revision, "capabilities": capabilities or {}}
        started = await client.answer("initialize", params, id=0)
        assert started["result"]["protocolVersion"] == revision
        await client.post(rpc("notifications/initialized"))
        await wait_all_tasks_blocked()
        yield client


# ----- The two endpoints


@requirement("AA342")
async def test_it_is_not_there_unless_asked_for(front):
    async with serving(a_server(), front=front) as http:
        for method, path in (("GET", "/sse"), ("POST", "/messages/x"), ("POST", "/messages/")):
            assert (await http.request(method, path, json={} if method == "POST" else None)).status == 404


@requirement("AA340", "AA341", "D72")
@pytest.mark.parametrize("path", ["/sse", "/sse/"])
async def test_the_first_event_says_where_to_post_and_answers_are_messages(front, path, autojump_clock):
    async with (
        serving(a_server(), front=front, legacy_sse=True) as http,
        http.open("GET", path, headers={"Accept": "text/event-stream"}) as stream,
    ):
        assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream")
        event = await stream.event()
        assert (event.type, event.id) == ("endpoint", None)
        address = urljoin(f"http://localhost{path}", event.data)
        assert re.fullmatch(r"http://localhost/messages/[A-Za-z0-9_-]{24}", address)
        await http.request("POST", address.removeprefix("http://localhost"), json=rpc("ping", id="p"))
        event = await stream.event()
        assert event.type == "message"
        assert event.json == {"jsonrpc": "2.0", "id": "p", "result": {}}


@requirement("AA340", "AA341", "A14", "C34")
@REVISIONS
async def test_a_session_of_any_legacy_revision(front, revision, autojump_clock):
    async with serving(a_server(), front=front, legacy_sse=True) as http, connected(http, revision) as client:
        assert await client.call("add", {"a": 1, "b": 2}) == "3"
        assert [await client.call("count") for _ in range(3)] == ["1", "2", "3"]
        assert (await client.answer("nothing/like/it"))["error"]["code"] == -32601
        assert {tool["name"] for tool in (await client.answer("tools/list"))["result"]["tools"]} >= {"add", "slow"}


@requirement("AA340")
async def test_both_transports_share_a_server(front, autojump_clock):
    async with serving(a_server(), front=front, legacy_sse=True) as http, connected(http) as client:
        session = await http.initialize()
        assert (await session.call("add", {"a": 1, "b": 2})).text == "3"
        assert (await http.call("add", {"a": 1, "b": 2})).result["structuredContent"] == 3
        assert await client.call("add", {"a": 1, "b": 2}) == "3"


@requirement("J152", "L164", "AA340")
async def test_reports_and_questions_come_on_the_stream(front, autojump_clock):
    async with (
        serving(a_server(), front=front, legacy_sse=True) as http,
        connected(http, capabilities={"sampling": {}}) as client,
    ):
        params = {"name": "slow", "arguments": {"seconds": 3}, "_meta": {"progressToken": 7}}
        await client.post(rpc("tools/call", params, id=5))
        messages = [wire.check("2024-11-05", "tools/call", await client.stream.message()) for _ in range(3)]
        assert [message.get("method") for message in messages] == [
            "notifications/progress",
            "notifications/message",
            None,
        ]
        await client.post(rpc("tools/call", {"name": "model", "arguments": {}}, id=6))
        question = wire.check("2024-11-05", None, await client.stream.message())
        assert question["method"] == "sampling/createMessage"
        result = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hello"}}
        await client.post({"jsonrpc": "2.0", "id": question["id"], "result": result})
        assert (await client.stream.message())["result"]["content"][0]["text"] == "hello"


@requirement("M184", "N203")
async def test_changes_come_on_the_stream(front, autojump_clock):
    server = a_server()

    @server.resource("note://1")
    async def note() -> str:
        return ""

    async with serving(server, front=front, legacy_sse=True) as http, connected(http) as client:
        await client.answer("resources/subscribe", {"uri": "note://1"})
        server.notify_resource_updated("note://1")
        server.remove_tool("count")
        methods = [(await client.stream.message())["method"] for _ in range(2)]
        assert methods == ["notifications/resources/updated", "notifications/tools/list_changed"]


@requirement("I143")
async def test_a_call_is_cancelled_by_notification(front, autojump_clock):
    did: list[str] = []
    async with serving(a_server(did), front=front, legacy_sse=True) as http, connected(http) as client:
        await client.post(rpc("tools/call", {"name": "slow", "arguments": {"seconds": 100}}, id=5))
        await wait_all_tasks_blocked()
        await client.post(rpc("notifications/cancelled", {"requestId": 5}))
        await client.stream.message()  # the log message that came before
        await wait_all_tasks_blocked()
        assert did == ["cancelled"]
        assert await client.call("add", {"a": 1, "b": 2}) == "3"


# ----- Whose it is


@requirement("A3", "F104")
async def test_connections_are_apart(front, autojump_clock):
    async with (
        serving(a_server(), front=front, legacy_sse=True) as http,
        connected(http) as one,
        connected(http, "2025-06-18") as two,
    ):
        assert one.address != two.address
        await one.post(rpc("tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}}, id="same"))
        await two.post(rpc("tools/call", {"name": "add", "arguments": {"a": 2, "b": 2}}, id="same"))
        assert (await one.stream.message())["result"]["content"][0]["text"] == "2"
        assert (await two.stream.message())["result"]["content"][0]["text"] == "4"
        assert await one.call("count") == "1"
        assert await two.call("count") == "1"


@requirement("W292")
async def test_the_tasks_of_another_connection_are_unknown(front, autojump_clock):
    server = a_server()

    @server.tool(task="required")
    async def job() -> None:
        await trio.sleep(100)

    revision = "2025-11-25"
    async with (
        serving(server, front=front, legacy_sse=True) as http,
        connected(http, revision) as one,
        connected(http, revision) as two,
    ):
        await one.post(rpc("tools/call", {"name": "job", "arguments": {}, "task": {}}, id=1))
        task_id = (await one.stream.message())["result"]["task"]["taskId"]
        for client, known in ((one, True), (two, False)):
            await client.post(rpc("tasks/get", {"taskId": task_id}, id=2))
            assert ("result" in await client.stream.message()) == known


@requirement("D55", "D57", "D71")
async def test_who_may_not_is_refused_at_both_endpoints(front):
    async with serving(a_server(), front=front, legacy_sse=True) as http, connected(http) as client:
        for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
            for method, path in (("GET", "/sse"), ("POST", client.address)):
                body = rpc("ping", id=1) if method == "POST" else None
                response = await http.request(method, path, headers=headers, json=body)
                assert response.status in {403, 421}
        for method, path, allowed in (
            ("POST", "/sse", "GET"),
            ("DELETE", "/sse", "GET"),
            ("GET", client.address, "POST"),
        ):
            response = await http.request(method, path, json=rpc("ping", id=1) if method == "POST" else None)
            assert (response.status, response.headers["allow"]) == (405, allowed)


@requirement("D62", "D65", "D67")
async def test_what_cannot_be_taken_is_refused_at_once(front, autojump_clock):
    async with serving(a_server(), front=front, legacy_sse=True, max_body=1_000) as http, connected(http) as client:
        message = rpc("ping", id=1)
        for path in ("/messages/", "/messages/x", client.address + "x", client.address[:-1], client.address + "/"):
            assert (await http.request("POST", path, json=message)).status == 404
        response = await http.request("POST", client.address, json=message, headers={"Content-Type": "text/plain"})
        assert response.status == 415
        assert (await http.request("POST", client.address, json=message | {"params": {"x": "x" * 2_000}})).status == 413
        await http.request("POST", client.address, body=b"{")
        assert (await client.stream.message())["error"]["code"] == -32700
        assert await client.call("add", {"a": 1, "b": 2}) == "3"


# ----- The end


@requirement("AA340")
@pytest.mark.parametrize("cut", [True, False])
async def test_a_connection_ends_with_its_stream(front, cut, autojump_clock):
    did: list[str] = []
    async with serving(a_server(did), front=front, legacy_sse=True) as http:
        async with connected(http) as client:
            await client.post(rpc("tools/call", {"name": "slow", "arguments": {"seconds": 1_000}}, id=5))
            await wait_all_tasks_blocked()
            if cut:
                client.stream.cut()
        await http.settle()
        assert did == ["cancelled"]
        assert (await http.request("POST", client.address, json=rpc("ping", id=1))).status == 404
        assert not http.endpoint.core.subscriptions._subscribers
        assert not http.endpoint.streams


async def test_at_the_servers_end_calls_are_answered_and_then_the_stream_ends(front, autojump_clock):
    async with (
        serving(a_server(), front=front, legacy_sse=True, drain_timeout=10.0) as http,
        connected(http) as client,
        connected(http) as idle,
        trio.open_nursery() as nursery,
    ):
        for number, seconds in ((5, 3), (6, 1_000)):
            await client.post(rpc("tools/call", {"name": "slow", "arguments": {"seconds": seconds}}, id=number))
        await wait_all_tasks_blocked()
        began = trio.current_time()
        nursery.start_soon(http.endpoint.drain)
        assert await idle.stream.rest() == []
        assert trio.current_time() == began
        messages = await client.stream.rest()
        assert 10 <= trio.current_time() - began < 11
        answers = {message["id"]: message for message in messages if "id" in message}
        assert not answers[5]["result"].get("isError")
        assert answers[6]["error"]["message"] == "The server is shutting down"


async def test_calls_over_it_count_as_all_others_do(front, autojump_clock):
    async with serving(a_server(), front=front, legacy_sse=True, max_calls=1) as http, connected(http) as client:
        await client.post(rpc("tools/call", {"name": "slow", "arguments": {"seconds": 5}}, id=5))
        await wait_all_tasks_blocked()
        assert len(http.endpoint.calls) == 1
        await client.post(rpc("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, id=6))
        refused: dict[str, Any] = {}
        while refused.get("id") != 6:
            refused = await client.stream.message()
        assert "too many calls" in refused["error"]["message"]
        await trio.sleep(6)
        assert not http.endpoint.calls


@pytest.mark.usefixtures("no_gc")
async def test_nothing_of_a_connection_is_left(front, autojump_clock):
    async with serving(a_server(), front=front, legacy_sse=True) as http:
        for _ in range(5):
            async with connected(http) as client:
                await client.call("add", {"a": 1, "b": 2})
                await http.request("POST", client.address, body=b"[")
                await client.stream.message()
        del client
        await http.settle()
        assert living(Connection, EventStream, Call) == {}


async def test_on_a_modern_only_server_there_is_no_session_to_have(front, autojump_clock):
    async with (
        serving(a_server(), front=front, legacy_sse=True, era="modern") as http,
        http.open("GET", "/sse", headers={"Accept": "text/event-stream"}) as stream,
    ):
        if stream.status == 200:
            address = urljoin("/sse", (await stream.event()).data)
            params = {**CLIENT, "protocolVersion": "2024-11-05"}
            await http.request("POST", address, json=rpc("initialize", params, id=1))
            assert (await stream.message())["error"]["code"] == -32022
        else:
            assert stream.status in {404, 405}
        assert (await http.request("POST", **modern_request("tools/list"))).result["tools"]


# ----- The official clients


STEPS = (
    "tools/list",
    "call simple",
    "call error",
    "progress",
    "progress seen",
    "logging",
    "logs seen",
    "prompts/get",
    "sampling",
)


@requirement("AA340", "AA341")
@pytest.mark.clients
@pytest.mark.parametrize("backend", ["trio", "asyncio"])
@pytest.mark.parametrize("release", ["mcp 2.3", "mcp 1.30"])
def test_the_official_client_takes_every_step(release, backend):
    python = sys.executable if release == "mcp 2.3" else str(MCP1.path)
    if not os.path.exists(python):  # noqa: PTH110 - a name, not a path we made
        missing(release, "make pytest")
    env = {name: value for name, value in os.environ.items() if name not in OURS}
    with fixture_server_process(env={"MCPD_LEGACY_SSE": "true"}) as server:
        url = server.url.removesuffix("/mcp") + "/sse"
        done = subprocess.run(
            [python, str(HERE / "py_sse.py"), url, backend],
            capture_output=True,
            timeout=SCRIPT_WITHIN,
            env=env,
            check=False,
            encoding="utf-8",
        )
    said = f"{done.stdout}\n{done.stderr}"
    assert "negotiated 2025-11-25" in said, said
    assert "fails=0" in said, said
    taken = steps_taken(done.stdout)
    assert {*STEPS, "ping", "elicitation"} == taken.keys(), said
    other = {name: taken[name] for name in STEPS if not re.search(EVERYWHERE[name], taken[name])}
    assert not other, said
