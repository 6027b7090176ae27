"""`subscriptions/listen` over HTTP (2026-07-28, basic/patterns/subscriptions)."""

import json
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpd import Context, Server
from mcpd.endpoint.listen import _Ending
from mcpd.endpoint.stream import EventStream
from mcpd.listening import Listening
from mcpd.server.call import Call
from mcpd.sessions.record import MAX_SUBSCRIPTIONS
from mcpd_stores.memory import MemoryStore
from tests import wire
from tests.harness import META, call_params, living, modern_request, rpc, serving
from tests.requirements import requirement

LISTEN = "subscriptions/listen"
ID = META + "subscriptionId"
EVERYTHING = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["note://1"],
}
IDS = pytest.mark.parametrize("id", [0, 1, "x", "0", "", 2**53, "ü"], ids=ascii)


def a_server() -> Server:
    server = Server("s", version="1")

    @server.tool
    async def touch(ctx: Context, uri: str = "note://1") -> None:
        await ctx.progress(1)
        await ctx.info("touched")
        await ctx.notify_resource_updated(uri)

    @server.tool
    async def spare() -> None: ...

    @server.prompt
    async def ask() -> str:
        return "?"

    @server.resource("note://1")
    async def note() -> str:
        return "x"

    @server.resource("page://{n}")
    async def page(n: str) -> str:
        return n

    return server


def listening(http: Any, *, id: Any = 1, **notifications: Any) -> Any:
    return http.open_modern(LISTEN, {"notifications": notifications}, id=id)


async def acknowledged(stream: Any, id: Any = 1) -> dict[str, Any]:
    """What the server honours: the first message."""
    assert stream.status == 200
    assert stream.headers["content-type"] == "text/event-stream"
    message = await stream.message()
    assert message["method"] == "notifications/subscriptions/acknowledged"
    told(message, id)
    honoured: dict[str, Any] = message["params"]["notifications"]
    return honoured


def told(message: dict[str, Any], id: Any) -> str:
    """A notification of the subscription: checked, and its method."""
    wire.check(wire.MODERN, LISTEN, message)
    if "method" in message:
        assert "id" not in message
    meta = (message["params"] if "method" in message else message["result"])["_meta"]
    assert meta[ID] == id
    assert type(meta[ID]) is type(id)
    return str(message.get("method", "result")).removeprefix("notifications/")


async def quiet(stream: Any) -> None:
    """Nothing but comments comes until the next heartbeat."""
    await stream.heartbeat(within=100)
    assert not stream._reader.events, [event.data for event in stream._reader.events]


# ----- The acknowledgement


@requirement("S233", "S234", "S235", "B31", "D68", "D72")
@IDS
async def test_the_acknowledgement_comes_first_and_everything_carries_the_id(front, id, autojump_clock):
    server = a_server()
    async with serving(server, front=front) as http, listening(http, id=id, **EVERYTHING) as stream:
        assert await acknowledged(stream, id) == EVERYTHING
        assert stream.headers["x-accel-buffering"] == "no"
        server.remove_tool("spare")
        server.remove_prompt("ask")
        server.remove_resource("page://{n}")
        server.notify_resource_updated("note://1")
        messages = [await stream.message() for _ in range(4)]
        assert [told(message, id) for message in messages] == [
            "tools/list_changed",
            "prompts/list_changed",
            "resources/list_changed",
            "resources/updated",
        ]
        assert messages[3]["params"]["uri"] == "note://1"
        assert all(event_id is None for event_id in [stream.last_id])  # nothing of it can be resumed


@requirement("S234")
async def test_what_changes_before_the_acknowledgement_comes_after_it(front, autojump_clock):
    server = a_server()
    async with serving(server, front=front) as http:
        server.notify_tools_changed()
        async with listening(http, toolsListChanged=True) as stream:
            server.notify_tools_changed()
            await acknowledged(stream)
            assert told(await stream.message(), 1) == "tools/list_changed"


