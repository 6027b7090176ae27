"""Forms of elicitation: flat schemas, and what comes back in them."""

import json
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest
from msgspec import Meta

from mcpd.server.forms import Form
from mcpd.server.schema import SchemaError
from tests import wire
from tests.requirements import requirement


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class All(msgspec.Struct):
    text: str
    number: float
    whole: int
    yes: bool
    choice: Literal["a", "b"]
    colour: Colour
    several: list[Literal["x", "y"]]
    mail: Annotated[str, Meta(title="Mail", description="yours", extra_json_schema={"format": "email"})]
    short: Annotated[str, Meta(min_length=2, max_length=5)]
    age: Annotated[int, Meta(ge=0, le=150)]
    few: Annotated[list[Literal["x", "y"]], Meta(min_length=1, max_length=2)]
    maybe: str | None = None
    preset: str = "p"
    count: int = 3
    on: bool = True


def properties(kind: Any) -> dict[str, Any]:
    schema = Form(kind).schema
    for revision in ("2025-11-25", "2026-07-28"):
        request = {
            "method": "elicitation/create",
            "params": {"message": "m", "mode": "form", "requestedSchema": schema},
        }
        wire._check_schema(revision, "ElicitRequest", request | {"jsonrpc": "2.0", "id": 1})
    found: dict[str, Any] = schema["properties"]
    return found


@requirement("U258", "U259")
def test_a_struct_becomes_a_flat_schema():
    found = properties(All)
    assert found["text"] == {"type": "string"}
    assert found["number"] == {"type": "number"}
    assert found["whole"] == {"type": "integer"}
    assert found["yes"] == {"type": "boolean"}
    assert found["choice"] == {"type": "string", "enum": ["a", "b"]}
    assert found["colour"]["enum"] == ["blue", "red"] or found["colour"]["enum"] == ["red", "blue"]
    assert found["several"] == {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}}
    assert found["mail"] == {"type": "string", "title": "Mail", "description": "yours", "format": "email"}
    assert found["short"] == {"type": "string", "minLength": 2, "maxLength": 5}
    assert found["age"] == {"type": "integer", "minimum": 0, "maximum": 150}
    assert (found["few"]["minItems"], found["few"]["maxItems"]) == (1, 2)
    assert found["maybe"] == {"type": "string"}
    assert found["preset"] == {"type": "string", "default": "p"}
    assert found["count"] == {"type": "integer", "default": 3}
    assert found["on"] == {"type": "boolean", "default": True}
    schema = Form(All).schema
    assert set(schema["required"]) == set(found) - {"maybe", "preset", "count", "on"}
    assert "$defs" not in json.dumps(schema)
    assert "$ref" not in json.dumps(schema)


@dataclass
class Point:
    x: int
    y: int = 0


class Named(TypedDict):
    name: str


@requirement("U259")
def test_dataclasses_and_typed_dicts_are_forms_too():
    assert properties(Point) == {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}}
    assert properties(Named) == {"name": {"type": "string"}}
    assert Form(Point).read({"x": 1}) == Point(1)
    assert Form(Named).read({"name": "n"}) == {"name": "n"}


class Inner(msgspec.Struct):
    a: int


class Nested(msgspec.Struct):
    inner: Inner


class Listed(msgspec.Struct):
    words: list[str]


class Mapped(msgspec.Struct):
    words: dict[str, str]


class Either(msgspec.Struct):
    it: int | str


class Numbers(IntEnum):
    ONE = 1


class Numbered(msgspec.Struct):
    it: Numbers


class Anything(msgspec.Struct):
    it: Any


class Nothing(msgspec.Struct):
    it: None


@requirement("U259")
@pytest.mark.parametrize("kind", [Nested, Listed, Mapped, Either, Numbered, Anything, Nothing])
def test_what_no_form_can_have_is_refused_by_name(kind):
    with pytest.raises(TypeError, match=rf"{kind.__name__}\.\w+"):
        Form(kind)


@requirement("U259")
@pytest.mark.parametrize("kind", [int, str, list[int], dict[str, int], Colour, object])
def test_what_is_no_object_is_no_form(kind):
    with pytest.raises(TypeError, match=r"form"):
        Form(kind)


@requirement("U262")
@pytest.mark.parametrize(
    "content",
    [{}, {"x": "1"}, {"x": 1.5}, {"x": None}, {"x": 1, "y": "2"}, [], "x", None, 7],
    ids=repr,
)
def test_content_that_does_not_fit_a_struct_is_refused(content):
    with pytest.raises(ValueError, match=r"."):
        Form(Point).read(content)


RAW = {
    "type": "object",
    "properties": {
        "mail": {"type": "string", "format": "email", "title": "Mail"},
        "age": {"type": "integer", "minimum": 0},
        "one": {"type": "string", "oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]},
        "many": {"type": "array", "items": {"anyOf": [{"const": "x", "title": "X"}]}, "minItems": 1},
        "legacy": {"type": "string", "enum": ["p"], "enumNames": ["P"]},
    },
    "required": ["age"],
}


@requirement("U259", "U262")
def test_a_schema_written_by_hand_goes_out_as_it_is_and_is_checked():
    form: Form[Any] = Form(RAW)
    assert form.schema is RAW
    properties(RAW)
    content = {"age": 7, "mail": "a@b.c", "one": "a", "many": ["x"], "legacy": "p"}
    assert form.read(content) == content
    for wrong in ({}, {"age": -1}, {"age": "7"}, {"age": 7, "one": "c"}, {"age": 7, "many": []}, [], None):
        with pytest.raises(ValueError, match=r"."):
            form.read(wrong)


@requirement("U259")
@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "string"},
        {"type": "object"},
        {"type": "object", "properties": {"a": {"type": "object", "properties": {}}}},
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}},
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object"}}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": "string"}}},
        {"type": "object", "properties": {"a": {"type": "string", "format": "password"}}},
        {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
        {"type": "object", "properties": {"a": {}}},
        {"type": "object", "properties": {"a": True}},
    ],
    ids=json.dumps,
)
def test_a_schema_written_by_hand_is_as_flat_as_the_specification_wants(schema):
    with pytest.raises((TypeError, ValueError)):
        Form(schema)


@pytest.mark.parametrize("schema", [{"type": "objekt"}, {"type": "object", "properties": []}, {"$ref": "http://x/y"}])
def test_a_schema_written_by_hand_that_is_none_is_refused(schema):
    with pytest.raises((SchemaError, TypeError)):
        Form(schema)
