"""From returned values to results."""

import base64
import dataclasses
import datetime as dt
import decimal
import enum
import hashlib
import inspect
import math
import typing
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, cast

import jsonschema
import msgspec
import pytest

from mcpd.protocol.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from mcpd.server.content import Audio, File, Image, Text
from mcpd.server.results import ResultError, ResultShape
from mcpd.server.schema import SchemaError, Validator
from mcpd.server.signature import SignatureError

PNG = b"\x89PNG\r\n\x1a\n..."
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt "
LINK = ResourceLink(uri="note://1", name="n")
EMPTY = inspect.Signature.empty


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Tree(msgspec.Struct):
    value: int
    children: "list[Tree]" = []


class Cat(msgspec.Struct, tag=True):
    lives: int = 9


class Dog(msgspec.Struct, tag=True):
    name: str = "Rex"


@dataclasses.dataclass
class Box:
    width: float


class Options(TypedDict, total=False):
    depth: int


class Pair(NamedTuple):
    left: str
    right: int


def shape_of(annotation: Any, output_schema: dict[str, Any] | None = None) -> ResultShape:
    return ResultShape.from_annotation(annotation, output_schema, name="tool")


def wire(result: CallToolResult) -> dict[str, Any]:
    return msgspec.json.decode(msgspec.json.encode(result))


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


# ----------------------------------------------------------------------------------------------------------- structured

