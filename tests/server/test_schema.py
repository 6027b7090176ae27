"""Schemas written by hand: which can be used, and what they say of values."""

import socket
import subprocess
import sys
from typing import Any

import pytest

from mcpd.server.schema import MAX_DEPTH, HeaderParameter, SchemaError, Validator, check_schema, header_parameters

# The schema of the official conformance suite's "json_schema_2020_12_tool".
ADDRESS_BOOK: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "phone": {"type": "string"},
        "email": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return {"type": "object"} | schema


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "additionalProperties": False, "properties": {}},
        ADDRESS_BOOK,
        {"type": "object", "properties": {"child": {"$ref": "#"}}},
        {"type": "object", "properties": {"a": {"$ref": "#addressDef"}}, "$defs": {"x": {"$anchor": "addressDef"}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "definitions": {"a": {}}},
        {"$schema": "http://json-schema.org/draft-07/schema", "type": "object"},
        {"$schema": "http://json-schema.org/draft-06/schema#", "type": "object"},
        {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"},
        {"$schema": "https://json-schema.org/draft/2019-09/schema", "type": "object"},
        # Words that look like references, in places that are no schemas.
        {"type": "object", "properties": {"$ref": {"type": "string"}}, "examples": [{"$ref": "https://example.com/x"}]},
        {"type": "object", "const": {"$ref": "https://example.com/x"}},
        # A reference through the schema's own $id stays at home.
        {
            "$id": "https://example.com/root",
            "type": "object",
            "properties": {"a": {"$ref": "https://example.com/root#/$defs/a"}, "b": {"$ref": "other"}},
            "$defs": {"a": {}, "b": {"$id": "other", "type": "string"}},
        },
        nested(MAX_DEPTH),
    ],
    ids=str,
)
def test_usable_schemas(schema: dict[str, Any]):
    assert check_schema(schema, what="input_schema") == []
    Validator(schema)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (None, "a schema is a JSON object (a dict), not NoneType"),
        ([], "a schema is a JSON object (a dict), not list"),
        ({}, 'the root must say "type": "object", and says None'),
        ({"type": "array"}, 'the root must say "type": "object", and says \'array\''),
        ({"type": ["object", "null"]}, 'the root must say "type": "object"'),
        ({"type": "object", "properties": {"a": {"type": "int"}}}, "'int' is not valid under any of the given schemas"),
        ({"type": "object", "properties": {"a": {"type": "int"}}}, "at properties/a/type"),
        ({"type": "object", "required": "a"}, "'a' is not of type 'array' at required"),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, "'(' is not a 'regex' at properties/a/pattern"),
        ({"$schema": "https://example.com/mine", "type": "object"}, "$schema 'https://example.com/mine' is no dialect"),
        (
            {"$schema": 7, "type": "object"},
            "$schema 7 is no dialect known here; known are https://json-schema.org/draft",
        ),
        (
            {"type": "object", "properties": {"a": {"$ref": "https://example.com/a"}}},
            "$ref 'https://example.com/a' leads",
        ),
        ({"type": "object", "$ref": "other.json"}, "$ref 'other.json' leads to nothing in this schema"),
        ({"type": "object", "$ref": "#/$defs/missing"}, "put what it means under $defs"),
        ({"type": "object", "$ref": "#missing"}, "$ref '#missing' leads to nothing"),
        ({"type": "object", "allOf": [{"not": {"$dynamicRef": "https://example.com/a"}}]}, "$dynamicRef"),
        ({"type": "object", "$ref": "https://json-schema.org/draft/2020-12/schema"}, "nothing is fetched"),
        (
            {"$id": "https://example.com/a/", "type": "object", "properties": {"a": {"$ref": "b"}}},
            "$ref 'b' leads to nothing",
        ),
        (nested(MAX_DEPTH + 1), f"schemas nest deeper than {MAX_DEPTH}"),
        (nested(20_000), f"schemas nest deeper than {MAX_DEPTH}"),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, str) else None,
)
def test_unusable_schemas(schema: Any, message: str):
    with pytest.raises(SchemaError) as caught:
        check_schema(schema, what="input_schema of tool 'add'")
    assert message in str(caught.value)
    assert str(caught.value).startswith("input_schema of tool 'add': ")


def test_only_inputs_need_an_object():
    assert check_schema({"type": "array"}, what="output_schema", root_object=False) == []
    assert check_schema({}, what="output_schema", root_object=False) == []


def test_nothing_is_ever_fetched(monkeypatch: pytest.MonkeyPatch):
    def no_network(*_args: object) -> None:
        raise AssertionError("went to the network")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    schema = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/a.json"}}}
    with pytest.raises(SchemaError):
        check_schema(schema, what="schema")
    with pytest.raises(SchemaError):
        Validator(schema)


def header(name: Any, kind: Any = "string") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name}


