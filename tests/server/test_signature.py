"""From functions to schemas, decoders and calls."""

import base64
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import inspect
import math
import typing
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar

import jsonschema
import msgspec
import pytest

from mcpd.server.schema import check_schema
from mcpd.server.signature import Parameter, Signature, SignatureError, explain, raw_signature_of, signature_of

if TYPE_CHECKING:
    from nowhere import OnlyForTypeCheckers


class Context:
    """Stands for mcpd's."""


class SpecialContext(Context):
    pass


T = TypeVar("T")


class TypedContext(Context, Generic[T]):
    pass


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct):
    """A place."""

    x: int
    y: int = 0


class Tree(msgspec.Struct):
    value: int
    children: "list[Tree]" = []


@dataclasses.dataclass
class Box:
    width: float
    tags: list[str] = dataclasses.field(default_factory=list)


class Options(TypedDict, total=False):
    depth: int


class Pair(NamedTuple):
    left: str
    right: int


def sign(function: Callable[..., Any], name: str | None = None) -> Signature:
    return signature_of(function, context_type=Context, name=name)


def run(signature: Signature, arguments: Any, context: Any = None) -> Any:
    return signature.call(signature.decode(msgspec.json.encode(arguments)), context)


# ----------------------------------------------------------------------------------------------------------- the schema


def test_a_plain_function():
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    signature = sign(add)
    assert signature.name == "add"
    assert signature.description == "Add two numbers."
    assert signature.input_schema == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 2}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert list(signature.input_schema) == ["type", "properties", "required", "additionalProperties"]
    assert signature.parameters == (Parameter("a", None, required=True), Parameter("b", None, required=False))
    assert signature.returns is int
    assert not signature.is_async
    assert signature.context_name is None
    assert run(signature, {"a": 1}) == 3
    assert run(signature, {"a": 1, "b": 5}) == 6


def test_a_function_without_parameters():
    def ping():
        return "pong"

    signature = sign(ping)
    assert signature.input_schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert signature.description is None
    assert signature.returns is inspect.Signature.empty
    assert run(signature, {}) == "pong"


# Each: a type, JSON that fits, what the function is given, JSON that does not fit.
TYPES: list[tuple[Any, Any, Any, Any]] = [
    (str, "a", "a", 1),
    (int, 2**70, 2**70, 1.5),
    (float, 1, 1.0, "1"),
    (bool, True, True, 1),
    (bytes, base64.b64encode(b"\x00\xff").decode(), b"\x00\xff", "?"),
    (int | None, None, None, "a"),
    (int | str, "a", "a", []),
    (int | list[str] | dict[str, int] | None, {"a": 1}, {"a": 1}, True),
    (Literal["a", "b"], "a", "a", "c"),
    (Literal[1, "a"], 1, 1, 2),
    (Color, "red", Color.RED, "green"),
    (Color | None, "blue", Color.BLUE, 1),
    (Annotated[int, msgspec.Meta(ge=1, le=3)], 3, 3, 4),
    (Annotated[str, msgspec.Meta(pattern="^a", max_length=3)], "abc", "abc", "b"),
    (list[int], [1, 2], [1, 2], ["a"]),
    (list, [1, "a"], [1, "a"], {}),
    (Sequence[int], [1], [1], {}),
    (set[int], [1, 2], {1, 2}, 1),
    (frozenset[str], ["a"], frozenset({"a"}), [1]),
    (tuple[int, str], [1, "a"], (1, "a"), [1]),
    (tuple[int, ...], [1, 2, 3], (1, 2, 3), ["a"]),
    (dict[str, int], {"a": 1}, {"a": 1}, {"a": "b"}),
    (dict, {"a": 1}, {"a": 1}, []),
    (dict[int, str], {"1": "a"}, {1: "a"}, {"a": "a"}),
    (Point, {"x": 1}, Point(1), {"y": 1}),
    (list[Point], [{"x": 1}], [Point(1)], [1]),
    (Tree, {"value": 1, "children": [{"value": 2}]}, Tree(1, [Tree(2)]), {"value": 1, "children": [{}]}),
    (Box, {"width": 1.5}, Box(1.5), {}),
    (Options, {"depth": 1}, {"depth": 1}, {"depth": "a"}),
    (Pair, ["a", 1], Pair("a", 1), ["a"]),
    (dt.date, "2026-07-28", dt.date(2026, 7, 28), "28.7.2026"),
    (dt.time, "12:30:00", dt.time(12, 30), "noon"),
    (dt.timedelta, "PT90S", dt.timedelta(seconds=90), "soon"),
    (
        dt.datetime,
        "2026-07-28T12:00:00Z",
        dt.datetime(2026, 7, 28, 12, tzinfo=dt.UTC),
        "yesterday",
    ),
    (uuid.UUID, "12345678123456781234567812345678", uuid.UUID(int=0x12345678123456781234567812345678), "1"),
    (decimal.Decimal, "1.10", decimal.Decimal("1.10"), "one"),
    (Any, {"a": [1]}, {"a": [1]}, msgspec.UNSET),
    (typing.NewType("UserId", int), 1, 1, "a"),
]