# Each: annotation, value, structured content, its text, and whether a legacy client gets it in an object.
STRUCTURED: list[tuple[Any, Any, Any, str, bool]] = [
    (int, 3, 3, "3", True),
    (int, 2**70, 2**70, "1180591620717411303424", True),
    (bool, True, True, "true", True),
    (float, 1.5, 1.5, "1.5", True),
    (float, 3, 3, "3", True),
    (int | None, None, None, "null", True),
    (str | int, "a", "a", '"a"', True),
    (int | float, 1, 1, "1", True),
    (decimal.Decimal, decimal.Decimal("1.10"), "1.10", '"1.10"', True),
    (dt.date, dt.date(2026, 7, 28), "2026-07-28", '"2026-07-28"', True),
    (uuid.UUID, uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001", None, True),
    (Color, Color.RED, "red", '"red"', True),
    (Literal["a", 1], "a", "a", '"a"', True),
    (Annotated[int, msgspec.Meta(ge=0)], 0, 0, "0", True),
    (list[str], ["a", "b"], ["a", "b"], '["a","b"]', True),
    (list[int], [1, 2], [1, 2], "[1,2]", True),
    (list[int], (1, 2), [1, 2], "[1,2]", True),
    (tuple[int, str], (1, "a"), [1, "a"], '[1,"a"]', True),
    (set[int], {1}, [1], "[1]", True),
    (Pair, Pair("a", 1), ["a", 1], '["a",1]', True),
    (list[Point], [Point(1)], [{"x": 1, "y": 0}], '[{"x":1,"y":0}]', True),
    (Point | None, Point(1), {"x": 1, "y": 0}, '{"x":1,"y":0}', True),
    (Cat | Dog, Dog(), {"type": "Dog", "name": "Rex"}, '{"type":"Dog","name":"Rex"}', True),
    (dict, {"a": [1]}, {"a": [1]}, '{"a":[1]}', False),
    (dict[str, int], {"a": 1}, {"a": 1}, '{"a":1}', False),
    (dict[int, str], {1: "a"}, {"1": "a"}, '{"1":"a"}', False),
    (dict[str, Any], {"a": None}, {"a": None}, '{"a":null}', False),
    (Point, Point(1, 2), {"x": 1, "y": 2}, '{"x":1,"y":2}', False),
    (Point, {"x": 1}, {"x": 1}, '{"x":1}', False),
    (Tree, Tree(1, [Tree(2)]), {"value": 1, "children": [{"value": 2, "children": []}]}, None, False),
    (Box, Box(1.5), {"width": 1.5}, '{"width":1.5}', False),
    (Options, {"depth": 1}, {"depth": 1}, '{"depth":1}', False),
    (Options, {}, {}, "{}", False),
]


@pytest.mark.parametrize(
    ("annotation", "value", "structured", "as_text", "wraps"),
    STRUCTURED,
    ids=[f"{number}-{each[0]}" for number, each in enumerate(STRUCTURED)],
)
def test_structured(annotation: Any, value: Any, structured: Any, as_text: str | None, wraps: bool):
    shape = shape_of(annotation)
    modern, legacy = wire(shape.render(value, wrap=False)), wire(shape.render(value, wrap=True))

    assert modern["structuredContent"] == structured
    assert type(modern["structuredContent"]) is type(structured)
    assert legacy["structuredContent"] == ({"result": structured} if wraps else structured)
    assert shape.wraps is wraps
    for result in (modern, legacy):
        ((_, said), (_, shown)) = result["content"][0].items()
        assert said == "text"
        assert msgspec.json.decode(shown) == structured
        assert as_text is None or shown == as_text
        assert "isError" not in result

    assert shape.output_schema is not None
    assert shape.legacy_output_schema is not None
    assert shape.legacy_output_schema["type"] == "object"
    for schema, result in ((shape.output_schema, modern), (shape.legacy_output_schema, legacy)):
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.Draft202012Validator(schema).validate(result["structuredContent"])


def test_the_schema_of_a_struct_is_its_own_root():
    assert shape_of(Point).output_schema == {
        "title": "Point",
        "type": "object",
        "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
        "required": ["x"],
    }


def test_a_struct_that_refers_to_itself_is_also_in_defs():
    schema = shape_of(Tree).output_schema
    assert schema is not None
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert set(schema["$defs"]) == {"Tree"}


def test_defs_move_to_the_root_of_the_wrapped_schema():
    shape = shape_of(list[Point])
    assert shape.output_schema is not None
    assert shape.legacy_output_schema == {
        "type": "object",
        "properties": {"result": {"type": "array", "items": {"$ref": "#/$defs/Point"}}},
        "required": ["result"],
        "$defs": shape.output_schema["$defs"],
    }


# Each: annotation, value that is not of it, and what the log says.
UNFIT: list[tuple[Any, Any, str]] = [
    (int, "a", "does not fit the return annotation: Expected int, got str"),
    (int, 1.5, "Expected int, got float"),
    (int, None, "Expected int, got null"),
    (bool, 1, "Expected bool, got int"),
    (int, True, "Expected int, got bool"),
    (float, math.nan, "does not fit the return annotation: nan is not a number JSON can hold"),
    (float, -math.inf, "-inf is not a number JSON can hold"),
    (float, "1", "Expected float, got str"),
    (list[float], [1.0, math.nan], "Expected float, got null - at $[1]"),
    (dict[str, int], {"a": "b"}, "Expected int, got str - at $[...]"),
    (Point, {"y": 1}, "Object missing required field x"),
    (Point, Point("a"), "Expected int, got str - at $.x"),
    (Point, None, "Expected object, got null"),
    (Box, Box("wide"), "Expected float, got str - at $.width"),
    (Annotated[int, msgspec.Meta(ge=0)], -1, "Expected int >= 0"),
    (Color, "green", "Invalid enum value 'green'"),
    (dict, {(1, 2): 3}, "the value has no form in JSON: Only dicts with str-like or number-like keys are supported"),
    (dict, {"a": object()}, "the value has no form in JSON: Encoding objects of type object is unsupported"),
    (dict, {"a": "\ud800"}, "the value has no form in JSON: 'utf-8' codec can't encode character"),
    (EMPTY, object(), "the value has no form in JSON"),
    (Any, {"a": {1j}}, "the value has no form in JSON"),
    (str, object(), "the value has no form in JSON"),
    (list[ContentBlock], [object()], "the value has no form in JSON"),
]


@pytest.mark.parametrize(("annotation", "value", "message"), UNFIT, ids=range(len(UNFIT)))
@pytest.mark.parametrize("wrap", [False, True])
def test_values_that_do_not_fit(annotation: Any, value: Any, message: str, wrap: bool):
    with pytest.raises(ResultError) as caught:
        shape_of(annotation).render(value, wrap=wrap)
    assert message in str(caught.value)


def test_a_value_that_contains_itself():
    value: list[Any] = []
    value.append(value)
    for annotation in (list[Any], list[list[Any]], EMPTY):
        with pytest.raises(ResultError, match="is nested too deeply, or contains itself"):
            shape_of(annotation).render(value, wrap=False)


# -------------------------------------------------------------------------------------------------------------- content

IMAGE = {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": base64.b64encode(WAV).decode(), "mimeType": "audio/wav"}
BLOB = {
    "type": "resource",
    "resource": {
        "uri": "ni:///sha-256;" + base64.urlsafe_b64encode(hashlib.sha256(b"\x00").digest()).decode().rstrip("="),
        "mimeType": "application/octet-stream",
        "blob": "AA==",
    },
}
NOTE = TextResourceContents(uri="note://1", text="n")
NOTE_TEXT = {"uri": "note://1", "text": "n"}
NOTE_WIRE = {"type": "resource", "resource": NOTE_TEXT}

CONTENT: list[tuple[Any, Any, list[dict[str, Any]]]] = [
    (str, "a", [text("a")]),
    (str, "", [text("")]),
    (Annotated[str, "said"], "a", [text("a")]),
    (str | None, None, []),
    (str | None, "a", [text("a")]),
    (typing.Optional[str], "a", [text("a")]),  # noqa: UP045
    (None, None, []),
    (typing.NoReturn, None, []),
    (bytes, PNG, [IMAGE]),
    (bytes, WAV, [AUDIO]),
    (bytes, b"\x00", [BLOB]),
    (bytes | None, None, []),
    (bytearray, bytearray(b"\x00"), [BLOB]),
    (TextContent, Text("a"), [text("a")]),
    (Text, Text("a"), [text("a")]),
    (ImageContent, Image(PNG), [IMAGE]),
    (Image, Image(PNG), [IMAGE]),
    (AudioContent | None, Audio(WAV), [AUDIO]),
    (list[Image], [Image(PNG)], [IMAGE]),
    (ContentBlock, LINK, [{"type": "resource_link", "uri": "note://1", "name": "n"}]),
    (EmbeddedResource, EmbeddedResource(NOTE), [NOTE_WIRE]),
    (File, File("n", uri="note://1"), [NOTE_WIRE | {"resource": NOTE_TEXT | {"mimeType": "text/plain"}}]),
    (TextResourceContents, NOTE, [NOTE_WIRE]),
    (TextResourceContents | BlobResourceContents, NOTE, [NOTE_WIRE]),
    (list[ContentBlock], [], []),
    (list[ContentBlock], [Text("a"), Image(PNG)], [text("a"), IMAGE]),
    (list[str | ImageContent], ["a", Image(PNG), "b"], [text("a"), IMAGE, text("b")]),
    (list[str | ImageContent], ["a", "b"], [text("a"), text("b")]),
    (list[str | bytes | None], ["a", None, PNG], [text("a"), IMAGE]),
    (tuple[str, ImageContent], ("a", Image(PNG)), [text("a"), IMAGE]),
    (str | ImageContent, "a", [text("a")]),
    (ImageContent | dict[str, int], {"a": 1}, [text('{"a":1}')]),
    (list[ContentBlock], [Text("a"), {"a": 1}, 3], [text("a"), text('{"a":1}'), text("3")]),
    (str, 3, [text("3")]),
    # A list of anything, or nothing at all: what the value looks like.
    (list, [Image(PNG), "a", {"a": 1}], [IMAGE, text("a"), text('{"a":1}')]),
    (list[Any], [Image(PNG)], [IMAGE]),
    (tuple, (Text("a"), PNG), [text("a"), IMAGE]),
    (list, [1, "a"], [text('[1,"a"]')]),
    (EMPTY, "a", [text("a")]),
    (EMPTY, None, []),
    (EMPTY, PNG, [IMAGE]),
    (EMPTY, 3, [text("3")]),
    (EMPTY, 1.5, [text("1.5")]),
    (EMPTY, True, [text("true")]),
    (EMPTY, [1, 2], [text("[1,2]")]),
    (EMPTY, ["a", "b"], [text('["a","b"]')]),
    (EMPTY, ["a", Image(PNG)], [text("a"), IMAGE]),
    (Any, (Image(PNG), 1), [IMAGE, text("1")]),
    (object, NOTE, [NOTE_WIRE]),
]


@pytest.mark.parametrize(("annotation", "value", "content"), CONTENT, ids=range(len(CONTENT)))
@pytest.mark.parametrize("wrap", [False, True])
def test_content(annotation: Any, value: Any, content: list[dict[str, Any]], wrap: bool):
    shape = shape_of(annotation)
    assert shape.output_schema is None
    assert shape.legacy_output_schema is None
    assert not shape.wraps
    assert wire(shape.render(value, wrap=wrap)) == {"content": content}


@pytest.mark.parametrize("annotation", [EMPTY, Any, object])
@pytest.mark.parametrize("value", [{"x": 1, "y": 2}, Point(1, 2)], ids=["dict", "struct"])
@pytest.mark.parametrize("wrap", [False, True])
def test_an_object_without_annotation_is_structured_too(annotation: Any, value: Any, wrap: bool):
    shape = shape_of(annotation)
    assert shape.output_schema is None
    assert wire(shape.render(value, wrap=wrap)) == {
        "content": [text('{"x":1,"y":2}')],
        "structuredContent": {"x": 1, "y": 2},
    }


# ----------------------------------------------------------------------------------------------------- finished results


@pytest.mark.parametrize("annotation", [CallToolResult, EMPTY, Any, str, int, Point])
def test_a_finished_result_is_sent_as_it_is_but_is_a_new_one(annotation: Any):
    made = CallToolResult([TextContent("no")], is_error=True, meta={"a/b": 1})
    rendered = shape_of(annotation).render(made, wrap=False)
    assert rendered == made
    assert rendered is not made
    rendered.result_type = "complete"
    assert made.result_type is None


@pytest.mark.parametrize(
    ("given", "modern", "legacy"),
    [
        (msgspec.Raw(b' {"a": 1}'), {"a": 1}, {"a": 1}),
        ({"a": 1}, {"a": 1}, {"a": 1}),  # plain data, where the type says Raw
        ([1], [1], {"result": [1]}),
        (None, None, {"result": None}),
    ],
)
def test_a_finished_result_has_an_object_for_legacy_clients(given: Any, modern: Any, legacy: Any):
    shape = shape_of(CallToolResult)
    assert shape.output_schema is None
    made = CallToolResult([], structured_content=given)
    assert wire(shape.render(made, wrap=False))["structuredContent"] == modern
    assert wire(shape.render(made, wrap=True))["structuredContent"] == legacy


def test_a_finished_result_keeps_the_promise_of_an_output_schema():
    shape = shape_of(CallToolResult, {"type": "array", "items": {"type": "integer"}})
    good = CallToolResult([TextContent("one")], structured_content=msgspec.Raw(b"[1]"))
    assert wire(shape.render(good, wrap=False)) == {"content": [text("one")], "structuredContent": [1]}
    assert wire(shape.render(good, wrap=True)) == {"content": [text("one")], "structuredContent": {"result": [1]}}
    with pytest.raises(ResultError, match="the result has no structured_content, and the tool has an output schema"):
        shape.render(CallToolResult([]), wrap=False)
    with pytest.raises(ResultError, match=r"does not fit the output schema: \[0\]: 'a' is not of type 'integer'"):
        shape.render(CallToolResult([], structured_content=msgspec.Raw(b'["a"]')), wrap=False)
    # An error promises nothing.
    assert shape.render(CallToolResult([], is_error=True), wrap=False).is_error


# ------------------------------------------------------------------------------------------------------ JSON of others

RETURNS: list[tuple[Any, Callable[[msgspec.Raw], Any]]] = [
    (EMPTY, lambda raw: {"up": raw}),
    (EMPTY, lambda raw: [raw]),
    (EMPTY, lambda raw: raw),
    (EMPTY, lambda raw: [Image(PNG), raw]),
    (dict, lambda raw: {"up": raw}),
    (dict[str, Any], lambda raw: {"up": [raw]}),
    (dict[str, msgspec.Raw], lambda raw: {"up": raw}),
    (CallToolResult, lambda raw: CallToolResult([], structured_content=raw)),
    (EMPTY, lambda raw: CallToolResult([], structured_content=cast("Any", {"up": raw}))),
]


@pytest.mark.parametrize(("annotation", "value"), RETURNS, ids=range(len(RETURNS)))
@pytest.mark.parametrize("wrap", [False, True])
def test_json_of_others_is_put_on_one_line(annotation: Any, value: Callable[[msgspec.Raw], Any], wrap: bool):
    raw = msgspec.Raw(b'{\r\n  "a": [1.50,\n\n2]\n}')
    encoded = msgspec.json.encode(shape_of(annotation).render(value(raw), wrap=wrap))
    assert b'{"a":[1.50,2]}' in encoded.replace(b'\\"', b'"')
    assert not {*b"\r\n"} & {*encoded}


@pytest.mark.parametrize(("annotation", "value"), RETURNS, ids=range(len(RETURNS)))
@pytest.mark.parametrize(
    "foreign", [b"no", b'1},"id":2,"x":{"a":1', b'"\xff"', b'{"a":1}\n\ndata: {}\n\n', b'{"a":"\n"}', b"[1\r2]"]
)
def test_what_others_say_is_json_and_is_not_is_refused(
    annotation: Any, value: Callable[[msgspec.Raw], Any], foreign: bytes
):
    with pytest.raises((ResultError, UnicodeError)):
        shape_of(annotation).render(value(msgspec.Raw(foreign)), wrap=False)


# ---------------------------------------------------------------------------------------------------------- raw schemas


def test_a_raw_schema_has_the_word_over_the_annotation():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    for annotation in (str, EMPTY, dict[str, Any], Point, CallToolResult):
        shape = shape_of(annotation, schema)
        assert shape.output_schema is schema
        assert shape.legacy_output_schema is schema
        assert wire(shape.render({"a": 1}, wrap=True)) == {"content": [text('{"a":1}')], "structuredContent": {"a": 1}}
        with pytest.raises(ResultError, match="does not fit the output schema: a: 'x' is not of type 'integer'"):
            shape.render({"a": "x"}, wrap=False)
        with pytest.raises(ResultError, match="does not fit the output schema"):
            shape.render("text", wrap=False)


def test_a_raw_schema_of_another_root_is_wrapped_for_legacy_clients():
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"id": {"type": "string"}},
        "type": "array",
        "items": {"$ref": "#/definitions/id"},
    }
    shape = shape_of(EMPTY, schema)
    assert shape.output_schema is schema
    assert shape.legacy_output_schema == {
        "$schema": schema["$schema"],
        "definitions": schema["definitions"],
        "type": "object",
        "properties": {"result": {"type": "array", "items": {"$ref": "#/definitions/id"}}},
        "required": ["result"],
    }
    assert wire(shape.render(["a"], wrap=True))["structuredContent"] == {"result": ["a"]}
    with pytest.raises(ResultError):
        shape.render([1], wrap=True)


