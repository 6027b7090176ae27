"""JSON Schemas that a user wrote by hand: may they be used, and does a value fit?

Nothing is ever fetched here (2026-07-28, basic/index: a `$ref` that leads to the network is not to be followed
unasked, and a schema with a reference that leads nowhere is to be refused).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeGuard

DEFAULT_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
"""What a schema without `$schema` is written in, by the protocol."""

MAX_DEPTH: Final = 64
"""How deep the schemas in a schema may nest."""

HEADER_KEY: Final = "x-mcp-header"
"""Marks a property whose value travels in the header `Mcp-Param-{name}` too (since 2026-07-28)."""

# RFC 9110 section 5.6.2
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_MAX_SENTENCE: Final = 500

# Where a schema holds schemas. `dependencies` (until draft-07) also holds lists of names, which are no schemas.
_MAPS_OF_SCHEMAS: Final = (
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependencies",
)
_LISTS_OF_SCHEMAS: Final = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SCHEMAS: Final = (
    "items",
    "additionalItems",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "propertyNames",
    "contains",
    "contentSchema",
    "not",
    "if",
    "then",
    "else",
)


class SchemaError(ValueError):
    """A schema cannot be used; the message says which, where and why."""


class HeaderParameter(NamedTuple):
    """A property whose value travels in a header too.

    Attributes:
      path: the names of the properties that lead to it, from the root of the arguments.
      header: what follows `Mcp-Param-`.
      type: of the property.
    """

    path: tuple[str, ...]
    header: str
    type: Literal["string", "integer", "boolean"]


def check_schema(schema: Mapping[str, Any], *, what: str, root_object: bool = True) -> list[HeaderParameter]:
    """Check that a schema can be shown to clients and used here.

    It must be a JSON object, valid in its dialect (`$schema`, else 2020-12), refer to nothing outside itself, nest no
    deeper than `MAX_DEPTH`, and obey the rules of `x-mcp-header`.

    Args:
      schema: the schema, as it would be written in JSON.
      what: what to call it in a message, such as "input_schema of tool 'add'".
      root_object: whether the root must say `"type": "object"`, as input schemas must.

    Returns:
      The properties marked with `x-mcp-header`.

    Raises:
      SchemaError: the schema cannot be used.
    """
    Validator(schema, what=what)
    if root_object and schema.get("type") != "object":
        raise SchemaError(f'{what}: the root must say "type": "object", and says {schema.get("type")!r}')
    return header_parameters(schema, what=what)


def header_parameters(schema: Mapping[str, Any], *, what: str) -> list[HeaderParameter]:
    """Find the properties marked with `x-mcp-header`, checking only the rules of that.

    Each is a token (RFC 9110), not empty, used once whatever the case, on a string, integer or boolean property that a
    chain of `properties` alone leads to (2026-07-28, server/tools, `x-mcp-header`).

    Raises:
      SchemaError: a rule is broken.
    """
    found: list[HeaderParameter] = []
    seen: dict[str, str] = {}
    for path, node in subschemas(schema, what):
        if HEADER_KEY not in node:
            continue
        header, kind, place = node[HEADER_KEY], node.get("type"), "/".join(path) or "the root"
        if not isinstance(header, str) or not _TOKEN.fullmatch(header):
            raise SchemaError(f"{what}: {HEADER_KEY} {header!r} at {place} must be a header name such as 'Region'")
        keywords, names = path[::2], path[1::2]
        if not path or len(path) % 2 or any(each != "properties" for each in keywords):
            raise SchemaError(
                f"{what}: {HEADER_KEY} {header!r} at {place} is not where `properties` alone leads; for an "
                "optional parameter use a default such as '' instead of `| None`"
            )
        if kind not in ("string", "integer", "boolean"):
            raise SchemaError(
                f"{what}: {HEADER_KEY} {header!r} at {place} needs type string, integer or boolean, not {kind!r}"
            )
        if (other := seen.get(header.lower())) is not None:
            raise SchemaError(f"{what}: {HEADER_KEY} {header!r} is used twice, at {other} and {place}")
        seen[header.lower()] = place
        found.append(HeaderParameter(names, header, kind))
    return found


class Validator:
    """Tells whether values fit a schema.

    Args:
      schema: as `check_schema` wants it, with any root.
      what: what to call it in a message.

    Raises:
      SchemaError: the schema cannot be used.
    """

    def __init__(self, schema: Mapping[str, Any], *, what: str = "schema") -> None:
        from mcpd.server import dialects  # noqa: PLC0415 (late on purpose: see there)

        self._problem = partial(dialects.problem, dialects.validator(schema, what))

    def errors(self, value: Any) -> str | None:
        """Say what is wrong with a value.

        Args:
          value: what `json.loads` would give: dict, list, str, int, float, bool, None.

        Returns:
          `None` for nothing, else one sentence, such as "a[0]: 'x' is not of type 'integer'".
        """
        try:
            problem = self._problem(value)
        except RecursionError:
            return "the value is nested too deeply to be checked"
        except OverflowError:  # a `multipleOf` that is a fraction divides
            return "a number in the value is too large to be checked"
        if problem is None:
            return None
        sentence = ": ".join(filter(None, problem))
        return sentence if len(sentence) <= _MAX_SENTENCE else f"{sentence[: _MAX_SENTENCE - 3]}..."


def is_object(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether this is a JSON object; with a type that both type checkers believe."""
    return isinstance(value, Mapping)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Whether this is a JSON array."""
    return isinstance(value, list)


def subschemas(schema: Mapping[str, Any], what: str) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Yield every schema in a schema, the root first, with the keywords and names that lead there.

    Raises:
      SchemaError: they nest deeper than `MAX_DEPTH`.
    """
    todo: list[tuple[tuple[str, ...], int, Any]] = [((), 0, schema)]
    while todo:
        path, depth, node = todo.pop()
        if not is_object(node):  # true and false are schemas too
            continue
        if depth > MAX_DEPTH:
            raise SchemaError(f"{what}: schemas nest deeper than {MAX_DEPTH} at {'/'.join(path[:6])}...")
        yield path, node
        inner: list[tuple[tuple[str, ...], int, Any]] = []
        for keyword in _MAPS_OF_SCHEMAS:
            if is_object(value := node.get(keyword)):
                inner += [((*path, keyword, name), depth + 1, each) for name, each in value.items()]
        for keyword in _LISTS_OF_SCHEMAS:
            if is_array(value := node.get(keyword)):
                inner += [((*path, keyword, str(index)), depth + 1, each) for index, each in enumerate(value)]
        inner += [((*path, keyword), depth + 1, node[keyword]) for keyword in _SCHEMAS if keyword in node]
        todo += reversed(inner)