def properties(**named: Any) -> dict[str, Any]:
    return {"type": "object", "properties": named}


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        (properties(region=header("Region")), [HeaderParameter(("region",), "Region", "string")]),
        (
            properties(a=header("A", "integer"), b=header("B", "boolean"), c={"type": "string"}),
            [HeaderParameter(("a",), "A", "integer"), HeaderParameter(("b",), "B", "boolean")],
        ),
        (
            properties(where=properties(region=header("Region"))),
            [HeaderParameter(("where", "region"), "Region", "string")],
        ),
        # A property of the name of a keyword is a property.
        (
            properties(items=properties(properties=header("P"))),
            [HeaderParameter(("items", "properties"), "P", "string")],
        ),
        # And a property of this name is no mark.
        (properties(**{"x-mcp-header": {"type": "string"}}), []),
    ],
)
def test_header_parameters(schema: dict[str, Any], found: list[HeaderParameter]):
    assert check_schema(schema, what="schema") == found
    assert header_parameters(schema, what="schema") == found


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (properties(a=header("")), "'' at properties/a must be a header name"),
        (properties(a=header(None)), "None at properties/a must be a header name"),
        (properties(a=header(True)), "True at properties/a must be a header name"),
        (properties(a=header("My Region")), "'My Region' at properties/a must be a header name"),
        (properties(a=header("A:")), "must be a header name"),
        (properties(a=header("A\r\nB")), "must be a header name"),
        (properties(a=header("Größe")), "must be a header name"),
        (properties(a=header("A"), b=header("a")), "'a' is used twice, at properties/a and properties/b"),
        (properties(a=header("A", "number")), "needs type string, integer or boolean, not 'number'"),
        (properties(a=header("A", "object")), "not 'object'"),
        (properties(a=header("A", ["string", "null"])), "not ['string', 'null']"),
        (properties(a={"x-mcp-header": "A"}), "not None"),
        ({"type": "object", "x-mcp-header": "A"}, "at the root is not where `properties` alone leads"),
        (properties(a={"anyOf": [header("A"), {"type": "null"}]}), "use a default such as '' instead of `| None`"),
        (properties(a={"items": header("A")}), "at properties/a/items is not where"),
        (properties(a={"items": properties(b=header("A"))}), "is not where"),
        ({"type": "object", "additionalProperties": header("A")}, "is not where"),
        ({"type": "object", "patternProperties": {"^a": header("A")}}, "is not where"),
        ({"type": "object", "$defs": {"a": header("A")}}, "at $defs/a is not where"),
        ({"type": "object", "$defs": {"a": properties(b=header("A"))}}, "is not where"),
        ({"type": "object", "allOf": [properties(a=header("A"))]}, "is not where"),
        ({"type": "object", "if": properties(a=header("A"))}, "is not where"),
        ({"type": "object", "dependentSchemas": {"b": properties(a=header("A"))}}, "is not where"),
        ({"type": "object", "not": {"not": properties(a=header("A"))}}, "is not where"),
    ],
    ids=str,
)
def test_broken_header_parameters(schema: dict[str, Any], message: str):
    for check in (check_schema, header_parameters):
        with pytest.raises(SchemaError) as caught:
            check(schema, what="tool 'x'")
        assert message in str(caught.value)
        assert str(caught.value).startswith("tool 'x': x-mcp-header ")


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ({"type": "object"}, {}, None),
        ({"type": "object"}, [], "[] is not of type 'object'"),
        (properties(a={"type": "integer"}), {"a": 1}, None),
        (properties(a={"type": "integer"}), {"a": "x"}, "a: 'x' is not of type 'integer'"),
        (properties(a={"type": "integer"}), {"a": True}, "a: True is not of type 'integer'"),
        ({"required": ["a"]}, {}, "'a' is a required property"),
        ({"additionalProperties": False}, {"a": 1}, "Additional properties are not allowed ('a' was unexpected)"),
        (
            properties(a={"items": properties(b={"type": "string"})}),
            {"a": [{}, {"b": 1}]},
            "a[1].b: 1 is not of type 'string'",
        ),
        ({"items": {"type": "string"}}, ["a", 1], "[1]: 1 is not of type 'string'"),
        (ADDRESS_BOOK, {"name": "Ada", "phone": "1", "contactMethod": "phone"}, None),
        (ADDRESS_BOOK, {"name": "Ada", "phone": "1"}, "'email' is a required property"),
        (ADDRESS_BOOK, {"email": "e", "address": {"city": 1}}, "address.city: 1 is not of type 'string'"),
        # In 2020-12 `items` after `prefixItems`; in draft-07 a list under `items`.
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a", 1], "Expected at most 1 item but found 1 extra"),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "items": [{"type": "string"}],
                "additionalItems": False,
            },
            [1],
            "[0]: 1 is not of type 'string'",
        ),
    ],
)
def test_validator(schema: dict[str, Any], value: Any, problem: str | None):
    said = Validator(schema).errors(value)
    assert said == problem if problem is None or said is None else said.startswith(problem)


def test_a_long_value_is_not_read_back_whole():
    said = Validator({"type": "object"}).errors(["x" * 10_000])
    assert said is not None
    assert len(said) == 500
    assert said.endswith("...")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    ],
)
def test_a_schema_that_only_leads_to_itself_fails_the_value_and_not_the_server(schema: dict[str, Any]):
    assert Validator(schema).errors({}) == "the value is nested too deeply to be checked"


def test_a_number_that_cannot_be_divided_is_refused():
    validator = Validator({"properties": {"a": {"multipleOf": 0.5}}})
    assert validator.errors({"a": 10**300}) is None
    assert validator.errors({"a": 10**400}) == "a number in the value is too large to be checked"


def test_a_broken_schema_makes_no_validator():
    with pytest.raises(SchemaError, match="is no valid schema"):
        Validator({"type": 7})


def test_a_server_without_schemas_of_its_own_does_not_load_the_library():
    code = "import sys, mcpd.server.signature, mcpd.server.results; sys.exit('jsonschema' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
