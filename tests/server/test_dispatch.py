"""Every method in every revision, over one connection: what is answered, and what is not."""

import json
import logging
import weakref
from typing import Any

import msgspec
import pytest
import trio

from mcpd import (
    CallToolResult,
    Context,
    EmbeddedResource,
    GetPromptResult,
    PromptMessage,
    ProtocolError,
    ReadResourceResult,
    Server,
    TextContent,
    TextResourceContents,
    ToolError,
)
from tests import wire
from tests.requirements import requirement
from tests.server.everything import everything
from tests.server.peer import MCP, talking

every_revision = pytest.mark.parametrize("revision", wire.REVISIONS)
every_legacy = pytest.mark.parametrize("revision", wire.LEGACY)

BOTH: dict[str, dict[str, Any]] = {
    "tools/list": {},
    "tools/call": {"name": "add", "arguments": {"a": 1, "b": 2}},
    "prompts/list": {},
    "prompts/get": {"name": "ask", "arguments": {"topic": "trio"}},
    "resources/list": {},
    "resources/templates/list": {},
    "resources/read": {"uri": "note://1"},
    "completion/complete": {"ref": {"type": "ref/prompt", "name": "ask"}, "argument": {"name": "topic", "value": "t"}},
}
LEGACY_ONLY: dict[str, dict[str, Any]] = {
    "ping": {},
    "logging/setLevel": {"level": "info"},
    "resources/subscribe": {"uri": "note://1"},
    "resources/unsubscribe": {"uri": "note://1"},
}
LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


@requirement("A1", "A5", "A13", "A14", "C39")
@every_revision
@pytest.mark.parametrize("method", [*BOTH, *LEGACY_ONLY, "server/discover"])
async def test_each_method_answers_in_the_words_of_the_revision(revision, method):
    """The peer checks each message against the official types and schemas of the revision."""
    has = method in BOTH or (method in LEGACY_ONLY) == (revision in wire.LEGACY)
    async with talking(everything(), revision) as peer:
        answer = await peer.ask(method, BOTH.get(method) or LEGACY_ONLY.get(method, {}), id="an id")
    assert answer["id"] == "an id"
    if has:
        assert "result" in answer, answer
        assert ("resultType" in answer["result"]) == (revision == wire.MODERN)
        assert answer["result"].get("resultType", "complete") == "complete"
    else:
        assert answer["error"]["code"] == -32601
        assert method in answer["error"]["message"]


@requirement("A9", "G122", "C53")
@every_revision
@pytest.mark.parametrize(
    "method", ["", "tools", "tools/List", "rpc.discover", "tasks/list", "tasks/result", "tasks/get", "x" * 5_000]
)
async def test_an_unknown_method_is_not_found(revision, method):
    async with talking(everything(), revision) as peer:
        error = await peer.error(method)
    assert error["code"] == -32601


@requirement("A2", "A5", "A6")
@every_revision
@pytest.mark.parametrize("id_", [0, -1, 2**53, "", "0", "é\u2028"], ids=ascii)
async def test_the_answer_has_the_id_of_the_request_unchanged(revision, id_):
    async with talking(everything(), revision) as peer:
        for answer in (await peer.ask("tools/list", id=id_), await peer.ask("nonsense", id=id_)):
            assert answer["id"] == id_
            assert type(answer["id"]) is type(id_)


@requirement("A3", "A4")
@every_revision
async def test_an_id_may_be_used_again_and_even_at_once(revision, autojump_clock):
    server = everything()
    started: list[int] = []
    go = trio.Event()

    @server.tool
    async def slow(n: int) -> int:
        started.append(n)
        await go.wait()
        return n

    async with talking(server, revision) as peer:
        await peer.result("tools/list", id=7)
        await peer.result("tools/list", id=7)
        for n in (1, 2):
            await peer.send(peer.request("tools/call", {"name": "slow", "arguments": {"n": n}}, id=7))
        await peer.settle()
        assert started == [1, 2]
        go.set()
        await peer.settle()
        assert sorted(
            answer["result"]["structuredContent"]
            if revision == wire.MODERN
            else int(answer["result"]["content"][0]["text"])
            for answer in peer.answers[-2:]
        ) == [1, 2]


