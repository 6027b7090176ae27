"""Modern clients over HTTP: the envelope, the headers that mirror it, statuses, and closing the stream."""

import base64
import json
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpd import Context, Server
from tests import wire
from tests.harness import META, modern_request, rpc, serving
from tests.requirements import requirement
from tests.server.everything import everything

MODERN = "2026-07-28"
METHODS: dict[str, dict[str, Any]] = {
    "server/discover": {},
    "tools/list": {},
    "tools/call": {"name": "add", "arguments": {"a": 1, "b": 2}},
    "prompts/list": {},
    "prompts/get": {"name": "ask", "arguments": {"topic": "x"}},
    "resources/list": {},
    "resources/templates/list": {},
    "resources/read": {"uri": "note://1"},
    "completion/complete": {"ref": {"type": "ref/prompt", "name": "ask"}, "argument": {"name": "topic", "value": "t"}},
}


async def refused(http: Any, status: int, code: int, request: dict[str, Any]) -> dict[str, Any]:
    """Send a request that must be refused, and give its error."""
    response = await http.request("POST", **request)
    assert (response.status, response.json["error"]["code"]) == (status, code), response.body
    assert response.json["id"] == request["json"].get("id")
    wire.check(MODERN, None, response.json)
    error: dict[str, Any] = response.json["error"]
    return error


# ----- What is answered


