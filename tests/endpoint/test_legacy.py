"""Legacy clients over HTTP: initialization, sessions, and what belongs to whom."""

import json
import re
from typing import Any

import pytest
import trio

from mcpd import Context, Server
from tests import wire
from tests.harness import rpc, serving
from tests.requirements import requirement
from tests.server.everything import everything

every_legacy = pytest.mark.parametrize("revision", wire.LEGACY)
CLIENT = {"capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}


def initialize(version: str = "2025-11-25", **more: Any) -> dict[str, Any]:
    return rpc("initialize", {"protocolVersion": version, **CLIENT, **more}, id=1)


# ----- Initialization


@requirement("C33", "C36", "F93", "F94", "D63")
@every_legacy
async def test_initialize_opens_a_session_and_says_its_id_in_a_header(revision, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        response = await http.request("POST", json=initialize(revision))
        assert response.status == 200
        wire.check(revision, "initialize", response.json)
        assert response.json["result"]["protocolVersion"] == revision
        assert re.fullmatch(r"[\x21-\x7e]+", response.headers["mcp-session-id"])
        assert await http.count() == 1


@requirement("F94", "F95")
async def test_session_ids_are_many_and_long_and_never_the_same(front, autojump_clock):
    async with serving(everything(), front=front) as http:
        ids = {(await http.request("POST", json=initialize())).headers["mcp-session-id"] for _ in range(200)}
        assert len(ids) == 200
        for each in ids:
            assert re.fullmatch(r"[A-Za-z0-9_-]{22,}", each), "128 bits of base64 at the least"
        # No place in the ids that all have in common: a counter or a time would show.
        for place in range(min(map(len, ids))):
            assert len({each[place] for each in ids}) > 10


@requirement("C34", "C35")
@pytest.mark.parametrize("asked", ["2024-10-07", "2099-01-01", "", "2026-07-28"])
async def test_an_unknown_version_gets_the_latest_that_has_sessions(asked, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        session = await http.initialize(asked)
        assert session.version == "2025-11-25"
        assert (await session.post("ping")).result == {}


REFUSED = {
    "no params": rpc("initialize", id=1),
    "half of the params": rpc("initialize", {"protocolVersion": "2025-11-25"}, id=1),
    "a version that is a number": initialize(protocolVersion=7),
    "nobody": initialize(clientInfo={}),
    "a _meta that is a list": initialize(_meta=[]),
    "capabilities without end": initialize(capabilities={"experimental": {"x": "y" * 100_000}}),
    "an integer beyond 64 bits": initialize(capabilities={"experimental": {"x": {"n": 10**30}}}),
    "a name without end": initialize(clientInfo={"name": "x" * 100_000, "version": "1"}),
}


@requirement("D62", "A9")
@pytest.mark.parametrize("message", REFUSED.values(), ids=REFUSED)
async def test_an_initialize_that_is_refused_leaves_nothing_behind(message, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        response = await http.request("POST", json=message)
        assert response.status == 400
        assert (response.json["id"], response.json["error"]["code"]) == (1, -32602)
        wire.check("2025-11-25", "initialize", response.json)
        assert await http.count() == 0


async def test_an_initialize_that_is_a_notification_opens_nothing(front, autojump_clock):
    async with serving(everything(), front=front) as http:
        response = await http.request("POST", json=rpc("initialize", {"protocolVersion": "2025-11-25", **CLIENT}))
        assert response.status == 400
        assert await http.count() == 0


@requirement("F93", "F98")
@pytest.mark.parametrize("old", ["", "nonsense", "x" * 24])
async def test_an_initialize_with_an_id_of_long_ago_opens_a_new_session(old, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        response = await http.request("POST", json=initialize(), headers={"Mcp-Session-Id": old})
        assert response.status == 200
        assert response.headers["mcp-session-id"] != old


@requirement("C38", "K160")
@every_legacy
async def test_requests_are_answered_before_initialized(revision, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        session = await http.initialize(revision, initialized=False)
        for method in ("ping", "tools/list"):
            wire.check(revision, method, (await session.post(method)).json)


# ----- Each request


@requirement("A5", "C39", "D63", "A14")
@every_legacy
async def test_each_method_answers_in_the_words_of_the_session(revision, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        session = await http.initialize(revision)
        for method, params in {
            "ping": {},
            "tools/list": {},
            "tools/call": {"name": "blocks"},
            "prompts/list": {},
            "prompts/get": {"name": "ask", "arguments": {"topic": "x"}},
            "resources/list": {},
            "resources/templates/list": {},
            "resources/read": {"uri": "note://1"},
            "resources/subscribe": {"uri": "note://1"},
            "resources/unsubscribe": {"uri": "note://1"},
            "logging/setLevel": {"level": "error"},
        }.items():
            response = await session.post(method, params, id=f"id of {method}")
            assert response.status == 200
            assert response.json["id"] == f"id of {method}"
            assert "result" in wire.check(revision, method, response.json)
            assert "mcp-session-id" not in response.headers or response.headers["mcp-session-id"] == session.id


@requirement("G129", "A9")
@every_legacy
async def test_errors_of_the_protocol_have_status_200(revision, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        session = await http.initialize(revision)
        for method, params, code in (
            ("nonsense", {}, -32601),
            ("server/discover", {}, -32601),
            ("tools/call", {"name": "nothing"}, -32602),
            ("resources/read", {"uri": "nothing://"}, -32002),
            ("logging/setLevel", {"level": "loud"}, -32602),
        ):
            response = await session.post(method, params)
            assert response.status == 200
            assert wire.check(revision, method, response.json)["error"]["code"] == code


@requirement("D61", "A8", "I142")
@every_legacy
@pytest.mark.parametrize(
    "message",
    [
        rpc("notifications/initialized"),
        rpc("notifications/unknown"),
        rpc("tools/list"),
        rpc("notifications/cancelled"),
        rpc("notifications/cancelled", {"requestId": "nobody's"}),
        rpc("notifications/cancelled", {"requestId": 10**30}),
        rpc("notifications/cancelled", {"requestId": [1]}),
        rpc("notifications/roots/list_changed"),
        {"jsonrpc": "2.0", "id": "nobody's", "result": {}},
        {"jsonrpc": "2.0", "id": 10**30, "result": {}},
        {"jsonrpc": "2.0", "id": 7, "error": {"code": -1, "message": "no"}},
    ],
    ids=json.dumps,
)
async def test_notifications_and_responses_are_accepted_without_a_word(revision, message, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        session = await http.initialize(revision)
        response = await session.send(message)
        assert (response.status, response.body) == (202, b"")


@requirement("E89", "D62")
@pytest.mark.parametrize("version", ["", "1", "2025-11-26", "9999-99-99", "2025-11-25, 2025-11-25", "latest", "é"])
async def test_a_version_header_that_nobody_knows_is_refused(version, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        session = await http.initialize()
        headers = session.headers({"MCP-Protocol-Version": version})
        for method, request in (("POST", {"json": rpc("ping", id=1)}), ("GET", {}), ("DELETE", {})):
            response = await http.request(method, headers=headers, **request)
            assert response.status == 400, method
        assert await http.count() == 1


@requirement("E90", "E91")
@pytest.mark.parametrize("version", [None, *wire.LEGACY])
async def test_the_negotiated_version_rules_whatever_the_header_says(version, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        session = await http.initialize("2024-11-05")
        response = await session.post("tools/list", headers={"MCP-Protocol-Version": version})
        wire.check("2024-11-05", "tools/list", response.json)
        assert not any("title" in tool for tool in response.result["tools"])


@requirement("E90")
async def test_without_sessions_and_header_it_is_2025_03_26(front, autojump_clock):
    server = Server("s")

    @server.tool
    async def revision(ctx: Context) -> str:
        return f"{ctx.protocol_version} {ctx.session}"

    call = rpc("tools/call", {"name": "revision"}, id=1)
    async with serving(server, front=front, sessions=False) as http:
        response = await http.request("POST", json=initialize())
        assert "mcp-session-id" not in response.headers
        assert (await http.request("POST", json=call)).text == "2025-03-26 None"
        response = await http.request("POST", json=call, headers={"MCP-Protocol-Version": "2025-06-18"})
        assert response.text == "2025-06-18 None"
        assert (await http.request("GET", headers={"Accept": "text/event-stream"})).status == 405
        assert (await http.request("POST", json=rpc("notifications/initialized"))).status == 202
        assert await http.count() == 0


# ----- Sessions


@requirement("F96", "D62")
async def test_without_the_id_there_is_no_session(front, autojump_clock):
    async with serving(everything(), front=front) as http:
        for message in (
            rpc("tools/list", id=1),
            rpc("notifications/initialized"),
            {"jsonrpc": "2.0", "id": 1, "result": {}},
        ):
            response = await http.request("POST", json=message)
            assert response.status == 400
            assert "error" in response.json
        assert (await http.request("DELETE")).status == 400
        assert await http.count() == 0


UNKNOWN = ["nonsense", "", "x" * 24, "x" * 5_000, "\u00e9" * 24, "../../etc", "a b", "x" * 23 + "*"]


@requirement("F97", "F98", "D62")
@pytest.mark.parametrize("unknown", UNKNOWN, ids=lambda unknown: ascii(unknown[:25]))
async def test_an_unknown_id_is_not_found_on_every_method(unknown, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        headers = {"Mcp-Session-Id": unknown.encode("latin-1"), "Accept": "application/json, text/event-stream"}
        for method, request in (("POST", {"json": rpc("ping", id=1)}), ("GET", {}), ("DELETE", {})):
            response = await http.request(method, headers=headers, **request)
            assert response.status == 404, method
            assert "error" in response.json
        assert await http.count() == 0


async def test_an_id_that_stands_twice_is_refused(front, autojump_clock):
    async with serving(everything(), front=front) as http:
        one, two = await http.initialize(), await http.initialize()
        headers = [("Mcp-Session-Id", one.id), ("Mcp-Session-Id", two.id)]
        assert (await http.request("POST", json=rpc("ping", id=1), headers=headers)).status == 400
        assert (await http.request("DELETE", headers=headers)).status == 400
        assert await http.count() == 2


@requirement("F97", "F99", "F100")
async def test_a_session_that_was_ended_is_gone_everywhere(front, autojump_clock):
    async with serving(everything(), front=front) as http:
        session, other = await http.initialize(), await http.initialize()
        response = await session.delete()
        assert response.status in {200, 202, 204}
        assert response.body == b""
        assert (await session.post("ping")).status == 404
        assert (await session.notify("notifications/initialized")).status == 404
        assert (await session.delete()).status == 404
        async with session.get() as stream:
            assert stream.status == 404
        assert (await other.post("ping")).result == {}
        assert await http.count() == 1


@requirement("F97", "F99", "F105")
async def test_a_session_that_was_idle_for_long_is_gone_everywhere(front, autojump_clock):
    async with serving(everything(), front=front, session_idle=600.0) as http:
        session = await http.initialize()
        for _ in range(5):
            await trio.sleep(599)
            assert (await session.post("ping")).result == {}
        await trio.sleep(601)
        assert (await session.post("ping")).status == 404
        assert (await session.delete()).status == 404
        async with session.get() as stream:
            assert stream.status == 404
        assert await http.count() == 0


@requirement("F105")
async def test_after_a_restart_an_old_session_is_not_taken_for_a_new_one(front, autojump_clock):
    async with serving(everything(), front=front) as http:
        headers = (await http.initialize()).headers()
    async with serving(everything(), front=front) as http:
        assert (await http.request("POST", json=rpc("ping", id=1), headers=headers)).status == 404
        assert await http.count() == 0


@requirement("F99", "E73")
async def test_the_end_of_a_session_ends_its_streams_and_answers_its_calls(front, autojump_clock):
    server = everything()
    became: list[str] = []

    @server.tool
    async def wait() -> str:
        try:
            await trio.sleep_forever()
        finally:
            became.append("cancelled")
        return ""

    async with serving(server, front=front) as http:
        session = await http.initialize()
        async with session.get() as listening, session.open_call("wait", id="w") as call:
            assert (await call.event()) is not None  # priming, once it has become a stream
            assert (await session.delete()).status == 204
            assert await listening.rest() == []
            (answer,) = await call.rest()
            assert answer["id"] == "w"
            assert "terminated" in wire.check("2025-11-25", "tools/call", answer)["error"]["message"]
        assert became == ["cancelled"]


@requirement("F101", "F104", "A3")
async def test_sessions_with_the_same_request_ids_never_get_each_others_answers(front, autojump_clock):
    server = Server("s")
    go = trio.Event()

    @server.tool
    async def whose(name: str, ctx: Context) -> str:
        await ctx.progress(1, message=name)
        await go.wait()
        return name

    async with serving(server, front=front) as http, trio.open_nursery() as nursery:
        answers: dict[str, Any] = {}

        async def one(name: str) -> None:
            session = await http.initialize()
            async with session.open_call("whose", {"name": name}, id=1, progress="t") as stream:
                answers[name] = await stream.rest()

        for n in range(10):
            nursery.start_soon(one, f"client {n}")
        await trio.sleep(5)
        go.set()
    for name, (progress, answer) in ((name, got) for name, got in answers.items()):
        assert progress["params"]["message"] == name
        assert answer["result"]["content"][0]["text"] == name
        assert answer["id"] == 1


@requirement("F104", "C39", "L164")
async def test_what_a_session_sets_is_its_own(front, autojump_clock):
    server = Server("s")

    @server.tool
    async def speak(ctx: Context) -> Any:
        await ctx.info("info")
        assert ctx.session is not None
        return await ctx.session.update("n", lambda n: n + 1, 0)

    async with serving(server, front=front) as http:
        one, two = await http.initialize(), await http.initialize()
        await one.post("logging/setLevel", {"level": "error"})
        assert [len((await session.call("speak")).messages) for session in (one, two, one, two)] == [1, 2, 1, 2]
        assert (await one.call("speak")).text == "3"
        assert (await two.call("speak")).text == "3"


# ----- Batches


@requirement("A17", "A8")
async def test_a_batch_of_2025_03_26_is_answered_in_one_array(front, autojump_clock):
    async with serving(everything(), front=front) as http:
        session = await http.initialize("2025-03-26")
        batch = [rpc("ping", id="a"), rpc("notifications/unknown"), rpc("tools/list", id="b"), rpc("nonsense", id="c")]
        response = await session.send(batch)
        assert response.status == 200
        answers = {answer["id"]: answer for answer in response.json}
        assert set(answers) == {"a", "b", "c"}
        wire.check("2025-03-26", "ping", answers["a"])
        wire.check("2025-03-26", "tools/list", answers["b"])
        assert answers["c"]["error"]["code"] == -32601
        response = await session.send([rpc("notifications/unknown"), {"jsonrpc": "2.0", "id": 1, "result": {}}])
        assert (response.status, response.body) == (202, b"")


async def test_there_is_an_end_to_calls_in_flight(front, autojump_clock):
    server = Server("s")

    @server.tool
    async def wait() -> str:
        await trio.sleep(10)
        return "done"

    call = {"name": "wait", "arguments": {}}
    async with serving(server, front=front, max_calls=2) as http:
        session = await http.initialize("2025-03-26")
        refused = await session.send([rpc("tools/call", call, id=n) for n in range(3)])
        assert (refused.status, refused.json["error"]["code"]) == (503, -32603)
        assert refused.headers["retry-after"] == "5"
        async with session.open_call("wait"), session.open_call("wait") as last:
            await trio.sleep(5)
            modern = await http.call("wait")
            legacy = await session.call("wait")
            assert [modern.status, legacy.status] == [503, 503]
            # What calls wait for still comes through.
            assert (await session.send(rpc("notifications/cancelled", {"requestId": "no"}))).status == 202
            assert (await last.message())["result"]["content"][0]["text"] == "done"
        assert (await session.call("wait")).status == 200


@requirement("A17")
async def test_one_bad_request_in_a_batch_does_not_take_the_others_with_it(front, autojump_clock):
    async with serving(everything(), front=front) as http:
        session = await http.initialize("2025-03-26")
        bad = rpc("ping", {"_meta": {"progressToken": {}}}, id="bad")
        response = await session.send([rpc("ping", id="good"), bad])
        assert {message["id"] for message in response.json} == {"good", "bad"}


@requirement("A17")
@pytest.mark.parametrize("revision", [revision for revision in wire.LEGACY if revision != "2025-03-26"])
async def test_no_other_revision_has_batches(revision, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        session = await http.initialize(revision)
        response = await session.send([rpc("ping", id=1)])
        assert response.status == 400
        assert response.json["error"]["code"] == -32600


@requirement("A18")
async def test_initialize_is_no_part_of_a_batch(front, autojump_clock):
    async with serving(everything(), front=front) as http:
        session = await http.initialize("2025-03-26")
        for headers in ({}, session.headers()):
            response = await http.request("POST", json=[initialize("2025-03-26")], headers=headers)
            assert response.status == 400
        assert await http.count() == 1


# ----- Cancellation


@requirement("I143", "I142", "I146", "E81")
@every_legacy
async def test_a_cancelled_call_gets_no_answer_and_its_response_ends(revision, front, autojump_clock):
    server = everything()
    became: list[str] = []

    @server.tool
    async def wait(ctx: Context) -> str:
        await ctx.progress(1)
        try:
            await trio.sleep_forever()
        finally:
            became.append("cancelled")
        return ""

    async with serving(server, front=front) as http:
        session, other = await http.initialize(revision), await http.initialize(revision)
        async with session.open_call("wait", id="w", progress="t") as stream:
            assert (await stream.message())["method"] == "notifications/progress"
            await other.notify("notifications/cancelled", {"requestId": "w"})
            await trio.sleep(1)
            assert became == [], "another session's client has cancelled it"
            await session.notify("notifications/cancelled", {"requestId": "w", "reason": "enough"})
            assert await stream.rest() == []
        assert became == ["cancelled"]
        assert (await session.post("ping")).result == {}