@requirement("A8", "I142")
@every_revision
@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "notifications/unknown"},
        {"jsonrpc": "2.0", "method": "tools/list"},
        {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {"x": 1}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 12345}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": None}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {"a": 1}}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 10**30}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1, "reason": 7}},
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "x", "progress": 1}},
        {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"},
        {"jsonrpc": "2.0", "method": "notifications/unknown", "params": {"_meta": {"progressToken": []}}},
    ],
    ids=json.dumps,
)
async def test_a_notification_is_never_answered(revision, message):
    async with talking(everything(), revision) as peer:
        before = len(peer.answers)
        await peer.send(message)
        assert await peer.settle() == []
        assert len(peer.answers) == before
        await peer.result("tools/list")  # and all goes on


@every_revision
@pytest.mark.parametrize("id_", [1, "x", 10**30], ids=ascii)
async def test_an_answer_to_no_question_of_ours_is_ignored(revision, id_):
    async with talking(everything(), revision) as peer:
        before = len(peer.answers)
        await peer.send({"jsonrpc": "2.0", "id": id_, "result": {}})
        await peer.send({"jsonrpc": "2.0", "id": id_, "error": {"code": 1, "message": "x"}})
        assert await peer.settle() == []
        assert len(peer.answers) == before


@requirement("A6", "A9", "H141")
@every_revision
@pytest.mark.parametrize(
    ("line", "code", "id_"),
    [
        (b"{", -32700, None),
        (b"[]", -32600, None),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"1.0","id":5,"method":"ping"}', -32600, 5),
        (b'{"jsonrpc":"2.0","id":5,"method":"ping","params":[]}', -32600, 5),
    ],
)
async def test_what_is_no_message_is_answered_and_all_goes_on(revision, line, code, id_):
    async with talking(everything(), revision) as peer:
        await peer.send(line)
        await peer.settle()
        assert (peer.answers[-1]["error"]["code"], peer.answers[-1]["id"]) == (code, id_)
        await peer.result("tools/list")


@requirement("A9", "L165")
@every_revision
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {}),
        ("tools/call", {"name": 7}),
        ("tools/call", {"name": "add", "arguments": []}),
        ("tools/call", {"name": "add", "arguments": "x"}),
        ("tools/list", {"cursor": 7}),
        ("prompts/get", {"name": None}),
        ("prompts/get", {"name": "ask", "arguments": {"topic": 7}}),
        ("resources/read", {"uri": 7}),
        ("completion/complete", {"ref": {"type": "ref/other"}, "argument": {"name": "a", "value": "b"}}),
    ],
)
async def test_params_that_do_not_fit_are_invalid(revision, method, params):
    async with talking(everything(), revision) as peer:
        error = await peer.error(method, params)
    assert error["code"] == -32602
    assert len(error["message"]) < 300


@requirement("A7", "N197", "O210", "A9")
@every_revision
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/read", {"uri": "broken://1"}),
        ("prompts/get", {"name": "broken_prompt"}),
    ],
)
async def test_an_exception_of_a_handler_is_an_internal_error_without_internals(revision, method, params, caplog):
    async with talking(everything(), revision) as peer:
        error = await peer.error(method, params)
    assert error["code"] == -32603
    assert "secret" not in json.dumps(error)
    assert "\n" not in error["message"]
    assert "secret of" in caplog.text


@requirement("A10", "A12", "A7")
@every_revision
async def test_a_handlers_own_error_is_sent_as_it_is(revision):
    server = Server("s")

    @server.tool
    async def quota() -> None:
        raise ProtocolError(-31000, "Over quota", {"left": 0})

    async with talking(server, revision) as peer:
        assert await peer.error("tools/call", {"name": "quota"}) == {
            "code": -31000,
            "message": "Over quota",
            "data": {"left": 0},
        }