@requirement("A5", "A13", "B26", "C44", "C45", "C48", "C50", "D63", "F106")
@pytest.mark.parametrize("method", METHODS)
async def test_each_method_is_answered_without_anything_before_it(method, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        response = await http.modern(method, METHODS[method], id=f"id of {method}")
        assert response.status == 200
        assert response.headers["content-type"] == "application/json"
        assert "mcp-session-id" not in response.headers
        message = wire.check(MODERN, method, response.json)
        assert message["id"] == f"id of {method}"
        assert message["result"]["resultType"] == "complete"
        assert message["result"]["_meta"][META + "serverInfo"]["name"] == "everything"
        assert await http.count() == 0


@requirement("F106", "G127", "C49")
@pytest.mark.parametrize("headers", [{"Mcp-Session-Id": "nonsense"}, {"Last-Event-ID": "0.1"}], ids=str)
async def test_what_belongs_to_sessions_is_ignored(headers, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        for method, params in METHODS.items():
            response = await http.modern(method, params, headers=headers)
            assert response.status == 200
            assert "mcp-session-id" not in response.headers
        session = await http.initialize()
        response = await http.modern("tools/list", headers={"Mcp-Session-Id": session.id})
        wire.check(MODERN, "tools/list", response.json)


@requirement("C48", "C49", "C50", "B28")
async def test_both_eras_and_several_clients_share_a_connection_and_nothing_else(front, autojump_clock):
    server = everything()

    @server.tool
    async def who(ctx: Context) -> str:
        return f"{ctx.protocol_version} {ctx.client_capabilities.can_sample} {ctx.session is not None}"

    async with serving(server, front=front) as http, http.connect() as connection:
        session = await http.initialize("2025-06-18", {"sampling": {}}, on=connection)
        params = {"name": "who", "arguments": {}}
        for _ in range(2):
            assert (await session.call("who", on=connection)).text == "2025-06-18 True True"
            assert (await http.modern("tools/call", params, on=connection)).text == "2026-07-28 False False"
            capable = await http.modern("tools/call", params, on=connection, capabilities={"sampling": {}})
            assert capable.text == "2026-07-28 True False"


@requirement("M173", "N192", "O209", "C49")
async def test_lists_are_the_same_for_everybody(front, autojump_clock):
    async with serving(everything(), front=front) as http, http.connect() as connection:
        for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
            plain = (await http.modern(method)).result
            capable = (await http.modern(method, capabilities={"sampling": {}, "roots": {}}, on=connection)).result
            assert plain == capable


@requirement("R225", "R226", "R227", "R228", "R230", "R232")
@pytest.mark.parametrize(("ttl", "scope"), [(0.0, "private"), (60.0, "public"), (1.5, "private")])
async def test_how_long_and_by_whom_results_may_be_kept_is_the_operators_choice(ttl, scope, front, autojump_clock):
    async with serving(everything(page_size=1), front=front, cache_ttl=ttl, cache_scope=scope) as http:
        for method in ("server/discover", "tools/list", "prompts/list", "resources/list", "resources/read"):
            params = dict(METHODS[method])
            while True:
                result = wire.check(MODERN, method, (await http.modern(method, params)).json)["result"]
                assert (result["ttlMs"], result["cacheScope"]) == (ttl * 1000, scope)
                if "nextCursor" not in result:
                    break
                params = {"cursor": result["nextCursor"]}


# ----- The envelope


def enveloped(meta: Any, method: str = "tools/list", **params: Any) -> dict[str, Any]:
    request = modern_request(method, params)
    request["json"]["params"]["_meta"] = meta
    return request


GOOD = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}


@requirement("B23", "B24", "C48")
@pytest.mark.parametrize(
    "meta",
    [
        None,
        [],
        {},
        {META + "protocolVersion": MODERN},
        {META + "clientCapabilities": {}},
        GOOD | {META + "protocolVersion": None},
        GOOD | {META + "protocolVersion": 20260728},
        GOOD | {META + "clientCapabilities": None},
        GOOD | {META + "clientCapabilities": "none"},
        GOOD | {META + "clientCapabilities": {"elicitation": True}},
        GOOD | {META + "logLevel": "loud"},
        GOOD | {META + "logLevel": {"level": "info"}},
        GOOD | {"progressToken": 1.5},
    ],
    ids=json.dumps,
)
async def test_an_envelope_that_is_wrong_is_refused(meta, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        await refused(http, 400, -32602, enveloped(meta))
        request = enveloped(meta)
        del request["json"]["params"]["_meta"]
        await refused(http, 400, -32602, request)


@requirement("B25", "A16", "B21")
async def test_what_is_optional_or_unknown_in_the_envelope_is_no_reason_to_refuse(front, autojump_clock):
    async with serving(everything(), front=front) as http:
        for meta in (
            GOOD,
            GOOD | {META + "clientInfo": None},
            GOOD | {META + "clientInfo": {"name": 7}},
            GOOD | {META + "unknown": 1, "com.example/x": [], "": None, "traceparent": "00-x"},
            GOOD | {META + "clientCapabilities": {"unknown": 1, "extensions": {"com.example/e": {}}}},
        ):
            assert (await http.request("POST", **enveloped(meta))).status == 200


@requirement("C42", "C43", "C41")
@pytest.mark.parametrize("version", ["2026-07-29", "2099-01-01", "1999-01-01", "2025-11-25", "2024-11-05", "x"])
async def test_a_version_that_is_not_served_is_told_which_are(version, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        error = await refused(http, 400, -32022, modern_request("tools/list", version=version))
        assert error["data"] == {"supported": [MODERN], "requested": version}
        await refused(http, 400, -32022, modern_request("server/discover", version=version))


# ----- The headers


@requirement("G107", "G108", "G109", "G110", "G112", "G114", "C41")
@pytest.mark.parametrize(
    "headers",
    [
        {"MCP-Protocol-Version": None},
        {"MCP-Protocol-Version": "2025-11-25"},
        {"MCP-Protocol-Version": "2099-01-01"},
        {"MCP-Protocol-Version": ""},
        {"Mcp-Method": None},
        {"Mcp-Method": ""},
        {"Mcp-Method": "tools/list"},
        {"Mcp-Method": "TOOLS/CALL"},
        {"Mcp-Name": None},
        {"Mcp-Name": ""},
        {"Mcp-Name": "sub"},
        {"Mcp-Name": "ADD"},
        {"Mcp-Name": "add, add"},
        {"Mcp-Name": "=?base64?YWRk?"},
        {"Mcp-Name": "=?base64?YWR?="},
        {"Mcp-Name": "=?base64?****?="},
        {"Mcp-Name": "=?base64?c3Vi?="},
        {"Mcp-Name": "=?BASE64?YWRk?="},
    ],
    ids=str,
)
async def test_headers_that_do_not_agree_with_the_body_are_refused_before_anything_runs(headers, front, autojump_clock):
    server = everything()
    ran: list[int] = []
    server.remove_tool("add")

    @server.tool
    async def add(a: int, b: int) -> int:
        ran.append(a)
        return a + b

    async with serving(server, front=front) as http:
        await refused(http, 400, -32020, modern_request("tools/call", METHODS["tools/call"], headers=headers))
    assert ran == []


@requirement("G107", "C48")
async def test_a_post_that_says_nothing_of_any_era_is_a_legacy_one_without_a_session(front, autojump_clock):
    """Legacy clients are served here, so a missing header means 2025-03-26, whose sessions need an id."""
    async with serving(everything(), front=front) as http:
        response = await http.request("POST", json=rpc("tools/list", id=1))
        assert response.status == 400
        wire.check("2025-03-26", None, response.json)


@requirement("G114", "G115", "G113")
@pytest.mark.parametrize(
    "headers",
    [
        {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "add"},
        {"MCP-PROTOCOL-VERSION": f"  {MODERN}\t", "MCP-METHOD": "\ttools/call ", "MCP-NAME": " add  "},
        {"Mcp-Name": "=?base64?YWRk?="},
    ],
    ids=str,
)
async def test_header_names_have_no_case_and_white_space_around_a_value_is_none_of_it(headers, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        response = await http.modern("tools/call", METHODS["tools/call"], headers=headers)
        assert response.result["structuredContent"] == 3


@requirement("G116")
@pytest.mark.parametrize("name", ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"])
async def test_a_routing_header_that_stands_twice_is_refused(name, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        request = modern_request("tools/call", METHODS["tools/call"])
        (value,) = (value for each, value in request["headers"] if each == name)
        await refused(http, 400, -32020, request | {"headers": [*request["headers"], (name, value)]})


@requirement("G110", "G113")
async def test_names_that_no_header_could_hold_travel_in_base64(front, autojump_clock):
    server = everything()

    @server.resource("note://{name}")
    async def named(name: str) -> str:
        return name

    async with serving(server, front=front) as http:
        for uri in ("note://caf\u00e9", "note://\u6771\u4eac", "note://a b"):
            wrapped = f"=?base64?{base64.b64encode(uri.encode()).decode()}?="
            response = await http.modern("resources/read", {"uri": uri}, headers={"Mcp-Name": wrapped})
            assert response.status == 200, response.body
            assert response.json["result"]["contents"][0]["uri"] == uri


SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "limit": {"type": "integer", "x-mcp-header": "Limit"},
        "where": {"type": "object", "properties": {"dry": {"type": "boolean", "x-mcp-header": "Dry-Run"}}},
    },
}


def regional() -> Server:
    server = Server("s")

    @server.tool(input_schema=SCHEMA)
    async def take(arguments: dict[str, Any]) -> str:
        return json.dumps(arguments, sort_keys=True)

    return server


@requirement("G117", "G119", "G120", "G113", "G114")
@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({}, {}),
        ({"region": "eu"}, {"Mcp-Param-Region": "eu"}),
        ({"region": "eu"}, {"mcp-param-REGION": " eu "}),
        ({"region": ""}, {"Mcp-Param-Region": ""}),
        ({"region": "\u6771\u4eac"}, {"Mcp-Param-Region": "=?base64?5p2x5Lqs?="}),
        ({"limit": 42}, {"Mcp-Param-Limit": "42.0"}),
        ({"where": {"dry": True}}, {"Mcp-Param-Dry-Run": "true"}),
        ({"region": "eu"}, {"Mcp-Param-Region": "eu", "Mcp-Param-Other": "x", "Mcp-Param-": "y"}),
    ],
    ids=str,
)
async def test_parameters_in_headers_that_agree_pass(arguments, headers, front, autojump_clock):
    async with serving(regional(), front=front) as http:
        response = await http.call("take", arguments, headers=headers)
        assert json.loads(response.text) == arguments


@requirement("G112", "G117", "G118", "M186")
@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "eu"}, {}),
        ({"region": "eu"}, {"Mcp-Param-Region": "us"}),
        ({"region": "eu"}, {"Mcp-Param-Region": "EU"}),
        ({"region": "eu"}, {"Mcp-Param-Region": "=?base64?!?="}),
        ({"region": "\u00e9"}, {"Mcp-Param-Region": b"\xc3\xa9"}),
        ({}, {"Mcp-Param-Region": "eu"}),
        ({"region": None}, {"Mcp-Param-Region": "null"}),
        ({"limit": 42}, {"Mcp-Param-Limit": "43"}),
        ({"limit": 42}, {"Mcp-Param-Limit": "4_2"}),
        ({"where": {"dry": True}}, {"Mcp-Param-Dry-Run": "True"}),
        ({"where": "elsewhere"}, {"Mcp-Param-Dry-Run": "true"}),
    ],
    ids=str,
)
async def test_parameters_in_headers_that_differ_are_refused(arguments, headers, front, autojump_clock):
    async with serving(regional(), front=front) as http:
        params = {"name": "take", "arguments": arguments}
        await refused(http, 400, -32020, modern_request("tools/call", params, headers=headers))
        big = {"name": "take", "arguments": {"limit": 2**53}}
        await refused(http, 400, -32602, modern_request("tools/call", big, headers={"Mcp-Param-Limit": str(2**53)}))


