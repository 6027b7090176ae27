"""What a tool takes is what its schema says: instances that the schema allows, and those that it does not.

Schemas that mcpd makes from signatures, and schemas written by hand. Every call is a real one, and whatever is in the
arguments, it gets a result; one that does not fit names the parameter.
"""

import enum
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

import jsonschema
import msgspec
import pytest
import trio
from hypothesis import HealthCheck, given, settings, strategies
from hypothesis_jsonschema import from_schema
from msgspec import Meta

from mcpd import Server
from mcpd.testing import connect
from tests.fuzz.effort import examples


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10


class Point(msgspec.Struct):
    x: float
    y: Annotated[float, Meta(ge=0, lt=100)] = 0.0
    label: str | None = None


class Circle(msgspec.Struct, tag="circle"):
    radius: Annotated[float, Meta(gt=0)]
    centre: Point | None = None


class Square(msgspec.Struct, tag="square"):
    side: float


class Options(TypedDict):
    verbose: bool
    depth: NotRequired[int]


@dataclass
class Named:
    name: str


async def numbers(
    whole: int, real: float, small: Annotated[int, Meta(ge=-3, le=3)] = 0, even: Annotated[int, Meta(multiple_of=2)] = 0
) -> None: ...


async def texts(
    text: str,
    short: Annotated[str, Meta(min_length=1, max_length=3)],
    code: Annotated[str, Meta(pattern="^[a-z]{2}-[0-9]+$")] = "aa-1",
) -> None: ...


async def choices(
    one: Literal["a", "b", 3], colour: Colour, level: Level = Level.LOW, on: bool = False, none: None = None
) -> None: ...


async def unions(a: int | str, b: float | bool | None = None, c: list[int] | dict[str, bool] | None = None) -> None: ...


async def collections(
    many: list[int],
    pair: tuple[int, str],
    mapping: dict[str, Annotated[list[float], Meta(max_length=2)]],
    some: Annotated[list[str], Meta(min_length=1, max_length=3)] = ["a"],  # noqa: B006 - as users write it
) -> None: ...


async def objects(point: Point, shape: Circle | Square, options: Options, named: Named | None = None) -> None: ...


async def anything(value: Any, rest: dict[str, Any] | None = None) -> None: ...


async def nothing() -> None: ...


FUNCTIONS: Final = [numbers, texts, choices, unions, collections, objects, anything, nothing]
HAND_WRITTEN: Final[dict[str, dict[str, Any]]] = {
    "numbers": {
        "properties": {
            "n": {"type": "number", "multipleOf": 0.5, "minimum": -1e3},
            "i": {"type": "integer", "multipleOf": 3},
        }
    },
    "combined": {
        "properties": {
            "kind": {"enum": ["a", "b", None, 1]},
            "value": {"oneOf": [{"type": "string"}, {"type": "integer", "minimum": 0}]},
        },
        "required": ["kind"],
        "if": {"properties": {"kind": {"const": "a"}}},
        "then": {"required": ["value"]},
    },
    "names": {
        "propertyNames": {"pattern": "^[a-z_]{1,8}$"},
        "patternProperties": {"^n_": {"type": "integer"}, "^s_": {"type": "string", "maxLength": 4}},
        "additionalProperties": False,
        "minProperties": 1,
    },
    "arrays": {
        "properties": {
            "tuple": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
            "unique": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "contains": {"const": 1}},
        },
        "additionalProperties": False,
    },
    "recursive": {
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {"left": {"$ref": "#/$defs/tree"}, "v": {"type": "integer"}},
                "additionalProperties": False,
            }
        },
        "properties": {"tree": {"$ref": "#/$defs/tree"}},
    },
    "negations": {
        "properties": {"x": {"not": {"type": ["string", "null"]}}},
        "dependentRequired": {"x": ["y"]},
        "unevaluatedProperties": {"type": "number"},
    },
    "draft 7": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"t": {"items": [{"type": "integer"}], "additionalItems": False}},
    },
}

