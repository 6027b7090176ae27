"""One connection: initialization, both eras on it, cancellation, and its end (stdio)."""

import json
import threading

import pytest
import trio
from trio.testing import memory_stream_one_way_pair

from mcpd import Context, Server, serve_stdio
from tests import wire
from tests.requirements import requirement
from tests.server.everything import everything
from tests.server.peer import MCP, Peer, talking

every_revision = pytest.mark.parametrize("revision", wire.REVISIONS)
every_legacy = pytest.mark.parametrize("revision", wire.LEGACY)

CLIENT = {"capabilities": {}, "clientInfo": {"name": "peer", "version": "1"}}


def waiting() -> tuple[Server, list[str]]:
    """A server whose tool waits for ever, and what has become of its calls."""
    server, became = everything(), []

    @server.tool
    async def wait(name: str, ctx: Context) -> str:
        became.append(f"{name} began")
        try:
            await ctx.progress(1)
            await trio.sleep_forever()
        except trio.Cancelled:
            became.append(f"{name} cancelled")
            with trio.CancelScope(shield=True):
                await ctx.progress(2)  # what it says now reaches nobody
            raise
        return ""

    return server, became


async def call(peer: Peer, name: str, *, id: object) -> None:
    params = {"name": "wait", "arguments": {"name": name}}
    await peer.send(peer.request("tools/call", params, id=id, meta={"progressToken": name}))


# ----- Initialization


@requirement("C34", "C35")
@pytest.mark.parametrize("asked", ["2024-10-07", "1.0", "", "2026-07-28", "2099-01-01"])
async def test_a_version_that_has_no_sessions_is_answered_with_the_latest_that_has(asked):
    async with talking(everything(), "2025-11-25", initialize=False) as peer:
        init = await peer.result("initialize", {"protocolVersion": asked, **CLIENT})
    assert init["protocolVersion"] == "2025-11-25"


@requirement("A9")
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"protocolVersion": "2025-11-25"},
        {"protocolVersion": "2025-11-25", "capabilities": {}},
        {"protocolVersion": 2025, **CLIENT},
        {"protocolVersion": "2025-11-25", "capabilities": [], "clientInfo": {"name": "a", "version": "1"}},
        {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": "peer"},
        {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "peer"}},
    ],
    ids=json.dumps,
)
async def test_initialize_that_is_incomplete_is_refused_and_can_be_repeated(params):
    async with talking(everything(), "2025-11-25", initialize=False) as peer:
        assert (await peer.error("initialize", params))["code"] == -32602
        await peer.result("initialize", {"protocolVersion": "2025-11-25", **CLIENT})
        await peer.result("tools/list")


@requirement("A16")
async def test_a_client_may_tell_of_itself_what_nobody_knows():
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"telepathy": {}, "sampling": {"new": 1}, "experimental": {"x": {}}},
        "clientInfo": {"name": "peer", "version": "1", "mood": "good", "icons": [{"src": "javascript:alert(1)"}]},
        "_meta": {"x": 1},
        "more": True,
    }
    async with talking(everything(), "2025-11-25", initialize=False) as peer:
        await peer.result("initialize", params)


@requirement("C33", "K160", "H138")
async def test_before_initialize_there_is_only_ping():
    async with talking(everything(), "2025-11-25", initialize=False) as peer:
        assert await peer.result("ping") == {}
        error = await peer.error("tools/list")
        assert error["code"] == -32600
        assert "nitialize" in error["message"]
        assert (await peer.error("nonsense"))["code"] in {-32600, -32601}


@requirement("C38", "K160")
@every_legacy
async def test_requests_are_answered_before_the_client_says_it_is_initialized(revision):
    async with talking(everything(), revision, initialize=False) as peer:
        await peer.result("initialize", {"protocolVersion": revision, **CLIENT})
        assert await peer.result("ping") == {}
        await peer.result("tools/list")