@requirement("G118", "G116")
async def test_a_parameter_in_two_headers_is_refused(front, autojump_clock):
    async with serving(regional(), front=front) as http:
        request = modern_request("tools/call", {"name": "take", "arguments": {"region": "eu"}})
        twice = [("Mcp-Param-Region", "eu"), ("Mcp-Param-Region", "eu")]
        await refused(http, 400, -32020, request | {"headers": [*request["headers"], *twice]})


# ----- Statuses


@requirement("G121", "A9")
@pytest.mark.parametrize("method", ["nonsense", "tools/List", "rpc.discover", "x" * 3_000])
async def test_an_unknown_method_is_not_found(method, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        await refused(http, 404, -32601, modern_request(method))


@requirement("G121", "G122", "K160")
@pytest.mark.parametrize(
    "method",
    [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/list",
        "tasks/result",
    ],
)
async def test_what_was_removed_is_unknown(method, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        params = {"protocolVersion": MODERN, "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
        await refused(http, 404, -32601, modern_request(method, {"uri": "note://1", "level": "info", **params}))
        assert await http.count() == 0


@requirement("G129", "A9", "N194", "A11")
@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tools/call", {"name": "nothing"}, -32602),
        ("tools/call", {"name": "add", "arguments": []}, -32602),
        ("tools/list", {"cursor": "x"}, -32602),
        ("prompts/get", {"name": "nothing"}, -32602),
        ("resources/read", {"uri": "nothing://1"}, -32602),
        ("resources/read", {"uri": "broken://1"}, -32603),
    ],
    ids=str,
)
async def test_other_errors_of_the_protocol_have_status_200(method, params, code, front, autojump_clock):
    async with serving(everything(), front=front, allow_errors=True) as http:
        await refused(http, 200, code, modern_request(method, params))


@requirement("B29", "A10")
async def test_a_capability_that_is_missing_is_named_with_status_400(front, autojump_clock):
    server = everything()

    @server.tool
    async def ask(ctx: Context) -> None:
        await ctx.sample("hi", max_tokens=1)

    async with serving(server, front=front) as http:
        error = await refused(http, 400, -32021, modern_request("tools/call", {"name": "ask", "arguments": {}}))
        assert error["data"] == {"requiredCapabilities": {"sampling": {}}}


@requirement("G128", "D60", "D62", "A15", "G124")
async def test_a_modern_client_sends_no_responses(front, autojump_clock):
    async with serving(everything(), front=front) as http:
        headers = {"MCP-Protocol-Version": MODERN}
        for message in (
            {"jsonrpc": "2.0", "id": 1, "result": {}},
            {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "x"}},
        ):
            response = await http.request("POST", json=message, headers=headers)
            assert response.status == 400
            assert "error" in response.json