_KEYS: Final = strategies.sampled_from(["value", "__proto__", "self", "ctx", "", "arguments", "\0"]) | strategies.text(
    max_size=8
)
_SCALARS: Final = (
    strategies.none()
    | strategies.booleans()
    | strategies.integers()
    | strategies.sampled_from([0, -1, 2**53, 2**63, 2**64, 10**400, -(10**400), 1e308, -0.0, 1.5, 3.0])
    | strategies.floats(allow_nan=False, allow_infinity=False)
    | strategies.text(max_size=10)
)
ANYTHING: Final = strategies.recursive(
    _SCALARS,
    lambda inner: strategies.lists(inner, max_size=4) | strategies.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


TREES: Final = strategies.recursive(
    strategies.just({}) | strategies.builds(lambda v: {"v": v}, strategies.integers()),
    lambda inner: strategies.builds(lambda left: {"left": left}, inner),
)


def fitting_of(schema: dict[str, Any]) -> strategies.SearchStrategy[Any]:
    """Instances that a schema allows. hypothesis-jsonschema knows no references that lead back to where they stand."""
    if "tree" in schema.get("properties", {}):
        return strategies.builds(lambda tree: {"tree": tree}, TREES)
    return from_schema(_in_draft_7(schema))


def called(server: Server, arguments: dict[str, Any]) -> tuple[bool, str]:
    """Call the server's only tool: whether it failed, and with which words. An error response is an exception here."""

    async def call() -> tuple[bool, str]:
        async with connect(server) as client:
            result = await client.call_tool("tool", arguments)
            return bool(result.is_error), result.text

    return trio.run(call)


def served(function: Callable[..., Any]) -> tuple[Server, dict[str, Any]]:
    server = Server("schemas", version="1")
    server.tool(function, name="tool")
    (entry,) = server.tools
    return server, entry.signature.input_schema


def by_hand(schema: dict[str, Any]) -> tuple[Server, dict[str, Any]]:
    server = Server("schemas", version="1")
    schema = {"type": "object", **schema}

    @server.tool(name="tool", input_schema=schema)
    async def tool(arguments: dict[str, Any]) -> str:
        return json.dumps(arguments)

    return server, schema


def fits(schema: dict[str, Any], value: Any) -> bool:
    """Whether it fits, by a validator that mcpd does not use for what it makes itself."""
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return bool(kind(schema).is_valid(value))


def _odd(value: Any) -> bool:
    """Whether it has a number of which JSON Schema and mcpd think differently.

    To JSON Schema 1.0 is an integer, and any integer a number. mcpd takes no 1.0 for an integer, since what a client
    means by it is not known, and for a float no integer that is larger than all floats.
    """
    if isinstance(value, dict | list):
        return any(map(_odd, value.values() if isinstance(value, dict) else value))
    if isinstance(value, float):
        return value == int(value)
    return isinstance(value, int) and abs(value) > sys.float_info.max


def _in_draft_7(schema: Any) -> Any:
    """The same schema in the words that hypothesis-jsonschema knows."""
    if isinstance(schema, list):
        return [_in_draft_7(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    renamed = {name: _in_draft_7(each) for name, each in schema.items()}
    if "prefixItems" in renamed:
        renamed |= {"items": renamed.pop("prefixItems"), "additionalItems": renamed.get("items", True)}
    return renamed


_SETTINGS: Final = settings(
    max_examples=examples(15),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_the_schema_of_a_signature_allows_is_taken(function: Callable[..., Any]):
    server, schema = served(function)

    @_SETTINGS
    @given(fitting_of(schema))
    def check(arguments: dict[str, Any]) -> None:
        assert fits(schema, arguments)
        failed, text = called(server, arguments)
        assert not failed or _odd(arguments), text

    check()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_it_does_not_allow_is_told_by_the_name_of_the_parameter(function: Callable[..., Any]):
    server, schema = served(function)
    names = [*schema["properties"], "unknown"]

    @_SETTINGS
    @given(fitting_of(schema), strategies.sampled_from(names), ANYTHING | strategies.just(...))
    def check(arguments: dict[str, Any], name: str, value: Any) -> None:
        arguments = {**arguments, name: value}
        if value is ...:
            del arguments[name]
        failed, text = called(server, arguments)
        assert failed == (not fits(schema, arguments)) or (failed and _odd(arguments)), text
        assert "internal" not in text
        if failed:
            assert f"'{name}" in text

    check()


@pytest.mark.parametrize("schema", HAND_WRITTEN.values(), ids=HAND_WRITTEN)
def test_a_schema_written_by_hand_is_what_counts(schema: dict[str, Any]):
    server, schema = by_hand(schema)
    names = strategies.sampled_from([*schema.get("properties", ()), "n_a", "s_b", "y", "tree"])

    @_SETTINGS
    @given(fitting_of(schema), strategies.dictionaries(names | _KEYS, ANYTHING, max_size=2), strategies.booleans())
    def check(fitting: dict[str, Any], other: dict[str, Any], both: bool) -> None:
        for arguments in (fitting, {**fitting, **other} if both else other):
            failed, text = called(server, arguments)
            if failed:
                assert "internal" not in text
                assert not _fits_surely(schema, arguments), text
            else:
                assert json.loads(text) == arguments

    check()


def _fits_surely(schema: dict[str, Any], value: Any) -> bool:
    try:
        return fits(schema, value)
    except OverflowError:  # what jsonschema makes of the largest numbers
        return False
