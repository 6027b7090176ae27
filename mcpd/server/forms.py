"""The form of an elicitation: a flat JSON Schema from a Struct or as given, and reading what the user filled in.

"requestedSchema [...] restricted subset of JSON Schema: flat objects with primitive properties only"
(2025-11-25, client/elicitation; the same in 2026-07-28).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from mcpd.server.schema import Validator, is_object

T = TypeVar("T")

_FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})
_PRIMITIVES: Final = frozenset({"string", "number", "integer", "boolean"})
_ONLY: Final = "a form has text, numbers, booleans, choices of strings and lists of such choices only"


class Form(Generic[T]):
    """What to ask for, and how to read it."""

    def __init__(self, schema: type[T] | dict[str, Any]) -> None:
        """
        Args:
          schema: a msgspec Struct type (or dataclass, TypedDict) with primitive fields, or a raw flat JSON Schema.

        Raises:
          TypeError: a field that no form can have, by name.
        """  # noqa: D205, D212 - the class says it
        self.schema: dict[str, Any]
        self._read: Callable[[object], Any]
        if isinstance(schema, dict):
            self.schema = schema
            self._read = partial(_checked, Validator(schema))
            _check_flat(schema)
        else:
            self.schema = _flat_schema(schema)
            self._read = partial(msgspec.convert, type=schema)

    def read(self, content: object) -> T:
        """The user's content.

        Raises:
          ValueError: it does not fit the form (msgspec.ValidationError is one).
        """
        return cast("T", self._read(content))


def _checked(validator: Validator, content: object) -> Any:
    wrong = validator.errors(content)
    if wrong is not None:
        raise ValueError(wrong)
    return content


def _check_flat(schema: dict[str, Any]) -> None:
    """Refuse a schema written by hand that is valid, and yet no form (the schema's ``PrimitiveSchemaDefinition``)."""
    properties = schema.get("properties")
    if schema.get("type") != "object" or not is_object(properties):
        raise TypeError("A form's schema says type object and has properties")
    for field, inner in properties.items():
        kind = inner.get("type") if is_object(inner) else None
        if kind == "array":
            items = inner.get("items")
            fits = is_object(items) and ("enum" in items or "anyOf" in items)
        else:
            fits = kind in _PRIMITIVES and inner.get("format", "email") in _FORMATS
        if not fits:
            raise TypeError(f"{field}: {_ONLY}")


def _flat_schema(kind: type[Any]) -> dict[str, Any]:
    name = getattr(kind, "__name__", repr(kind))
    try:
        (root,), components = msgspec.json.schema_components([kind])
    except TypeError as exc:
        raise TypeError(f"No form can be made of {name}: {exc}") from None
    definition = components[root["$ref"].rpartition("/")[2]] if "$ref" in root else root
    if definition.get("type") != "object" or "properties" not in definition:
        raise TypeError(f"A form is made of a Struct, dataclass or TypedDict, not of {name}")
    properties = {
        field: _primitive(f"{name}.{field}", schema, components) for field, schema in definition["properties"].items()
    }
    return {"type": "object", "properties": properties, "required": definition.get("required", [])}


def _primitive(where: str, schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        target = components[schema["$ref"].rpartition("/")[2]]
        schema = target | {key: value for key, value in schema.items() if key != "$ref"}
    if "anyOf" in schema:
        # `T | None`: a form has no null; the field is optional instead.
        some = [option for option in schema["anyOf"] if option.get("type") != "null"]
        if len(some) == 1:
            kept = {key: value for key, value in schema.items() if key != "anyOf" and value is not None}
            return _primitive(where, some[0] | kept, components)
    schema = {key: value for key, value in schema.items() if not (key == "default" and value is None)}
    if "enum" in schema and all(isinstance(value, str) for value in schema["enum"]):
        return {"type": "string"} | schema
    kind = schema.get("type")
    if kind == "array":
        items = _primitive(where, schema.get("items", {}), components)
        if "enum" in items:
            return schema | {"items": items}
    elif kind in _PRIMITIVES:
        return {key: value for key, value in schema.items() if key != "format" or value in _FORMATS}
    raise TypeError(f"{where}: {_ONLY}")