@requirement("A10", "A11")
@pytest.mark.parametrize(
    ("code", "sent"),
    [(-32000, -32603), (-32019, -32603), (-32002, -32602), (-32042, -32603), (-32023, -32603), (-32099, -32603)],
)
async def test_a_code_of_a_handlers_that_the_modern_era_has_not_becomes_one_that_it_has(code, sent):
    server = Server("s")

    @server.tool
    async def old() -> None:
        raise ProtocolError(code, "Gone", {"uri": "note://1"})

    @server.resource("note://1")
    async def gone() -> str:
        raise ProtocolError(code, "Gone", {"uri": "note://1"})

    async with talking(server) as peer:
        for method, params in (("tools/call", {"name": "old"}), ("resources/read", {"uri": "note://1"})):
            error = await peer.error(method, params)
            assert error == {"code": sent, "message": "Gone", "data": {"uri": "note://1"}}
    async with talking(server, "2025-11-25") as peer:
        if code in {-32002, -32042}:
            assert (await peer.error("tools/call", {"name": "old"}))["code"] == code


@requirement("U264")
async def test_a_handler_may_say_which_urls_are_needed_first():
    server = Server("s")
    needed = {"mode": "url", "message": "Log in", "url": "https://example.com/login", "elicitationId": "e1"}

    @server.tool
    async def private() -> None:
        raise ProtocolError(-32042, "Log in first", {"elicitations": [needed]})

    async with talking(server, "2025-11-25", {"elicitation": {"url": {}}}) as peer:
        answer = await peer.ask("tools/call", {"name": "private"})
    assert answer["error"] == {"code": -32042, "message": "Log in first", "data": {"elicitations": [needed]}}
    wire.check_schema("2025-11-25", "URLElicitationRequiredError", answer)


@every_revision
async def test_data_of_an_error_that_has_no_json_is_left_out(revision, caplog):
    server = Server("s")

    @server.tool
    async def odd() -> None:
        raise ProtocolError(-31000, "Odd", object())

    async with talking(server, revision) as peer:
        assert await peer.error("tools/call", {"name": "odd"}) == {"code": -31000, "message": "Odd"}
    assert "cannot be sent" in caplog.text


BROKEN = msgspec.Raw(b'1},"id":2,"x":{"a":1')
"""On one line, and no JSON: as a part of a message it would be another message."""


def with_broken_json() -> Server:
    server = Server("s")

    @server.tool
    async def result() -> CallToolResult:
        return CallToolResult([TextContent("x")], meta={"up": BROKEN})

    @server.tool
    async def block() -> CallToolResult:
        return CallToolResult([TextContent("x", meta={"up": BROKEN})])

    @server.tool
    async def blocks() -> list[TextContent]:
        return [TextContent("x"), TextContent("x", meta={"up": [BROKEN]})]

    @server.tool
    async def embedded() -> EmbeddedResource:
        return EmbeddedResource(TextResourceContents(uri="a:b", text="x", meta={"up": BROKEN}))

    @server.tool
    async def log(ctx: Context) -> None:
        await ctx.error({"up": BROKEN})

    @server.tool
    async def error() -> None:
        raise ProtocolError(-31000, "Odd", {"up": BROKEN})

    @server.tool
    async def question(ctx: Context) -> None:
        await ctx.sample("x", max_tokens=1, metadata={"up": msgspec.Raw(b"no")})

    @server.prompt
    async def prompt() -> GetPromptResult:
        return GetPromptResult(messages=[], meta={"up": BROKEN})

    @server.prompt
    async def message() -> PromptMessage:
        return PromptMessage("user", TextContent("x", meta={"up": BROKEN}))

    @server.resource("a:result")
    async def read() -> ReadResourceResult:
        return ReadResourceResult(contents=[], meta={"up": BROKEN})

    @server.resource("a:contents")
    async def contents() -> TextResourceContents:
        return TextResourceContents(uri="a:contents", text="x", meta={"up": BROKEN})

    return server