@pytest.mark.parametrize(("kind", "good", "value", "bad"), TYPES, ids=[str(each[0]) for each in TYPES])
def test_types(kind: Any, good: Any, value: Any, bad: Any):
    def tool(a):
        return a

    tool.__annotations__["a"] = kind
    signature = sign(tool)
    assert check_schema(signature.input_schema, what="made") == []
    valid = jsonschema.Draft202012Validator(signature.input_schema)
    given = run(signature, {"a": good})
    assert given == value
    assert type(given) is type(value)
    valid.validate({"a": good})
    if bad is not msgspec.UNSET:
        with pytest.raises(msgspec.ValidationError) as caught:
            run(signature, {"a": bad})
        assert signature.explain(caught.value).startswith("Parameter 'a")


def test_types_of_ones_own_are_in_defs():
    def tool(point: Point, tree: Tree, again: list[Point]) -> None: ...

    schema = sign(tool).input_schema
    assert schema["properties"]["point"] == {"$ref": "#/$defs/Point"}
    assert schema["properties"]["again"] == {"type": "array", "items": {"$ref": "#/$defs/Point"}}
    assert set(schema["$defs"]) == {"Point", "Tree"}
    assert schema["$defs"]["Point"]["description"] == "A place."


def test_two_types_of_one_name():
    first, second = (msgspec.defstruct("Same", [(field, int)], module="here") for field in "ab")

    def tool(a, b):
        return a, b

    tool.__annotations__.update(a=first, b=second)
    signature = sign(tool)
    assert len(signature.input_schema["$defs"]) == 2
    jsonschema.Draft202012Validator(signature.input_schema).validate({"a": {"a": 1}, "b": {"b": 1}})
    assert run(signature, {"a": {"a": 1}, "b": {"b": 1}}) == (first(1), second(1))


def test_a_type_with_the_name_of_the_function():
    def Point_arguments(a: Point) -> None: ...  # noqa: N802

    assert set(sign(Point_arguments).input_schema["$defs"]) == {"Point"}


DEFAULTS: list[tuple[Any, Any, Any]] = [
    (int, 1, 1),
    (int | None, None, None),
    (str, "", ""),
    (float, 1.5, 1.5),
    (bool, False, False),
    (Color, Color.RED, "red"),
    (list[int], [1, 2], [1, 2]),
    (dict[str, list[int]], {"a": [1]}, {"a": [1]}),
    (set[int], {1}, [1]),
    (Point, Point(1, 2), {"x": 1, "y": 2}),
    (Box, Box(1.0, ["a"]), {"width": 1.0, "tags": ["a"]}),
    (tuple[int, int], (1, 2), [1, 2]),
    (bytes, b"\x00", "AA=="),
    (dt.timedelta, dt.timedelta(seconds=5), "PT5S"),
    (decimal.Decimal, decimal.Decimal("1.10"), "1.10"),
]


@pytest.mark.parametrize(("kind", "default", "shown"), DEFAULTS, ids=[str(each[1]) for each in DEFAULTS])
def test_defaults(kind: Any, default: Any, shown: Any):
    def tool(a):
        return a

    tool.__annotations__["a"] = kind
    tool.__defaults__ = (default,)
    signature = sign(tool)
    assert signature.input_schema["properties"]["a"]["default"] == shown
    assert "required" not in signature.input_schema
    assert run(signature, {}) == default


