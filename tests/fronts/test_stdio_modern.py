"""What is modern on stdio: subscriptions that share one stream, rounds, tasks, and the envelope without headers."""

import json
from typing import Any

import pytest
import trio
from trio.testing import memory_stream_one_way_pair, wait_all_tasks_blocked

from mcpd import Context, Server, serve_stdio
from mcpd.core import Core
from mcpd.fronts.connection import MAX_LISTENING, Connection
from mcpd.settings import Settings
from mcpd_stores.memory import MemoryStore
from tests import wire
from tests.requirements import requirement
from tests.server.peer import MCP, Peer, talking

LISTEN = "subscriptions/listen"
ID = MCP + "subscriptionId"


def a_server() -> Server:
    server = Server("s", version="1")

    @server.tool
    async def spare() -> None: ...

    @server.tool
    async def report(ctx: Context) -> None:
        await ctx.progress(1)
        await ctx.info("x")

    @server.resource("note://1")
    async def note() -> str:
        return "x"

    return server


async def listen(peer: Peer, id: Any, **notifications: Any) -> None:
    await peer.send(peer.request(LISTEN, {"notifications": notifications}, id=id))


def by_subscription(messages: list[dict[str, Any]]) -> dict[Any, list[str]]:
    found: dict[Any, list[str]] = {}
    for message in messages:
        own = message["params"]["_meta"][ID]
        found.setdefault((type(own).__name__, own), []).append(message["method"].removeprefix("notifications/"))
    return found


ACKNOWLEDGED = "subscriptions/acknowledged"


@requirement("H139", "S234", "S235", "S239", "B31")
async def test_subscriptions_share_the_stream_and_are_told_apart_by_id():
    server = a_server()
    async with talking(server) as peer:
        for own in ("0", 0, "x", 2**53):
            await listen(peer, own, toolsListChanged=True, resourceSubscriptions=["note://1"] if own == "x" else [])
        await wait_all_tasks_blocked()
        server.notify_tools_changed()
        await wait_all_tasks_blocked()
        server.notify_resource_updated("note://1")
        told = by_subscription(await peer.settle())
        assert told == {
            ("str", "0"): [ACKNOWLEDGED, "tools/list_changed"],
            ("int", 0): [ACKNOWLEDGED, "tools/list_changed"],
            ("str", "x"): [ACKNOWLEDGED, "tools/list_changed", "resources/updated"],
            ("int", 2**53): [ACKNOWLEDGED, "tools/list_changed"],
        }
        assert not peer.answers


@requirement("H137", "S239", "S241", "I143", "I149")
async def test_a_subscription_that_is_cancelled_is_over_without_a_word():
    server = a_server()
    async with talking(server) as peer:
        for own in ("a", 1):
            await listen(peer, own, toolsListChanged=True)
        await peer.notify("notifications/cancelled", {"requestId": "a"})
        await peer.notify("notifications/cancelled", {"requestId": "1"})  # there is no such one
        await peer.settle()
        server.notify_tools_changed()
        assert by_subscription(await peer.settle()) == {("int", 1): ["tools/list_changed"]}
        assert not peer.answers
        # Its id is free again.
        await listen(peer, "a", resourceSubscriptions=["note://1"])
        await peer.settle()
        server.notify_tools_changed()
        server.notify_resource_updated("note://1")
        assert by_subscription(await peer.settle()) == {
            ("int", 1): ["tools/list_changed"],
            ("str", "a"): ["resources/updated"],
        }


@requirement("S238", "S241", "H134", "I149")
async def test_at_the_end_of_input_each_subscription_gets_its_result():
    async with talking(a_server()) as peer:
        for own in ("a", 0):
            await listen(peer, own, toolsListChanged=True)
        await peer.settle()
    assert [(answer["id"], answer["result"]) for answer in peer.answers] == [
        (own, {"resultType": "complete", "_meta": {ID: own}}) for own in ("a", 0)
    ]
    assert peer.sent == []


@requirement("S236", "S238")
async def test_a_subscription_to_nothing_ends_at_once():
    server = a_server()
    async with talking(server) as peer:
        result = await peer.result(LISTEN, {"notifications": {"promptsListChanged": True}}, id="n")
        assert result == {"resultType": "complete", "_meta": {ID: "n"}}
        (acknowledged,) = await peer.settle()
        assert acknowledged["params"]["notifications"] == {}