@requirement("S233")
@pytest.mark.parametrize("asked", [*EVERYTHING])
async def test_only_what_was_asked_for_is_told(front, asked, autojump_clock):
    server = a_server()
    async with serving(server, front=front) as http, listening(http, **{asked: EVERYTHING[asked]}) as stream:
        assert await acknowledged(stream) == {asked: EVERYTHING[asked]}
        for _ in range(2):
            server.notify_tools_changed()
            server.notify_prompts_changed()
            server.notify_resources_changed()
            server.notify_resource_updated("note://1")
            server.notify_resource_updated("note://2")
            await wait_all_tasks_blocked()
        expected = {
            "toolsListChanged": "tools/list_changed",
            "promptsListChanged": "prompts/list_changed",
            "resourcesListChanged": "resources/list_changed",
            "resourceSubscriptions": "resources/updated",
        }[asked]
        assert [told(await stream.message(), 1) for _ in range(2)] == [expected] * 2
        await quiet(stream)


@requirement("S236")
async def test_what_there_is_not_is_not_acknowledged(front, autojump_clock):
    server = Server("tools only")

    @server.tool
    async def one() -> None: ...

    async with serving(server, front=front) as http, listening(http, **EVERYTHING, somethingNew=True) as stream:
        assert await acknowledged(stream) == {"toolsListChanged": True}
        server.notify_prompts_changed()
        server.notify_resource_updated("note://1")
        await quiet(stream)


@requirement("S236", "S238")
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"toolsListChanged": False},
        {"resourceSubscriptions": []},
        {"somethingNew": True},
        {"promptsListChanged": True, "resourcesListChanged": True},
    ],
    ids=json.dumps,
)
async def test_a_subscription_to_nothing_is_acknowledged_and_ends(front, asked, autojump_clock):
    server = Server("tools only")

    @server.tool
    async def one() -> None: ...

    async with serving(server, front=front) as http, listening(http, id="n", **asked) as stream:
        assert await acknowledged(stream, "n") == {}
        (result,) = await stream.rest()
        assert told(result, "n") == "result"
        assert result["id"] == "n"
        assert result["result"] == {"resultType": "complete", "_meta": {ID: "n"}}
        assert trio.current_time() < 1


@requirement("N205", "S233")
async def test_resources_are_told_by_their_uri_also_of_a_template(front, autojump_clock):
    server = a_server()
    uris = ["page://7", "note://1"]
    async with serving(server, front=front) as http, listening(http, resourceSubscriptions=uris) as stream:
        assert await acknowledged(stream) == {"resourceSubscriptions": uris}
        for uri in ("page://8", "page://7", "note://1", "note://"):
            server.notify_resource_updated(uri)
            await wait_all_tasks_blocked()
        assert [(await stream.message())["params"]["uri"] for _ in range(2)] == uris
        await quiet(stream)


# ----- Refusals


@requirement("S243")
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"notifications": None},
        {"notifications": []},
        {"notifications": True},
        {"notifications": {"toolsListChanged": "yes"}},
        {"notifications": {"toolsListChanged": 1}},
        {"notifications": {"resourceSubscriptions": "note://1"}},
        {"notifications": {"resourceSubscriptions": [1]}},
        {"notifications": {"taskIds": {}}},
        {"notifications": {"resourceSubscriptions": ["x"] * (MAX_SUBSCRIPTIONS + 1)}},
    ],
    ids=lambda params: json.dumps(params)[:60],
)
async def test_a_filter_that_is_none_is_refused(front, params):
    async with serving(a_server(), front=front) as http:
        response = await http.modern(LISTEN, params, id="n")
        assert response.headers["content-type"] == "application/json"
        assert (response.status, response.answer["id"], response.error["code"]) == (400, "n", -32602)
        wire.check(wire.MODERN, LISTEN, response.answer)
        assert not http.endpoint.core.subscriptions._subscribers


@requirement("S242", "B29")
@pytest.mark.parametrize("tasks", [["t1"], []], ids=json.dumps)
async def test_tasks_are_for_those_who_declare_the_extension(front, tasks):
    server = a_server()

    @server.tool(task="optional")
    async def job() -> None: ...

    async with serving(server, front=front) as http:
        for more in ({}, {"toolsListChanged": True}):
            response = await http.modern(LISTEN, {"notifications": {"taskIds": tasks, **more}})
            assert (response.status, response.error["code"]) == (400, -32021)
            required = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
            assert response.error["data"] == {"requiredCapabilities": required}