@pytest.mark.parametrize("default", [[1], {"a": [1]}, {1}, Point(1), Box(1.0)], ids=str)
def test_a_mutable_default_is_new_for_each_call(default: Any):
    def tool(a=default):
        return a

    tool.__annotations__["a"] = type(default)
    signature = sign(tool)
    first, second = run(signature, {}), run(signature, {})
    assert first == second == default
    assert first is not second
    assert first is not default


def test_what_is_inside_a_mutable_default_is_new_too():
    def tool(a: dict[str, list[int]] = {"a": []}):  # noqa: B006
        a["a"].append(1)
        return a

    signature = sign(tool)
    assert [run(signature, {}), run(signature, {})] == [{"a": [1]}] * 2


@pytest.mark.parametrize(
    "default", [object(), math.inf, math.nan, msgspec.UNSET], ids=["sentinel", "inf", "nan", "unset"]
)
def test_a_default_without_json_is_not_shown(default: Any):
    def tool(a: float | msgspec.UnsetType = default):
        return a

    signature = sign(tool)
    assert "default" not in signature.input_schema["properties"]["a"]
    assert not signature.parameters[0].required
    assert type(run(signature, {})) is type(default)
    assert run(signature, {"a": 1.5}) == 1.5


def test_an_annotation_for_a_header_comes_through():
    def tool(region: Annotated[str, msgspec.Meta(extra_json_schema={"x-mcp-header": "Region"})] = ""):
        return f"region={region}"

    signature = sign(tool)
    assert signature.input_schema["properties"]["region"] == {"type": "string", "x-mcp-header": "Region", "default": ""}
    ((path, header, kind),) = check_schema(signature.input_schema, what="tool")
    assert (path, header, kind) == (("region",), "Region", "string")
    assert run(signature, {"region": "eu"}) == "region=eu"


# -------------------------------------------------------------------------------------------------------- documentation


def google(a: int, b: str = ""):
    """Search the index.

    Longer text, over
    two lines.

    Args:
        a: how many,
            at most
        b (str): what for

    Returns:
        The hits.
    """


def numpy(a: int, b: str = ""):
    """Search the index.

    Longer text, over
    two lines.

    Parameters
    ----------
    a : int
        how many,
        at most
    b : str, optional
        what for

    Returns
    -------
    list
        The hits.
    """


def rest(a: int, b: str = ""):
    """Search the index.

    Longer text, over
    two lines.

    :param a: how many,
        at most
    :param str b: what for
    :returns: The hits.
    """


@pytest.mark.parametrize("function", [google, numpy, rest])
def test_docstrings(function: Callable[..., Any]):
    signature = sign(function)
    properties = signature.input_schema["properties"]
    assert properties["a"]["description"] == "how many, at most"
    assert properties["b"]["description"] == "what for"
    assert [each.description for each in signature.parameters] == ["how many, at most", "what for"]
    assert signature.description is not None
    assert signature.description.startswith("Search the index.\n\nLonger text, over\ntwo lines.")
    assert "The hits." in signature.description
    assert "what for" not in signature.description


def test_a_docstring_without_parameters_is_kept_as_it_is():
    def tool(a: int):
        """Do it.

        Note:
            Keep   this.

            - a: point
            Example: 1 < 2
        """

    assert sign(tool).description == "Do it.\n\nNote:\n    Keep   this.\n\n    - a: point\n    Example: 1 < 2"


def test_the_annotation_has_the_word_over_the_docstring():
    def tool(
        a: Annotated[int, msgspec.Meta(description="from Meta")],
        b: Annotated[int, "from a string"],
        c: Annotated[Point, msgspec.Meta(description="from Meta too")],
        d: int,
    ):
        """Do it.

        Args:
            a: no
            b: no
            c: no
            d: from the docstring
            nothing: of this name
        """

    signature = sign(tool)
    found = {name: schema["description"] for name, schema in signature.input_schema["properties"].items()}
    assert found == {"a": "from Meta", "b": "from a string", "c": "from Meta too", "d": "from the docstring"}
    assert signature.input_schema["properties"]["c"]["$ref"] == "#/$defs/Point"
    assert signature.description == "Do it."


# ------------------------------------------------------------------------------------------------- Context and the call


