"""Tools over one connection: what is listed, what a call is answered with, and what is refused at registration."""

import asyncio
import base64
import json
from typing import Annotated, Any

import msgspec
import pytest
import trio
from msgspec import Meta

from mcpd import CallToolResult, Context, Icon, ProtocolError, Server, TextContent, ToolError
from mcpd.server.schema import SchemaError
from mcpd.server.signature import SignatureError
from tests import wire
from tests.requirements import requirement
from tests.server.everything import everything
from tests.server.peer import talking

every_revision = pytest.mark.parametrize("revision", wire.REVISIONS)


async def nothing() -> str:
    return ""


async def take(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, sort_keys=True)


# ----- What is listed


@requirement("M175", "Z333", "Z331")
@every_revision
async def test_each_input_schema_is_an_object_schema(revision):
    server = everything()
    server.add_tool(nothing)
    async with talking(server, revision) as peer:
        tools = (await peer.result("tools/list"))["tools"]
    assert tools
    for tool in tools:
        assert tool["inputSchema"]["type"] == "object"
        wire.jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        wire.jsonschema.Draft202012Validator.check_schema(tool.get("outputSchema", {}))


RAW: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://example.com/in",
    "$anchor": "top",
    "$comment": "as it is",
    "type": "object",
    "$defs": {"name": {"$anchor": "name", "type": "string", "minLength": 1, "x-mine": {"a": [1, None]}}},
    "properties": {"name": {"$ref": "#name"}, "n": {"type": ["integer", "null"]}},
    "allOf": [{"if": {"properties": {"n": {"const": 1}}}, "then": {"required": ["name"]}, "else": True}],
    "required": ["name"],
    "additionalProperties": False,
    "unevaluatedProperties": False,
    "x-unknown": None,
}


@requirement("Z338", "Z331")
@every_revision
async def test_a_schema_written_by_hand_is_listed_unchanged_and_checked(revision):
    server = Server("s")
    server.add_tool(take, input_schema=RAW)
    async with talking(server, revision) as peer:
        (tool,) = (await peer.result("tools/list"))["tools"]
        assert tool["inputSchema"] == RAW
        assert (await peer.call("take", {"name": "x"}))["content"][0]["text"] == '{"name": "x"}'
        for wrong in ({}, {"name": ""}, {"name": "x", "more": 1}, {"name": 7}, {"name": "x", "n": 1.5}):
            result = await peer.call("take", wrong)
            assert result["isError"], wrong


DRAFT_7 = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "pair": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False}
    },
}


@requirement("Z332", "Z331")
async def test_a_schema_is_checked_by_its_own_dialect():
    server = Server("s")
    server.add_tool(take, input_schema=DRAFT_7)
    async with talking(server) as peer:
        assert not (await peer.call("take", {"pair": ["a", 1]})).get("isError")
        for wrong in (["a", "b"], ["a", 1, 2]):
            assert (await peer.call("take", {"pair": wrong}))["isError"]
    # In 2020-12 an array of items is no schema at all.
    with pytest.raises(SchemaError):
        Server("s").add_tool(take, input_schema=DRAFT_7 | {"$schema": RAW["$schema"]})


BAD_SCHEMAS = {
    "an unknown dialect": {"$schema": "https://example.com/my-dialect", "type": "object"},
    "no object": {"type": "string"},
    "no type": {"properties": {}},
    "several types": {"type": ["object", "null"]},
    "an unknown type": {"type": "object", "properties": {"a": {"type": "strnig"}}},
    "required that is no list": {"type": "object", "required": "a"},
    "a pattern that is none": {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
    "a reference to the network": {"type": "object", "properties": {"a": {"$ref": "https://example.com/schema.json"}}},
    "a reference to a file": {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}},
    "a reference to nothing": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}},
    "a dynamic reference to nothing": {"type": "object", "properties": {"a": {"$dynamicRef": "#a"}}},
}
deep: dict[str, Any] = {"type": "string"}
for _ in range(500):
    deep = {"type": "array", "items": deep}