@requirement("S242", "S243")
async def test_a_filter_that_is_none_is_refused():
    async with talking(a_server()) as peer:
        for params in ({}, {"notifications": 1}, {"notifications": {"toolsListChanged": "x"}}):
            assert (await peer.error(LISTEN, params))["code"] == -32602
        error = await peer.error(LISTEN, {"notifications": {"taskIds": ["x"]}})
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": {"extensions": {MCP + "tasks": {}}}}
        assert await peer.settle() == []


async def test_a_connection_has_a_bounded_number_of_subscriptions():
    async with talking(a_server()) as peer:
        for own in range(MAX_LISTENING):
            await listen(peer, f"l{own}", toolsListChanged=True)
        await peer.settle()
        error = await peer.error(LISTEN, {"notifications": {"toolsListChanged": True}}, id="more")
        assert f"at most {MAX_LISTENING}" in error["message"]
        await peer.notify("notifications/cancelled", {"requestId": "l7"})
        await listen(peer, "more", toolsListChanged=True)
        assert [message["params"]["_meta"][ID] for message in await peer.settle()] == ["more"]


@requirement("S237", "J159", "H133")
async def test_progress_belongs_to_its_call_and_not_to_a_subscription():
    async with talking(a_server()) as peer:
        await listen(peer, "l", toolsListChanged=True)
        await peer.settle()
        await peer.call("report", meta={"progressToken": "t", MCP + "logLevel": "info"})
        for message in peer.sent:
            assert ID not in message["params"].get("_meta", {})
        assert [message["method"] for message in peer.sent] == ["notifications/progress", "notifications/message"]


@requirement("S233", "S234")
async def test_nothing_that_changes_after_the_acknowledgement_is_missed():
    # A writer that, as a pipe may, comes back only after the client has read and something has changed.
    server, sent = a_server(), list[dict[str, Any]]()
    core = Core(server, MemoryStore(), Settings())

    async def send(data: bytes) -> None:
        message = json.loads(data)
        sent.append(message)
        if message["method"] == "notifications/subscriptions/acknowledged":
            server.notify_tools_changed()
            for _ in range(20):
                await trio.lowlevel.checkpoint()

    connection = Connection(core, send)
    async with core.running(), connection.running():
        envelope = {MCP + "protocolVersion": wire.MODERN, MCP + "clientCapabilities": {}}
        params = {"notifications": {"toolsListChanged": True}, "_meta": envelope}
        await connection.receive(json.dumps({"jsonrpc": "2.0", "id": 1, "method": LISTEN, "params": params}).encode())
        await wait_all_tasks_blocked()
    assert [message["method"].removeprefix("notifications/") for message in sent] == [
        ACKNOWLEDGED,
        "tools/list_changed",
    ]


# ----- Rounds, without HTTP


@requirement("T244", "H132", "A15")
async def test_rounds_are_played_on_stdio_as_well():
    server = Server("s")

    @server.tool
    async def hello(ctx: Context) -> str:
        form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        first = await ctx.elicit("Who?", form, key="who")
        await ctx.elicit("Sure?", form, key="sure")
        return f"{first.content}"

    async with talking(server, capabilities={"elicitation": {}}) as peer:
        answer = {"action": "accept", "content": {"name": "Ada"}}
        first = await peer.call("hello")
        assert list(first["inputRequests"]) == ["who"]
        params: dict[str, Any] = {"name": "hello", "arguments": {}, "inputResponses": {"who": answer}}
        second = await peer.result("tools/call", params)
        assert list(second["inputRequests"]) == ["sure"]
        params |= {"inputResponses": {"sure": answer}, "requestState": second["requestState"]}
        assert (await peer.result("tools/call", params))["content"][0]["text"] == "{'name': 'Ada'}"
        params["requestState"] = "x"
        assert (await peer.error("tools/call", params))["code"] == -32602
        peer.capabilities = {}
        error = await peer.error("tools/call", {"name": "hello", "arguments": {}})
        assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": {"elicitation": {"form": {}}}})
        assert peer.sent == []


# ----- The envelope