def context_first(ctx: Context, a: int, b: int = 2):
    return ctx, a, b


def context_between(a: int, ctx: Context, b: int = 2):
    return ctx, a, b


def context_last(a: int, b: int = 2, ctx: Context | None = None):
    return ctx, a, b


def context_by_name(a: int, b: int = 2, *, ctx: Context):
    return ctx, a, b


def all_by_name(*, a: int, ctx: Context, b: int = 2):
    return ctx, a, b


def some_by_name(ctx: Context, a: int, *, b: int = 2):
    return ctx, a, b


def between_and_by_name(a: int, ctx: "Context", *, b: int = 2):
    return ctx, a, b


def optional(ctx: typing.Optional[Context], a: int, b: int = 2):  # noqa: UP045
    return ctx, a, b


def annotated(ctx: Annotated[Context, "mcpd's"], a: int, b: int = 2):
    return ctx, a, b


def special(ctx: SpecialContext, a: int, b: int = 2):
    return ctx, a, b


def generic(ctx: TypedContext[int], a: int, b: int = 2):
    return ctx, a, b


@pytest.mark.parametrize(
    "function",
    [
        context_first,
        context_between,
        context_last,
        context_by_name,
        all_by_name,
        some_by_name,
        between_and_by_name,
        optional,
        annotated,
        special,
        generic,
    ],
)
def test_the_context_is_given_and_not_shown(function: Callable[..., Any]):
    signature = sign(function)
    assert signature.context_name == "ctx"
    assert list(signature.input_schema["properties"]) == ["a", "b"]
    context = Context()
    assert run(signature, {"a": 1}, context) == (context, 1, 2)
    assert run(signature, {"b": 3, "a": 1}, context) == (context, 1, 3)


def test_the_context_alone():
    def tool(ctx: Context):
        return ctx

    context = Context()
    assert run(sign(tool), {}, context) is context


def test_a_list_of_contexts_is_no_context():
    def tool(ctx: list[Context]): ...

    with pytest.raises(SignatureError, match="parameter 'ctx'"):
        sign(tool)


async def coroutine(a: int):
    return a


@functools.wraps(coroutine)
def wrapper(*args: Any, **kwargs: Any) -> Any:
    return coroutine(*args, **kwargs)


class Service:
    """A service."""

    async def method(self, a: int, ctx: Context):
        """Do it."""
        return self, a, ctx

    @staticmethod
    def static(a: int):
        return a

    @classmethod
    def of_class(cls, a: int):
        return cls, a


class Callable_:  # noqa: N801
    """Call me."""

    async def __call__(self, a: int) -> int:
        return a


class DocumentedCallable:
    """A class."""

    def __call__(self, a: int):
        """Call it."""
        return a


@functools.lru_cache
def cached(a: int):
    """Remember."""
    return a


@pytest.mark.parametrize(
    ("function", "name", "description", "is_async"),
    [
        (coroutine, "coroutine", None, True),
        (wrapper, "coroutine", None, True),
        (Service().method, "method", "Do it.", True),
        (Service.static, "static", None, False),
        (Service.__dict__["static"], "static", None, False),
        (Service.of_class, "of_class", None, False),
        (Callable_(), "Callable_", "Call me.", True),
        (DocumentedCallable(), "DocumentedCallable", "Call it.", False),
        (functools.partial(coroutine), "coroutine", None, True),
        (functools.partial(functools.partial(Service().method, ctx=Context())), "method", "Do it.", True),
        (functools.partial(Callable_()), "Callable_", "Call me.", True),
        (cached, "cached", "Remember.", False),
    ],
    ids=range(12),
)
def test_kinds_of_functions(function: Any, name: str, description: str | None, is_async: bool):
    signature = sign(function)
    assert signature.name == name
    assert signature.description == description
    assert signature.is_async is is_async
    assert list(signature.input_schema["properties"]) == ["a"]
    result = run(signature, {"a": 1}, Context())
    if inspect.iscoroutine(result):
        result.close()
    else:
        assert not is_async