BAD_SCHEMAS["too deep"] = {"type": "object", "properties": {"a": deep}}


@requirement("M175", "Z332", "Z333", "Z335", "Z336", "Z337")
@pytest.mark.parametrize("schema", BAD_SCHEMAS.values(), ids=BAD_SCHEMAS)
def test_a_schema_that_cannot_be_used_is_refused_when_it_is_registered(schema):
    with pytest.raises(SchemaError):
        Server("s").add_tool(take, input_schema=schema)


@requirement("Z337", "M178")
async def test_a_value_that_is_nested_without_end_is_an_error_and_no_crash():
    schema = {"type": "object", "$defs": {"l": {"type": "array", "items": {"$ref": "#/$defs/l"}}}}
    schema["properties"] = {"l": {"$ref": "#/$defs/l"}}
    value: Any = []
    for _ in range(240):
        value = [value]
    server = Server("s")
    server.add_tool(take, input_schema=schema)
    async with talking(server) as peer:
        answer = await peer.ask("tools/call", {"name": "take", "arguments": {"l": value}})
    assert "error" in answer or answer["result"]["isError"] or answer["result"]["content"]


@requirement("M176")
@pytest.mark.parametrize("name", ["a", "A", "get.user-2_x", "_", "-", ".", "0", "x" * 128])
async def test_a_name_may_be_what_the_specification_says(name):
    server = Server("s")
    server.add_tool(nothing, name=name)
    async with talking(server) as peer:
        await peer.call(name)
        assert (await peer.error("tools/call", {"name": name + "x"}))["code"] == -32602


@requirement("M176")
@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "a,b", "é", "x" * 129, "a\n", "a:b", "٣"])
def test_a_name_may_be_nothing_else(name):
    with pytest.raises(SignatureError):
        Server("s").add_tool(nothing, name=name)


@requirement("M176")
def test_a_lambda_has_no_name_of_its_own():
    with pytest.raises(SignatureError):
        Server("s").add_tool(lambda: "")


@requirement("Z339")
@pytest.mark.parametrize("src", ["javascript:alert(1)", "file:///x.png", "x.png", "", "//example.com/x.png", "data"])
def test_an_icon_has_a_source_that_clients_may_use(src):
    with pytest.raises(ValueError, match="icon"):
        Icon(src)


@requirement("Z339")
@pytest.mark.parametrize("src", ["https://example.com/x.png", "data:image/png;base64,AAAA", "HTTPS://EXAMPLE.COM/x"])
async def test_an_icon_is_listed_as_it_was_given(src):
    server = Server("s")
    server.add_tool(nothing, icons=[Icon(src), Icon(src, sizes=["any"], theme="light", mime_type="image/svg+xml")])
    async with talking(server, "2025-11-25") as peer:
        (tool,) = (await peer.result("tools/list"))["tools"]
    assert tool["icons"] == [
        {"src": src},
        {"src": src, "sizes": ["any"], "theme": "light", "mimeType": "image/svg+xml"},
    ]


# ----- x-mcp-header

BAD_HEADERS: dict[str, Any] = {
    "empty": {"a": {"type": "string", "x-mcp-header": ""}},
    "a space": {"a": {"type": "string", "x-mcp-header": "My Region"}},
    "a colon": {"a": {"type": "string", "x-mcp-header": "Region:"}},
    "a line end": {"a": {"type": "string", "x-mcp-header": "Region\n"}},
    "a control character": {"a": {"type": "string", "x-mcp-header": "Reg\x00ion"}},
    "not ascii": {"a": {"type": "string", "x-mcp-header": "Región"}},
    "no string": {"a": {"type": "string", "x-mcp-header": 7}},
    "null": {"a": {"type": "string", "x-mcp-header": None}},
    "twice": {"a": {"type": "string", "x-mcp-header": "R"}, "b": {"type": "string", "x-mcp-header": "r"}},
    "on a number": {"a": {"type": "number", "x-mcp-header": "R"}},
    "on an array": {"a": {"type": "array", "x-mcp-header": "R"}},
    "on an object": {"a": {"type": "object", "x-mcp-header": "R"}},
    "on several types": {"a": {"type": ["string", "null"], "x-mcp-header": "R"}},
    "on no type": {"a": {"x-mcp-header": "R"}},
    "in an array": {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "R"}}},
    "in a choice": {"a": {"anyOf": [{"type": "string", "x-mcp-header": "R"}]}},
    "in what a pattern leads to": {
        "a": {"type": "object", "patternProperties": {"b": {"type": "string", "x-mcp-header": "R"}}}
    },
    "in what a reference leads to": {"a": {"$ref": "#/$defs/r"}},
}