@requirement("C37")
@every_legacy
async def test_nothing_is_told_unasked_before_the_client_says_it_is_initialized(revision):
    server = everything()
    async with talking(server, revision, initialize=False) as peer:
        server.notify_tools_changed()
        await peer.result("initialize", {"protocolVersion": revision, **CLIENT})
        server.remove_tool("add")
        assert await peer.settle() == []
        await peer.notify("notifications/initialized")
        await peer.settle()
        server.remove_tool("weather")
        assert [message["method"] for message in await peer.settle()] == ["notifications/tools/list_changed"]


# ----- Changes


@requirement("M184", "N206", "O214", "A15")
@every_legacy
async def test_a_legacy_client_is_told_what_has_changed(revision):
    server = everything()
    async with talking(server, revision) as peer:
        for change, said in (
            (lambda: server.remove_tool("add"), "tools/list_changed"),
            (lambda: server.remove_prompt("ask"), "prompts/list_changed"),
            (lambda: server.remove_resource("note://1"), "resources/list_changed"),
            (lambda: server.remove_resource("user://{name}/{page}"), "resources/list_changed"),
        ):
            change()
            assert [message["method"] for message in await peer.settle()] == [f"notifications/{said}"]


@requirement("N203", "N204")
@every_legacy
async def test_updates_of_a_resource_come_from_subscribe_to_unsubscribe(revision):
    server = everything()
    async with talking(server, revision) as peer:
        server.notify_resource_updated("note://1")
        assert await peer.settle() == []
        assert await peer.result("resources/subscribe", {"uri": "note://1"}) == {}
        await peer.result("resources/subscribe", {"uri": "note://1"})  # twice is once
        server.notify_resource_updated("note://1")
        server.notify_resource_updated("note://2")
        assert [message["params"] for message in await peer.settle()] == [{"uri": "note://1"}]
        assert await peer.result("resources/unsubscribe", {"uri": "note://1"}) == {}
        await peer.result("resources/unsubscribe", {"uri": "note://1"})
        server.notify_resource_updated("note://1")
        assert await peer.settle() == []


@requirement("N195", "N203")
@every_legacy
async def test_what_is_not_there_cannot_be_subscribed_to(revision):
    async with talking(everything(), revision) as peer:
        error = await peer.error("resources/subscribe", {"uri": "nothing://1"})
    assert (error["code"], error["data"]) == (-32002, {"uri": "nothing://1"})


@requirement("N205", "A15", "C49")
async def test_a_modern_client_is_told_nothing_unasked():
    server = everything()
    async with talking(server) as peer:
        await peer.result("tools/list")
        server.remove_tool("add")
        server.notify_resource_updated("note://1")
        assert await peer.settle() == []


# ----- Both eras


@requirement("C48", "C49", "H138", "A14")
async def test_both_eras_share_a_connection_and_nothing_else():
    server = everything()

    @server.tool
    async def era(ctx: Context) -> str:
        return f"{ctx.protocol_version} {ctx.session is not None} {ctx.client_capabilities.can_sample}"

    params = {"name": "era", "arguments": {}}
    async with talking(server, "2025-06-18", {"sampling": {}}) as peer:
        assert (await peer.call("era"))["content"][0]["text"] == "2025-06-18 True True"
        peer.revision, peer.capabilities = wire.MODERN, {}
        assert (await peer.result("tools/call", params))["content"][0]["text"] == "2026-07-28 False False"
        peer.revision = "2025-06-18"
        assert (await peer.result("tools/call", params))["content"][0]["text"] == "2025-06-18 True True"