def test_what_a_partial_fixes_is_neither_shown_nor_changeable():
    def search(index: str, query: str, limit: int = 3, *, ctx: Context):
        return index, query, limit, ctx

    for fixed in (functools.partial(search, "secret"), functools.partial(search, index="secret")):
        signature = sign(fixed)
        assert list(signature.input_schema["properties"]) == ["query", "limit"]
        assert run(signature, {"query": "a"}, 7) == ("secret", "a", 3, 7)
        with pytest.raises(msgspec.ValidationError, match="unknown field `index`"):
            run(signature, {"query": "a", "index": "other"})


def test_another_name():
    assert sign(lambda: 1, name="one").name == "one"
    assert sign(coroutine, name="other").name == "other"


# --------------------------------------------------------------------------------------------------------------
# refusals


def positional_only(a: int, /): ...


def any_number(*a: int): ...


def any_name(**a: int): ...


def bare(a): ...


def bare_context(ctx: Context, a): ...


def two_contexts(one: Context, two: Context | None = None): ...


def unresolvable(a: "Missing"): ...  # noqa: F821


def only_for_type_checkers(a: "OnlyForTypeCheckers"): ...


def two_structs(a: Point | Tree): ...


def struct_or_dict(a: Point | dict[str, int]): ...


def list_or_set(a: list[int] | set[int]): ...


def a_class(a: Service): ...


def a_class_inside(a: list[dict[str, Service]]): ...


def a_function(a: Callable[[], int]): ...


def a_complex(a: complex): ...


def wrong_default(a: int = None): ...  # noqa: RUF013


def wrong_typed_default(a: list[int] = ["x"]): ...  # noqa: B006


def wrong_constraint(a: Annotated[str, msgspec.Meta(ge=1)]): ...


def generator(a: int) -> Iterator[int]:
    yield a


async def async_generator(a: int) -> AsyncIterator[int]:
    yield a


def unreadable(a: int): ...


unreadable.__signature__ = 7  # type: ignore[attr-defined]


@dataclasses.dataclass
class Unresolved:
    a: "Missing"  # noqa: F821


def unresolved_inside(a: Unresolved): ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            positional_only,
            "positional_only(): parameter 'a' is positional-only, and arguments come by name; remove the `/`",
        ),
        (
            any_number,
            "any_number(): parameter '*a' takes any number of arguments, and arguments come by name; take a `list`",
        ),
        (any_name, "any_name(): parameter '**a' takes any name, which no schema can show; take a `dict` instead"),
        (bare, "bare(): parameter 'a' has no annotation; write `a: str`"),
        (bare_context, "bare_context(): parameter 'a' has no annotation"),
        (two_contexts, "two_contexts(): parameters 'one' and 'two' both ask for the Context; keep one"),
        (
            unresolvable,
            "unresolvable(): an annotation cannot be resolved: name 'Missing' is not defined; what it names must",
        ),
        (only_for_type_checkers, "nor under `if TYPE_CHECKING:`"),
        (
            two_structs,
            "two_structs(): parameter 'a': If a type union contains multiple Struct types, all",
        ),
        (struct_or_dict, "struct_or_dict(): parameter 'a': Type unions may not contain more than one dict-like type"),
        (list_or_set, "list_or_set(): parameter 'a': Type unions may not contain more than one array-like"),
        (a_class, "a_class(): parameter 'a': Service has no form in JSON; use builtin types, list, dict, Literal"),
        (a_class_inside, "a_class_inside(): parameter 'a': list[dict[str, "),
        (a_function, "a_function(): parameter 'a': "),
        (a_complex, "a_complex(): parameter 'a': complex has no form in JSON"),
        (
            wrong_default,
            "parameter 'a': its default None does not fit its annotation: Expected int, got null; add `| None`",
        ),
        (
            wrong_typed_default,
            "parameter 'a': its default ['x'] does not fit its annotation: Expected int, got str - at $[0]",
        ),
        (wrong_constraint, "wrong_constraint(): parameter 'a': Can only set `ge` on a numeric type"),
        (generator, "generator(): is a generator, and a result is sent whole; return a list"),
        (async_generator, "async_generator(): is a generator"),
        (unresolved_inside, "unresolved_inside(): parameter 'a': name 'Missing' is not defined"),
        (lambda: 1, "a lambda has no name; use def, or give it one with name="),
        (Service, "Service: is a class, not a function; write a function that makes and uses one"),
        (Service.__dict__["of_class"], "of_class: classmethod object cannot be called; serve a function or a method"),
        (7, "int: int object cannot be called"),
        (Service(), "Service: Service object cannot be called"),
        (print, "print(): parameter '*args' takes any number"),
        (pow, "pow(): parameter 'base' has no annotation"),
        (unreadable, "unreadable(): has no signature Python can read; wrap it in a function with one"),
    ],
    ids=lambda value: "" if isinstance(value, str) else getattr(value, "__name__", repr(value).split(" at ")[0]),
)
def test_what_cannot_be_served_is_refused(function: Any, message: str):
    with pytest.raises(SignatureError) as caught:
        sign(function)
    assert message in str(caught.value)
    assert isinstance(caught.value, TypeError)
    assert "\n" not in str(caught.value)