@requirement("B23", "C42", "H138", "A10")
async def test_an_envelope_that_is_incomplete_is_refused_without_a_word_of_headers():
    key = MCP + "protocolVersion"
    capabilities = MCP + "clientCapabilities"
    async with talking(a_server()) as peer:
        for meta, code in (
            ({key: wire.MODERN}, -32602),
            ({key: wire.MODERN, capabilities: []}, -32602),
            ({key: 7, capabilities: {}}, -32602),
            ({key: "2099-01-01", capabilities: {}}, -32022),
            ({key: "2025-11-25", capabilities: {}}, -32022),
        ):
            peer.request("tools/list", id="r")
            await peer.send({"jsonrpc": "2.0", "id": "r", "method": "tools/list", "params": {"_meta": meta}})
            await peer.settle()
            error = peer.answers[-1]["error"]
            assert error["code"] == code
            if code == -32022:
                assert error["data"] == {"supported": [wire.MODERN], "requested": meta[key]}
        await peer.result("tools/list")


@requirement("C47", "B23", "A10")
async def test_a_modern_only_process_names_its_revision_to_an_initialize():
    async with talking(a_server(), "2025-11-25", initialize=False, era="modern") as peer:
        peer.revision = wire.MODERN
        initialize = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "c", "version": "1"},
            },
        }
        await peer.send(initialize)
        await peer.send({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        await peer.send({"jsonrpc": "2.0", "id": 3, "method": "ping", "params": {}})
        await peer.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        await peer.settle()
        first, *others = peer.answers
        assert first["error"]["code"] == -32022
        assert first["error"]["data"] == {"supported": [wire.MODERN], "requested": "2025-11-25"}
        # There are no headers here that something could differ from: what is missing is in _meta.
        assert [(answer["id"], answer["error"]["code"]) for answer in others] == [(2, -32602), (3, -32602)]
        await peer.result("tools/list", id=4)


@requirement("C48")
async def test_a_legacy_only_process_answers_modern_requests_without_a_modern_code():
    async with talking(a_server(), "2025-11-25", era="legacy") as peer:
        await peer.result("tools/list")
        for method in ("server/discover", "tools/list", LISTEN):
            meta = {MCP + "protocolVersion": wire.MODERN, MCP + "clientCapabilities": {}}
            params = {"_meta": meta, "notifications": {}}
            await peer.send({"jsonrpc": "2.0", "id": "m", "method": method, "params": params})
            await peer.settle()
            assert peer.answers[-1]["error"]["code"] == -32600  # and `Peer` has checked it against 2025-11-25
        await peer.result("tools/list")


# ----- Many at once


@requirement("H133", "H130", "A4")
@pytest.mark.parametrize("pieces", [1, 7, 4096])
async def test_concurrent_answers_never_mix(pieces):
    server = Server("s")

    @server.tool
    async def say(n: int, ctx: Context) -> str:
        await ctx.progress(n)
        await trio.lowlevel.checkpoint()
        return str(n) * 500

    to_server, stdin = memory_stream_one_way_pair()
    stdout, from_server = memory_stream_one_way_pair()

    class InPieces:
        """A pipe that takes a little at a time."""

        async def send_all(self, data: bytes) -> None:
            for start in range(0, len(data), pieces * 50):
                await stdout.send_all(data[start : start + pieces * 50])
                await trio.lowlevel.checkpoint()

    lines: list[dict[str, Any]] = []

    async def read() -> None:
        buffer = b""
        async for data in from_server:
            *whole, buffer = (buffer + data).split(b"\n")
            lines.extend(json.loads(line) for line in whole)

    async def serve() -> None:
        await serve_stdio(server, receiver=stdin, sender=InPieces())
        await stdout.aclose()

    meta = {MCP + "protocolVersion": wire.MODERN, MCP + "clientCapabilities": {}}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        nursery.start_soon(read)
        for n in range(60):
            params = {"name": "say", "arguments": {"n": n}, "_meta": meta | {"progressToken": n}}
            message = {"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params}
            await to_server.send_all(json.dumps(message).encode() + b"\n")
        await to_server.aclose()
    answers = {line["id"]: line["result"]["content"][0]["text"] for line in lines if "id" in line}
    assert answers == {n: str(n) * 500 for n in range(60)}
    seen: set[int] = set()
    for line in lines:  # of each call: first the report, then the answer
        if "method" in line:
            assert line["params"]["progressToken"] not in seen
        else:
            seen.add(line["id"])