@requirement("A17", "A18")
async def test_batches_are_of_2025_03_26():
    batch = [
        {"jsonrpc": "2.0", "id": "a", "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}},
        {"jsonrpc": "2.0", "id": "b", "method": "tools/list"},
    ]
    for revision in wire.REVISIONS:
        async with talking(everything(), revision) as peer:
            peer.request("ping", id="a")
            peer.request("tools/list", id="b")
            before = len(peer.answers)
            await peer.send(batch)
            await peer.settle()
            answers = peer.answers[before:]
            if revision == "2025-03-26":
                assert sorted(answer["id"] for answer in answers if "result" in answer) == ["a", "b"]
            else:
                assert [answer["error"]["code"] for answer in answers] == [-32600]


@requirement("A18")
async def test_initialize_is_no_part_of_a_batch():
    initialize = {"jsonrpc": "2.0", "id": "i", "method": "initialize"}
    for params in ({"protocolVersion": "2025-03-26", **CLIENT}, {"protocolVersion": "2025-11-25", **CLIENT}):
        async with talking(everything(), "2025-03-26") as peer:
            await peer.send([initialize | {"params": params}])
            await peer.settle()
            assert peer.answers[-1]["error"]["code"] == -32600
            await peer.send([{"jsonrpc": "2.0", "id": "p", "method": "ping"}])
            peer.request("ping", id="p")
            await peer.settle()
            assert peer.answers[-1]["result"] == {}


# ----- Cancellation


@requirement("I143", "H137", "J155", "J152")
@every_revision
async def test_a_cancelled_call_stops_and_says_nothing_more(revision):
    server, became = waiting()
    async with talking(server, revision) as peer:
        await call(peer, "one", id="1")
        await call(peer, "two", id=1)
        await peer.settle()
        before = len(peer.answers)
        await peer.notify("notifications/cancelled", {"requestId": "1", "reason": "enough"})
        sent = await peer.settle()
        assert sorted(became[:2]) == ["one began", "two began"]  # both run at once
        assert became[2:] == ["one cancelled"]
        assert [message for message in sent if message["params"].get("progressToken") == "one"] == []
        assert len(peer.answers) == before
        await peer.result("tools/list")
        await peer.notify("notifications/cancelled", {"requestId": 1})
        await peer.settle()
        assert became[-1] == "two cancelled"


@requirement("I142", "I146")
@every_revision
async def test_a_cancellation_that_comes_too_late_is_ignored(revision):
    server, became = waiting()
    async with talking(server, revision) as peer:
        await peer.result("tools/list", id=5)
        await peer.notify("notifications/cancelled", {"requestId": 5})
        await call(peer, "one", id=6)
        await peer.notify("notifications/cancelled", {"requestId": 6})
        await peer.notify("notifications/cancelled", {"requestId": 6})
        await peer.settle()
        await peer.result("tools/list")
        assert all(answer["id"] != 6 for answer in peer.answers)
        assert became in (["one began", "one cancelled"], [])


@requirement("I147", "I143")
@every_revision
async def test_a_plain_function_cannot_be_stopped_and_its_client_is_answered_no_more(revision):
    server = everything()
    go, done = threading.Event(), threading.Event()

    @server.tool
    def block() -> str:
        go.wait(10)
        done.set()
        return "too late"

    async with talking(server, revision) as peer:
        await peer.send(peer.request("tools/call", {"name": "block"}, id="b"))
        await peer.settle()
        await peer.notify("notifications/cancelled", {"requestId": "b"})
        await peer.result("tools/list")
        go.set()
        assert await trio.to_thread.run_sync(done.wait, 10)
        await peer.result("tools/list")
        assert not any(answer["id"] == "b" for answer in peer.answers)


@requirement("I148")
@every_revision
async def test_the_reason_of_a_cancellation_is_in_the_log(revision, caplog):
    caplog.set_level("DEBUG", "mcpd")
    server, _ = waiting()
    async with talking(server, revision) as peer:
        await call(peer, "one", id="1")
        await peer.settle()
        await peer.notify("notifications/cancelled", {"requestId": "1", "reason": "the user has lost interest"})
        await peer.settle()
    assert "the user has lost interest" in caplog.text


@requirement("I144")
async def test_initialize_cannot_be_cancelled():
    async with talking(everything(), "2025-11-25", initialize=False) as peer:
        await peer.send(peer.request("initialize", {"protocolVersion": "2025-11-25", **CLIENT}, id=0))
        await peer.notify("notifications/cancelled", {"requestId": 0})
        await peer.settle()
        assert [answer["id"] for answer in peer.answers] == [0]
        await peer.result("tools/list")


# ----- The stream of bytes


@requirement("H134", "H136")
@every_revision
async def test_at_the_end_of_input_calls_may_finish_and_are_then_cancelled(revision, autojump_clock):
    server, became = waiting()

    @server.tool
    async def slow() -> str:
        await trio.sleep(4)
        return "done"

    async with talking(server, revision, drain_timeout=5.0) as peer:
        await call(peer, "one", id="1")
        await peer.send(peer.request("tools/call", {"name": "slow"}, id="2"))
        await peer.settle()
        began = trio.current_time()
    assert became == ["one began", "one cancelled"]
    assert [answer["id"] for answer in peer.answers if answer["id"] in {"1", "2"}] == ["2"]
    assert trio.current_time() - began == pytest.approx(5)


@requirement("H130", "H133")
@every_revision
async def test_lines_may_come_in_any_pieces(revision):
    async with talking(everything(), revision) as peer:
        data = json.dumps(peer.request("tools/list", id="x")).encode() + b"\r\n\n  \n"
        for byte in data:
            await peer.to_server.send_all(bytes([byte]))
        await peer.to_server.send_all(
            b"".join(json.dumps(peer.request("tools/list", id=n)).encode() + b"\n" for n in "abc")
        )
        await peer.settle()
    assert sorted(answer["id"] for answer in peer.answers if answer["id"] in set("xabc")) == list("abcx")


@requirement("H141")
@every_revision
async def test_a_line_that_is_too_long_is_answered_and_skipped(revision):
    async with talking(everything(), revision, max_body=1_000) as peer:
        for length in (1_001, 70_000, 200_000):
            await peer.to_server.send_all(b"x" * length + b"\n")
            await peer.settle()
            assert (peer.answers[-1]["id"], peer.answers[-1]["error"]["code"]) == (None, -32700)
        await peer.result("tools/list")
        assert [answer["error"]["code"] for answer in peer.answers if "error" in answer] == [-32700] * 3


async def test_the_state_of_a_session_is_bounded_as_over_http(caplog):
    server = Server("s")

    @server.tool
    async def keep(key: str, size: int, ctx: Context) -> int:
        assert ctx.session is not None
        await ctx.session.set(key, "x" * size)
        return len(await ctx.session.get(key))

    @server.tool
    async def look(key: str, ctx: Context) -> int:
        assert ctx.session is not None
        return len(await ctx.session.get(key, ""))

    async with talking(server, "2025-11-25") as peer:
        assert (await peer.call("keep", {"key": "a", "size": 30_000}))["structuredContent"] == {"result": 30_000}
        for key in ("a", "b"):
            assert (await peer.call("keep", {"key": key, "size": 70_000}))["isError"]
        assert (await peer.call("keep", {"key": "b", "size": 40_000}))["isError"]
        assert (await peer.call("look", {"key": "a"}))["structuredContent"] == {"result": 30_000}
        assert (await peer.call("look", {"key": "b"}))["structuredContent"] == {"result": 0}
    assert "of at most 65536" in caplog.text


@requirement("H131", "H132", "A15")
async def test_a_modern_connection_carries_responses_and_notifications_only():
    async with talking(everything(), capabilities={"sampling": {}, "roots": {}, "elicitation": {}}) as peer:
        await peer.call("report", {"steps": 2}, meta={"progressToken": "t", MCP + "logLevel": "debug"})
        assert [message["method"] for message in peer.sent] == ["notifications/progress", "notifications/message"] * 2
        assert not any("id" in message for message in peer.sent)


@requirement("H136")
async def test_a_client_that_no_longer_reads_is_no_error():
    to_server, stdin = memory_stream_one_way_pair()
    stdout, from_server = memory_stream_one_way_pair()
    await from_server.aclose()
    await to_server.send_all(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    await to_server.aclose()
    with trio.fail_after(5):
        await serve_stdio(everything(), receiver=stdin, sender=stdout)