@requirement("D64")
async def test_who_takes_no_stream_cannot_listen(front):
    async with serving(a_server(), front=front) as http:
        response = await http.modern(
            LISTEN, {"notifications": {"toolsListChanged": True}}, headers={"Accept": "application/json"}
        )
        assert response.status == 406
        assert not http.endpoint.core.subscriptions._subscribers


@requirement("C53", "S233")
async def test_a_legacy_session_has_no_such_method(front):
    async with serving(a_server(), front=front) as http:
        session = await http.initialize()
        response = await session.post(LISTEN, {"notifications": {"toolsListChanged": True}})
        assert response.error["code"] == -32601


# ----- Several


@requirement("S239", "C50")
async def test_subscriptions_are_independent(front, autojump_clock):
    server = a_server()
    async with (
        serving(server, front=front) as http,
        listening(http, id="a", toolsListChanged=True) as one,
        listening(http, id=2, promptsListChanged=True, resourceSubscriptions=["note://1"]) as two,
        listening(http, id="a", toolsListChanged=True) as three,  # ids are each client's own
    ):
        await acknowledged(one, "a")
        await acknowledged(two, 2)
        await acknowledged(three, "a")
        server.notify_tools_changed()
        server.notify_prompts_changed()
        assert told(await one.message(), "a") == "tools/list_changed"
        assert told(await three.message(), "a") == "tools/list_changed"
        assert told(await two.message(), 2) == "prompts/list_changed"
        one.cut()
        await wait_all_tasks_blocked()
        server.notify_tools_changed()
        server.notify_resource_updated("note://1")
        assert told(await three.message(), "a") == "tools/list_changed"
        assert told(await two.message(), 2) == "resources/updated"
        await quiet(two)
        await quiet(three)


@requirement("S233", "C50")
async def test_a_change_on_one_replica_is_told_on_all(front, autojump_clock):
    store, server = MemoryStore(), a_server()
    async with (
        serving(server, front=front, store=store) as one,
        serving(a_server(), front=front, store=store) as two,
        listening(two, resourceSubscriptions=["note://1"], toolsListChanged=True) as stream,
    ):
        await acknowledged(stream)
        await one.call("touch")
        assert told(await stream.message(), 1) == "resources/updated"
        server.remove_tool("spare")
        assert told(await stream.message(), 1) == "tools/list_changed"


@requirement("S237", "J159", "L168")
async def test_progress_and_logs_of_calls_never_come_here(front, autojump_clock):
    async with serving(a_server(), front=front) as http, listening(http, **EVERYTHING) as stream:
        await acknowledged(stream)
        params = call_params("touch", progress="t")
        response = await http.modern("tools/call", params, meta={META + "logLevel": "debug"})
        assert [message.get("method") for message in response.messages] == [
            "notifications/progress",
            "notifications/message",
            None,
        ]
        assert told(await stream.message(), 1) == "resources/updated"
        await quiet(stream)


async def test_many_updates_at_once_are_one(front, autojump_clock):
    server = a_server()
    async with serving(server, front=front) as http, listening(http, resourceSubscriptions=["note://1"]) as stream:
        await acknowledged(stream)
        for _ in range(1_000):
            server.notify_resource_updated("note://1")
        assert told(await stream.message(), 1) == "resources/updated"
        await quiet(stream)


# ----- The end