@requirement("M185")
@pytest.mark.parametrize("properties", BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_a_header_that_cannot_be_mirrored_is_refused(properties):
    schema = {"type": "object", "properties": properties}
    if "reference" in json.dumps(properties) or "$ref" in json.dumps(properties):
        schema["$defs"] = {"r": {"type": "string", "x-mcp-header": "R"}}
    with pytest.raises(SchemaError, match="x-mcp-header"):
        Server("s").add_tool(take, input_schema=schema)


@requirement("M185")
async def test_headers_that_can_be_mirrored_are_listed_as_they_stand():
    properties: dict[str, Any] = {
        "a": {"type": "string", "x-mcp-header": "Region"},
        "b": {"type": "object", "properties": {"c": {"type": "integer", "x-mcp-header": "C-1_~"}}},
        "d": {"type": "boolean", "x-mcp-header": "D"},
    }
    server = Server("s")
    server.add_tool(take, input_schema={"type": "object", "properties": properties})

    @server.tool
    async def annotated(where: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Where"})]) -> str:
        return where

    async with talking(server) as peer:
        listed = {tool["name"]: tool["inputSchema"] for tool in (await peer.result("tools/list"))["tools"]}
    assert listed["take"]["properties"] == properties
    assert listed["annotated"]["properties"]["where"] == {"type": "string", "x-mcp-header": "Where"}


# ----- What a call is answered with


@requirement("M177")
@every_revision
@pytest.mark.parametrize("name", ["nothing", "", "Add", "add ", "__class__"])
async def test_an_unknown_tool_is_an_error_of_the_protocol(revision, name):
    async with talking(everything(), revision) as peer:
        error = await peer.error("tools/call", {"name": name, "arguments": {}})
    assert error["code"] == -32602
    assert name in error["message"]


@requirement("M178", "M188")
@every_revision
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "a"),
        ({"a": 1}, "b"),
        ({"a": "one", "b": 2}, "a"),
        ({"a": 1.5, "b": 2}, "a"),
        ({"a": None, "b": 2}, "a"),
        ({"a": True, "b": 2}, "a"),
        ({"a": [1], "b": {}}, "a"),
        ({"a": 10**30, "b": "x"}, "b"),
    ],
    ids=str,
)
async def test_arguments_that_do_not_fit_are_told_to_the_model(revision, arguments, says):
    async with talking(everything(), revision) as peer:
        result = await peer.call("add", arguments)
    assert result["isError"]
    assert says in result["content"][0]["text"]
    assert "Traceback" not in result["content"][0]["text"]


@every_revision
@pytest.mark.parametrize(
    "params", [{"name": "now"}, {"name": "now", "arguments": {}}, {"name": "now", "arguments": None}]
)
async def test_arguments_may_be_left_out(revision, params):
    server = Server("s")
    server.add_tool(nothing, name="now")
    async with talking(server, revision) as peer:
        assert (await peer.result("tools/call", params))["content"] == [{"type": "text", "text": ""}]