NUMBERS = {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]}
AT_HOME = {"$id": "https://example.com/numbers", "$defs": {"n": {"type": "integer"}}}


@pytest.mark.parametrize(
    "schema",
    [
        NUMBERS | AT_HOME,
        {"$ref": "#/$defs/n"} | AT_HOME,
        {"type": "array", "items": {"$ref": "#number"}, "$defs": {"n": {"$anchor": "number", "type": "integer"}}},
        {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "array"}], "$defs": {"n": {"type": "integer"}}},
    ],
    ids=range(4),
)
def test_references_still_lead_where_they_did_when_wrapped(schema: dict[str, Any]):
    wrapped = shape_of(EMPTY, schema).legacy_output_schema
    assert wrapped is not None
    plain, legacy = Validator(schema), Validator(wrapped)
    for value in (1, "a", [1], ["a"], [[1]], [["a"]]):
        assert (plain.errors(value) is None) == (legacy.errors({"result": value}) is None)


@pytest.mark.parametrize(
    "schema", [NUMBERS, {"items": {"$ref": "#/prefixItems/0"}, "prefixItems": [{"type": "integer"}]}]
)
def test_references_that_would_not_are_refused(schema: dict[str, Any]):
    with pytest.raises(SchemaError, match=r"output_schema of tool: '#.*' would lead elsewhere .* move what it means"):
        shape_of(EMPTY, schema)


@pytest.mark.parametrize(
    "schema", [{"type": "int"}, {"$ref": "https://example.com/a"}, {"$schema": "https://example.com/mine"}, []]
)
def test_unusable_raw_schemas_are_refused(schema: Any):
    with pytest.raises(SchemaError, match="output_schema of tool: "):
        shape_of(EMPTY, schema)


class Opaque:
    pass


@pytest.mark.parametrize("annotation", [Opaque, list[Opaque], Point | Tree, complex, Callable[[], int], range])
def test_annotations_without_json_are_refused(annotation: Any):
    with pytest.raises(SignatureError, match=r"^tool\(\): return annotation .* or give output_schema=$"):
        shape_of(annotation)