def test_constraints_of_pydantic_are_refused_rather_than_ignored():
    class FieldInfo:
        """As pydantic's is, to us: a class of that name in that package."""

    FieldInfo.__module__ = "pydantic.fields"

    def in_annotation(a: Annotated[int, FieldInfo()]): ...

    def in_default(a: int = FieldInfo()): ...

    for function in (in_annotation, in_default):
        with pytest.raises(
            SignatureError, match=r"FieldInfo is for pydantic, and would not be checked; use `Annotated"
        ):
            sign(function)


# ----------------------------------------------------------------------------------------------------------
# explanations


def everything(  # noqa: PLR0917
    a: int,
    l: list[Point] = [],  # noqa: B006, E741
    d: dict[str, Point] = {},  # noqa: B006
    k: dict[int, int] = {},  # noqa: B006
    e: Color | None = None,
    m: Literal["x", "y"] = "x",
    g: Annotated[int, msgspec.Meta(ge=3)] = 3,
    s: Annotated[str, msgspec.Meta(max_length=3)] = "",
    t: dt.datetime | None = None,
    u: int | str | None = None,
    c: list[Color] = [],  # noqa: B006
): ...


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "Parameter 'a' is required"),
        ({"a": "x"}, "Parameter 'a': expected int, got str"),
        ({"a": None}, "Parameter 'a': expected int, got null"),
        ({"a": 1, "z": 1}, "Unknown parameter 'z'; this tool takes: a, l, d, k, e, m, g, s, t, u, c"),
        ({"a": 1, "l": [{"x": 1}, {"x": "1"}]}, "Parameter 'l[1].x': expected int, got str"),
        ({"a": 1, "l": [{}]}, "Parameter 'l[0]': field 'x' is required"),
        ({"a": 1, "d": {"k": {"x": "1"}}}, "Parameter 'd[...].x': expected int, got str"),
        ({"a": 1, "k": {"z": 1}}, "Parameter 'k': a key: expected int, got str"),
        ({"a": 1, "e": "green"}, "Parameter 'e': invalid enum value 'green'; expected one of 'blue', 'red'"),
        ({"a": 1, "m": "z"}, "Parameter 'm': invalid enum value 'z'; expected one of 'x', 'y'"),
        ({"a": 1, "c": ["red", "green"]}, "Parameter 'c[1]': invalid enum value 'green'"),
        ({"a": 1, "g": 1}, "Parameter 'g': expected int >= 3"),
        ({"a": 1, "s": "long"}, "Parameter 's': expected str of length <= 3"),
        ({"a": 1, "t": "now"}, "Parameter 't': invalid RFC3339 encoded datetime"),
        ({"a": 1, "u": []}, "Parameter 'u': expected int | str | null, got array"),
        ([], "The arguments must be an object, got array"),
        (None, "The arguments must be an object, got null"),
        ({"a": 1, "x - at `$.y": 1}, "Parameter 'y': "),  # a nonsense name gets a strange sentence, and no more
    ],
)
def test_explanations(arguments: Any, sentence: str):
    signature = sign(everything)
    with pytest.raises(msgspec.ValidationError) as caught:
        run(signature, arguments)
    said = signature.explain(caught.value)
    assert said == sentence or (sentence.endswith(": ") and said.startswith(sentence))


def test_a_tool_without_parameters_says_so():
    def ping(): ...

    signature = sign(ping)
    with pytest.raises(msgspec.ValidationError) as caught:
        run(signature, {"a": 1})
    assert signature.explain(caught.value) == "Unknown parameter 'a'; this tool takes none"
    assert signature.explain(caught.value, subject="prompt") == "Unknown parameter 'a'; this prompt takes none"