@requirement("D61", "A8")
@pytest.mark.parametrize(
    "method", ["notifications/unknown", "notifications/cancelled", "notifications/initialized", "tools/list"]
)
async def test_a_notification_is_accepted_without_a_word(method, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        response = await http.modern(method, {"requestId": 7}, id=None)
        assert (response.status, response.body) == (202, b"")


@requirement("C47", "G126")
async def test_a_server_may_speak_only_the_modern_era(front, autojump_clock):
    async with serving(everything(), front=front, era="modern") as http:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
        response = await http.request("POST", json=rpc("initialize", params, id=1))
        assert response.status == 400
        assert response.json["error"]["code"] == -32022
        assert response.json["error"]["data"] == {"supported": [MODERN], "requested": "2025-11-25"}
        for method in ("GET", "DELETE"):
            response = await http.request(method, headers={"Accept": "text/event-stream", "Mcp-Session-Id": "x" * 24})
            assert response.status == 405
            assert "POST" in response.headers["allow"]
        assert (await http.modern("tools/list")).status == 200
        assert await http.count() == 0


# ----- Streams


def waiting() -> tuple[Server, list[str]]:
    server, became = Server("s"), []

    @server.tool
    async def wait(ctx: Context) -> str:
        became.append("began")
        try:
            await ctx.progress(1, message="one")
            await trio.sleep_forever()
        finally:
            became.append("ended")
        return ""

    return server, became


@requirement("G125", "I143", "I146")
@pytest.mark.parametrize("streaming", [True, False])
async def test_who_closes_the_response_cancels_the_call(streaming, front, autojump_clock):
    server, became = waiting()
    async with serving(server, front=front, stream_after=1_000.0) as http:
        meta = {"progressToken": "t"} if streaming else {}
        connection = http.connect()
        await connection.send("POST", **modern_request("tools/call", {"name": "wait", "arguments": {}}, meta=meta))
        if streaming:
            stream = await connection.stream()
            assert (await stream.message())["params"]["message"] == "one"
        await wait_all_tasks_blocked()
        assert became == ["began"]
        connection.cut()
        await wait_all_tasks_blocked()
        assert became == ["began", "ended"]
        assert (await http.modern("tools/list")).status == 200


@requirement("G125", "C49")
async def test_a_cancellation_by_notification_is_of_stdio(front, autojump_clock):
    """Over HTTP nobody can cancel another's request by guessing its id: ids are of each request alone."""
    server, became = waiting()
    wait = {"name": "wait"}
    async with (
        serving(server, front=front) as http,
        http.open_modern("tools/call", wait, id="w", meta={"progressToken": 1}) as stream,
    ):
        await stream.message()
        assert (await http.modern("notifications/cancelled", {"requestId": "w"}, id=None)).status == 202
        await trio.sleep(5)
        assert became == ["began"]


@requirement("G123", "G124", "G127", "E76", "J159", "L168", "D70", "A15")
async def test_a_stream_is_of_its_request_and_ends_with_the_response(front, autojump_clock):
    server = everything()
    async with serving(server, front=front) as http, trio.open_nursery() as nursery:
        found: dict[str, list[Any]] = {}

        async def one(name: str) -> None:
            meta = {"progressToken": name, META + "logLevel": "debug"}
            response = await http.call("report", {"steps": 3}, id=name, meta=meta)
            assert all(event.id is None for event in response.events)
            found[name] = [wire.check(MODERN, "tools/call", message) for message in response.messages]

        for n in range(5):
            nursery.start_soon(one, f"client {n}")
    assert len(found) == 5
    for name, messages in found.items():
        assert messages[-1]["id"] == name
        assert len(messages) == 7
        assert {m["params"]["progressToken"] for m in messages if m.get("method") == "notifications/progress"} == {name}
        assert not any("id" in message for message in messages[:-1])


@requirement("L167", "L168")
async def test_log_messages_need_a_level_in_the_request(front, autojump_clock):
    async with serving(everything(), front=front) as http:
        assert len((await http.call("report", {"steps": 2})).messages) == 1
        assert len((await http.call("report", {"steps": 2}, meta={META + "logLevel": "info"})).messages) == 3
        assert len((await http.call("report", {"steps": 2}, meta={META + "logLevel": "error"})).messages) == 1


@requirement("N205", "C49")
async def test_changes_are_told_to_no_response_that_did_not_ask(front, autojump_clock):
    server, _ = waiting()
    async with (
        serving(server, front=front) as http,
        http.open_modern("tools/call", {"name": "wait"}, meta={"progressToken": 1}) as stream,
    ):
        await stream.message()
        server.notify_tools_changed()
        with pytest.raises(trio.TooSlowError):
            await stream.message(within=30)