@every_revision
async def test_json_of_others_that_is_none_never_goes_out(revision):
    async with talking(with_broken_json(), revision, capabilities={"sampling": {}}) as peer:
        for tool in ("result", "block", "blocks", "embedded", "log", "question"):
            told = await peer.call(tool, meta={MCP + "logLevel": "debug"})
            assert told["isError"] is True, tool
            assert "up" not in json.dumps(told)
        assert await peer.error("tools/call", {"name": "error"}) == {"code": -31000, "message": "Odd"}
        for name in ("prompt", "message"):
            assert (await peer.error("prompts/get", {"name": name}))["code"] == -32603
        for uri in ("a:result", "a:contents"):
            assert (await peer.error("resources/read", {"uri": uri}))["code"] == -32603
        assert await peer.settle() == []


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
async def test_a_list_of_what_has_json_that_is_none_is_an_error(revision):
    server = Server("s")

    @server.tool(meta={"up": msgspec.Raw(b"no")})
    async def tool() -> None: ...

    async with talking(server, revision) as peer:
        assert (await peer.error("tools/list"))["code"] == -32603


# ----- What stays of an error

SHARED = (ToolError("closed"), ProtocolError(-31000, "closed"), RuntimeError("closed"))


class Held:
    """What a handler has in hand."""


@pytest.mark.parametrize("error", SHARED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("nested", [False, True])
async def test_an_error_that_is_raised_again_and_again_keeps_no_call(error, nested, no_gc, monkeypatch):
    # pytest keeps what is logged, with its traceback.
    monkeypatch.setattr(logging.getLogger("mcpd.handlers"), "propagate", False)
    server = Server("s")
    held: list[weakref.ref[Held]] = []

    def fail() -> None:
        mine = Held()
        held.append(weakref.ref(mine))
        try:
            raise KeyError(mine)
        except KeyError:
            raise error  # noqa: B904 - as people write it

    @server.tool
    async def closed() -> None:
        if not nested:
            fail()
        async with trio.open_nursery():
            fail()

    @server.prompt(name="closed")
    async def prompt() -> str:
        fail()
        return ""

    async with talking(server) as peer:
        await peer.ask("tools/call", {"name": "closed"})
        await peer.ask("prompts/get", {"name": "closed"})
        await peer.settle()
        assert len(held) == 2
        assert [each() for each in held] == [None, None]


# ----- What the server says of itself


@requirement("C36", "C40", "L163", "M172", "N191", "O208", "P215")
@every_legacy
async def test_initialize_answers_with_version_capabilities_and_server_info(revision):
    async with talking(everything(), revision) as peer:
        init = peer.init
    assert init["protocolVersion"] == revision
    assert init["instructions"] == "Use it."
    expected = {
        "logging": {},
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
    }
    if revision > "2024-11-05":
        expected["completions"] = {}
    assert init["capabilities"] == expected
    assert (init["serverInfo"]["name"], init["serverInfo"]["version"]) == ("everything", "1.2.3")
    assert ("title" in init["serverInfo"]) == (revision >= "2025-06-18")
    for member in ("icons", "websiteUrl", "description"):
        assert (member in init["serverInfo"]) == (revision >= "2025-11-25")


@requirement("C44", "C45", "C46", "L163", "M172", "N191", "O208", "P215", "R225")
async def test_discover_needs_nothing_before_it_and_says_all():
    async with talking(everything()) as peer:
        found = await peer.result("server/discover")
    assert found["supportedVersions"] == ["2026-07-28"]
    assert found["instructions"] == "Use it."
    assert set(found["capabilities"]) == {"logging", "tools", "prompts", "resources", "completions"}
    assert (found["ttlMs"], found["cacheScope"]) == (0, "private")


@requirement("C45", "C49", "C50")
async def test_nothing_is_required_before_a_request():
    for method, params in BOTH.items():
        async with talking(everything()) as peer:
            await peer.result(method, params)


@requirement("M172", "O208", "P215", "A9", "C39")
@every_revision
async def test_what_there_is_none_of_is_not_declared(revision):
    async with talking(Server("empty"), revision) as peer:
        said = peer.init if revision in wire.LEGACY else await peer.result("server/discover")
        assert set(said["capabilities"]) <= {"logging"}
        for method, member in LISTS.items():
            assert (await peer.result(method))[member] == []
        assert (await peer.error("completion/complete", BOTH["completion/complete"]))["code"] == -32601


@requirement("B26")
@pytest.mark.parametrize("method", [*BOTH, "server/discover"])
async def test_each_modern_result_says_who_it_is_from(method):
    async with talking(everything()) as peer:
        result = await peer.result(method, BOTH.get(method, {}))
    info = result["_meta"][MCP + "serverInfo"]
    assert (info["name"], info["version"]) == ("everything", "1.2.3")


@requirement("B19", "B20", "B22")
async def test_a_handlers_own_meta_stays_and_ours_is_added():
    server = Server("s")

    @server.tool
    async def tagged() -> CallToolResult:
        return CallToolResult([TextContent("x")], meta={"com.example/tag": [1]})

    for revision in wire.REVISIONS:
        async with talking(server, revision) as peer:
            meta = (await peer.call("tagged"))["_meta"]
        assert meta["com.example/tag"] == [1]
        assert set(meta) - {"com.example/tag"} <= {MCP + "serverInfo"}


# ----- Caching


@requirement("R225", "R226", "R227", "R230")
@pytest.mark.parametrize("method", ["server/discover", *LISTS, "resources/read"])
async def test_modern_results_that_may_be_kept_say_how_long_and_by_whom(method):
    # Privately, and not at all, unless the operator says else (tests/endpoint/test_modern.py).
    async with talking(everything()) as peer:
        result = await peer.result(method, BOTH.get(method, {}))
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
        assert type(result["ttlMs"]) is int


@requirement("R225", "R231")
@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "completion/complete"])
async def test_other_results_say_nothing_of_caching(method):
    async with talking(everything()) as peer:
        assert not {"ttlMs", "cacheScope"} & set(await peer.result(method, BOTH[method]))