@requirement("M178", "M188", "L170")
@every_revision
async def test_a_failure_is_a_result_and_tells_what_it_may(revision, caplog):
    async with talking(everything(), revision) as peer:
        known = await peer.call("fail", {"how": "tool"})
        own = await peer.call("fail", {"how": "result"})
        unknown = await peer.call("fail", {"how": "mine"})
    assert (known["isError"], known["content"][0]["text"]) == (True, "the disk is full")
    assert (own["isError"], own["content"][0]["text"]) == (True, "no")
    assert unknown["isError"]
    assert "secret" not in json.dumps(unknown)
    assert "RuntimeError" not in json.dumps(unknown)
    assert "secret of mine" in caplog.text


@requirement("M178")
@every_revision
@pytest.mark.parametrize("exception", [SystemExit, RecursionError, StopAsyncIteration, MemoryError])
async def test_whatever_a_plain_function_raises_there_is_one_answer(revision, exception, caplog):
    server = Server("s")

    @server.tool
    def fails() -> str:
        raise exception

    async with talking(server, revision) as peer:
        assert (await peer.call("fails"))["isError"]
        assert (await peer.call("fails"))["isError"]


@every_revision
@pytest.mark.parametrize("exception", [SystemExit, GeneratorExit, asyncio.CancelledError])
async def test_nor_can_a_nursery_of_a_handler_end_the_server(revision, exception, caplog):
    server = Server("s")

    async def child(number: int) -> None:
        if number == 1:
            raise exception
        await trio.sleep_forever()

    @server.tool
    async def fails() -> str:
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(child, number)
        return "done"

    async with talking(server, revision) as peer:
        assert (await peer.call("fails"))["isError"]
        assert (await peer.call("fails"))["isError"]


class Point(msgspec.Struct):
    x: int


SHAPES: dict[str, tuple[Any, Any, Any]] = {
    # by the annotation: the value, structuredContent since 2026-07-28, and in an object before
    "an integer": (int, 7, {"result": 7}),
    "a list": (list[int], [1, 2], {"result": [1, 2]}),
    "a struct": (Point, {"x": 1}, {"x": 1}),
    "an object": (dict[str, int], {"a": 1}, {"a": 1}),
    "null or a number": (int | None, None, {"result": None}),
    "a boolean": (bool, False, {"result": False}),
}


@requirement("M179", "M180", "M181")
@pytest.mark.parametrize(("annotation", "value", "wrapped"), SHAPES.values(), ids=SHAPES)
async def test_structured_content_fits_the_output_schema_and_stands_in_the_text_too(annotation, value, wrapped):
    server = Server("s")

    async def give():
        return msgspec.convert(value, annotation)

    give.__annotations__["return"] = annotation
    server.add_tool(give)
    for revision, expected in {"2025-06-18": wrapped, "2025-11-25": wrapped, "2026-07-28": value}.items():
        async with talking(server, revision) as peer:
            (tool,) = (await peer.result("tools/list"))["tools"]
            result = await peer.call("give")
        assert result["structuredContent"] == expected
        wire.jsonschema.Draft202012Validator(tool["outputSchema"]).validate(expected)
        assert json.loads(result["content"][0]["text"]) == value