@requirement("S238", "S241")
async def test_at_the_servers_end_each_subscription_gets_its_result(front, autojump_clock):
    async with (
        serving(a_server(), front=front) as http,
        listening(http, id="a", toolsListChanged=True) as one,
        listening(http, id=0, promptsListChanged=True) as two,
    ):
        await acknowledged(one, "a")
        await acknowledged(two, 0)
        await http.endpoint.drain()
        for stream, own in ((one, "a"), (two, 0)):
            (result,) = await stream.rest()
            told(result, own)
            assert result["id"] == own
            assert result["result"] == {"resultType": "complete", "_meta": {ID: own}}
        # Who comes later hears so at once.
        async with listening(http, id=3, toolsListChanged=True) as late:
            if late.status == 200:
                await acknowledged(late, 3)
                assert told((await late.rest())[0], 3) == "result"
            else:
                assert late.status == 503
        await wait_all_tasks_blocked()
        assert not http.endpoint.core.subscriptions._subscribers
        assert not http.endpoint.streams


@requirement("S238")
async def test_what_was_told_before_the_end_still_arrives(front, autojump_clock):
    server = a_server()
    async with serving(server, front=front) as http, listening(http, toolsListChanged=True) as stream:
        await acknowledged(stream)
        server.notify_tools_changed()
        await wait_all_tasks_blocked()
        await http.endpoint.drain()
        assert [told(message, 1) for message in await stream.rest()] == ["tools/list_changed", "result"]


@requirement("S240", "G127", "D69")
async def test_a_subscription_is_gone_with_its_connection(front, autojump_clock):
    server = a_server()
    async with serving(server, front=front, heartbeat=15.0) as http:
        async with listening(http, toolsListChanged=True) as stream:
            await acknowledged(stream)
            await stream.heartbeat()
            stream.cut()
        await http.settle()
        assert not http.endpoint.core.subscriptions._subscribers
        assert not http.endpoint.streams
        server.notify_tools_changed()
        await wait_all_tasks_blocked()
        # Nothing is replayed, whatever the client says it has seen last.
        request = {"notifications": {"toolsListChanged": True}}
        async with http.open_modern(LISTEN, request, headers={"Last-Event-ID": "1"}) as again:
            await acknowledged(again)
            assert again.last_id is None
            await quiet(again)


@requirement("S240")
@pytest.mark.usefixtures("no_gc")
async def test_nothing_of_a_subscription_is_left(front, autojump_clock):
    server = a_server()
    kinds = (Listening, EventStream, Call, _Ending)
    async with serving(server, front=front) as http:
        for number in range(20):
            async with listening(http, id=number, **EVERYTHING) as stream:
                await acknowledged(stream, number)
                server.notify_tools_changed()
                await stream.message()
                if number % 2:
                    stream.cut()
            async with listening(http, id=number) as stream:
                await acknowledged(stream, number)
                await stream.rest()
            await http.modern(LISTEN, {"notifications": None})
        await http.settle()
        assert living(*kinds) == {}
        assert not http.endpoint.core.subscriptions._subscribers
        assert not http.endpoint.streams


@requirement("S240")
async def test_a_client_that_does_not_read_costs_a_bounded_number_of_bytes(autojump_clock):
    server = a_server()
    uri = "note://" + "x" * 10_000
    # Hypercorn lets no write be cancelled: there the connection stays until the kernel gives it up.
    async with serving(server, front="direct", max_buffer=50_000, write_timeout=30.0) as http:
        request = {"notifications": {"resourceSubscriptions": [uri]}}
        async with http.open("POST", window=20_000, **modern_request(LISTEN, request)) as stream:
            for _ in range(100):
                server.notify_resource_updated(uri)
                await wait_all_tasks_blocked()
            await trio.sleep(31)
            await wait_all_tasks_blocked()
            assert not http.endpoint.core.subscriptions._subscribers
            stream.cut()


@requirement("A15", "G124", "G128")
async def test_a_listener_is_asked_nothing_and_answers_nothing(front, autojump_clock):
    async with serving(a_server(), front=front) as http, listening(http, **EVERYTHING) as stream:
        await acknowledged(stream)
        response = await http.request(
            "POST",
            headers={"MCP-Protocol-Version": wire.MODERN},
            json={"jsonrpc": "2.0", "id": 1, "result": {"_meta": {}}},
        )
        assert response.status == 400
        await http.request("POST", headers={"MCP-Protocol-Version": wire.MODERN}, json=rpc("notifications/cancelled"))
        await quiet(stream)