# ----- The envelope, without HTTP


@requirement("B23", "C41", "C42", "B28")
@pytest.mark.parametrize(
    ("meta", "code"),
    [
        ({MCP + "protocolVersion": "2026-07-28"}, -32602),
        ({MCP + "protocolVersion": 1, MCP + "clientCapabilities": {}}, -32602),
        ({MCP + "protocolVersion": "2025-11-25", MCP + "clientCapabilities": {}}, -32022),
        ({MCP + "protocolVersion": "2099-01-01", MCP + "clientCapabilities": {}}, -32022),
        ({MCP + "protocolVersion": "2026-07-28", MCP + "clientCapabilities": {}, MCP + "logLevel": "loud"}, -32602),
        ({MCP + "protocolVersion": "2026-07-28", MCP + "clientCapabilities": {}, MCP + "logLevel": [1]}, -32602),
        ({MCP + "protocolVersion": "2026-07-28", MCP + "clientCapabilities": {}, "progressToken": {}}, -32602),
    ],
    ids=str,
)
async def test_an_envelope_that_is_wrong_is_refused(meta, code):
    async with talking(everything()) as peer:
        await peer.result("tools/list")  # what an earlier request said counts for nothing
        await peer.send({"jsonrpc": "2.0", "id": "e", "method": "tools/list", "params": {"_meta": meta}})
        await peer.settle()
    answer = peer.answers[-1]
    assert (answer["id"], answer["error"]["code"]) == ("e", code)
    if code == -32022:
        assert answer["error"]["data"] == {"supported": ["2026-07-28"], "requested": meta[MCP + "protocolVersion"]}
        wire.check_schema("2026-07-28", "UnsupportedProtocolVersionError", answer)