@requirement("M179")
@every_revision
async def test_a_value_that_does_not_fit_is_not_sent_as_if_it_did(revision, caplog):
    server = Server("s")

    @server.tool
    async def lies() -> int:
        return "seven"  # type: ignore[return-value]

    @server.tool(output_schema={"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]})
    async def lies_too() -> Any:
        return {"x": "seven"}

    @server.tool(output_schema={"type": "object", "required": ["x"]})
    async def says_nothing() -> CallToolResult:
        return CallToolResult([TextContent("no structure")])

    async with talking(server, revision) as peer:
        for tool in ("lies", "lies_too", "says_nothing"):
            result = await peer.call(tool)
            assert result["isError"], tool
            assert "structuredContent" not in result
            assert "seven" not in json.dumps(result)


@requirement("M182", "M183", "N200")
@every_revision
async def test_each_kind_of_block_is_valid_in_the_revision(revision):
    async with talking(everything(), revision) as peer:
        content = (await peer.call("blocks"))["content"]
        for block in content:
            if "data" in block:
                base64.b64decode(block["data"], validate=True)
                assert "/" in block["mimeType"]
        said = peer.init.get("capabilities") or (await peer.result("server/discover"))["capabilities"]
        assert "resources" in said


@requirement("A12")
@every_revision
@pytest.mark.parametrize("error", [ProtocolError(-32602, "No"), ProtocolError(4711, "Mine", [1])])
async def test_a_tool_may_answer_with_an_error_of_the_protocol(revision, error):
    server = Server("s")

    @server.tool
    async def refuse() -> str:
        raise error

    async with talking(server, revision) as peer:
        assert (await peer.error("tools/call", {"name": "refuse"}))["code"] == error.code


@requirement("M178")
@every_revision
async def test_a_tool_error_out_of_a_nursery_is_still_one(revision):
    server = Server("s")

    @server.tool
    async def nested() -> None:
        async def fail() -> None:
            raise ToolError("inside")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)

    async with talking(server, revision) as peer:
        result = await peer.call("nested")
    assert (result["isError"], result["content"][0]["text"]) == (True, "inside")


@requirement("W281", "X309")
@every_revision
async def test_a_task_that_nobody_offered_is_no_reason_to_refuse(revision):
    async with talking(everything(), revision) as peer:
        params = {"name": "add", "arguments": {"a": 1, "b": 1}, "task": {"ttl": 1000}}
        assert (await peer.result("tools/call", params))["content"][0]["text"] == "2"


@requirement("M173", "M174")
async def test_what_a_call_does_changes_no_list():
    server = everything()

    @server.tool
    async def look(ctx: Context) -> str:
        return "looked"

    async with talking(server) as peer:
        before = await peer.result("tools/list")
        await peer.call("look")
        await peer.call("fail", {"how": "tool"})
        assert await peer.result("tools/list") == before


# ----- How long one may take


@every_revision
async def test_what_takes_too_long_is_cancelled_and_says_so(revision, autojump_clock):
    server = Server("slow", version="1")
    cancelled: list[str] = []

    async def rest(what: str) -> str:
        try:
            await trio.sleep(30)
        except trio.Cancelled:
            cancelled.append(what)
            raise
        return what

    @server.tool(timeout=2.5)
    async def wait(seconds: float) -> str:
        return await rest("tool") if seconds > 2.5 else "in time"

    @server.tool(timeout=1)
    def block() -> str:
        trio.from_thread.run(trio.sleep, 5)
        return "too late"

    @server.resource("slow://{name}", timeout=3)
    async def read(name: str) -> str:
        return await rest(name)

    @server.prompt(timeout=4)
    async def ask() -> str:
        return await rest("prompt")

    async with talking(server, revision) as peer:
        began = trio.current_time()
        result = await peer.result("tools/call", {"name": "wait", "arguments": {"seconds": 9}})
        assert result["isError"]
        assert result["content"][0]["text"] == "It did not finish within the 2.5 s it may take"
        result = await peer.result("tools/call", {"name": "wait", "arguments": {"seconds": 1}})
        assert result["content"][0]["text"] == "in time"
        assert (await peer.result("tools/call", {"name": "block", "arguments": {}}))["isError"]
        for method, params in ("resources/read", {"uri": "slow://resource"}), ("prompts/get", {"name": "ask"}):
            error = await peer.error(method, params)
            assert error["code"] == -32603
            assert "did not finish within" in error["message"]
        assert trio.current_time() - began == pytest.approx(2.5 + 1 + 3 + 4)
        assert cancelled == ["tool", "resource", "prompt"]


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_a_timeout_is_a_time(timeout):
    server = Server("slow", version="1")
    with pytest.raises(ValueError, match="timeout must be more than 0 seconds"):
        server.add_tool(nothing, timeout=timeout)
    with pytest.raises(ValueError, match="timeout must be more than 0 seconds"):
        server.add_prompt(nothing, timeout=timeout)
    with pytest.raises(ValueError, match="timeout must be more than 0 seconds"):
        server.add_resource("a://b", nothing, timeout=timeout)