def test_a_long_value_is_not_read_back_whole():
    signature = sign(everything)
    with pytest.raises(msgspec.ValidationError) as caught:
        run(signature, {"a": 1, "m": "z" * 10_000})
    assert len(signature.explain(caught.value)) == 500


def test_an_unknown_message_is_passed_on():
    assert explain(msgspec.ValidationError("What `is` this?"), {}) == "What is this?"


def test_strings_serve_for_other_types():
    def prompt(a: int, b: bool = False, c: Color = Color.RED, d: float | None = None, e: str = ""):
        return a, b, c, d, e

    signature = sign(prompt)
    given = signature.from_strings({"a": "3", "b": "true", "c": "blue", "d": "1.5", "e": "7"})
    assert signature.call(given, None) == (3, True, Color.BLUE, 1.5, "7")
    for wrong, sentence in [
        ({"a": "x"}, "Parameter 'a': expected int, got str"),
        ({}, "Parameter 'a' is required"),
        ({"a": "1", "z": "1"}, "Unknown parameter 'z'; this prompt takes: a, b, c, d, e"),
    ]:
        with pytest.raises(msgspec.ValidationError) as caught:
            signature.from_strings(wrong)
        assert signature.explain(caught.value, subject="prompt") == sentence


# ------------------------------------------------------------------------------------------------------------ raw
# schemas

RAW: dict[str, Any] = {
    "type": "object",
    "properties": {"x": {"type": "integer", "description": "across"}, "y": True},
    "required": ["x"],
    "not": {"required": ["z"]},
}


def raw(function: Callable[..., Any]) -> Signature:
    return raw_signature_of(function, context_type=Context, input_schema=RAW)


def as_dict(arguments: dict[str, Any]):
    """Take them all."""
    return arguments


def as_any(arguments: Any, ctx: Context):
    return arguments


def as_struct(*, ctx: Context, point: Point):
    return point


def as_options(point: Box | None): ...


def test_a_raw_schema():
    signature = raw(as_dict)
    assert signature.input_schema is RAW
    assert signature.description == "Take them all."
    assert signature.parameters == (Parameter("x", "across", required=True), Parameter("y", None, required=False))
    assert run(signature, {"x": 1, "extra": [None]}) == {"x": 1, "extra": [None]}
    assert run(raw(as_any), {"x": 1}, Context()) == {"x": 1}
    assert run(raw(as_struct), {"x": 1, "y": 2}, Context()) == Point(1, 2)


@pytest.mark.parametrize(
    ("function", "arguments", "sentence"),
    [
        (as_dict, {"x": "a"}, "x: 'a' is not of type 'integer'"),
        (as_dict, {}, "'x' is a required property"),
        (as_dict, [], "[] is not of type 'object'"),
        (as_dict, {"x": 1, "z": 1}, "{'x': 1, 'z': 1} should not be valid under {'required': ['z']}"),
        (as_struct, {"x": 1, "y": "a"}, "Parameter 'y': expected int, got str"),
    ],
)
def test_raw_schemas_are_enforced(function: Callable[..., Any], arguments: Any, sentence: str):
    signature = raw(function)
    with pytest.raises(msgspec.ValidationError) as caught:
        run(signature, arguments)
    assert signature.explain(caught.value) == sentence


def no_parameter(ctx: Context): ...


def two_parameters(a: dict[str, Any], b: int): ...


def not_an_object(a: list[int]): ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (no_parameter, "no_parameter(): with input_schema= it takes one parameter for all the arguments"),
        (two_parameters, "it has 2"),
        (not_an_object, "not_an_object(): parameter 'a': list[int] cannot hold all the arguments; annotate it `dict"),
        (as_options, "cannot hold all the arguments"),
        (a_class, "a_class(): parameter 'a': Service has no form in JSON"),
        (bare, "parameter 'a' has no annotation"),
    ],
)
def test_what_cannot_take_raw_arguments_is_refused(function: Callable[..., Any], message: str):
    with pytest.raises(SignatureError) as caught:
        raw(function)
    assert message in str(caught.value)
