"""What is wrong with the arguments of a call, in a sentence that a model can act on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

# How msgspec says where: " - at `$.a[0].b`", or " - at `key` in `$.a`". Parameter names never hold a backtick.
_WHERE: Final = re.compile(r"(?P<key>`key` in )?`\$(?P<path>[^`]*)`")
_FIELD: Final = re.compile(r"Object (?P<kind>missing required|contains unknown) field `(?P<field>.*)`", re.DOTALL)
# A model gains nothing from its own long value read back to it.
_MAX_LENGTH: Final = 500


class ExplainedError(msgspec.ValidationError):
    """Arguments that do not fit a schema written by hand; its text is the sentence already."""


def explain(exc: msgspec.ValidationError, input_schema: Mapping[str, Any], *, subject: str = "tool") -> str:
    """Turn what msgspec says into a sentence that names the parameter.

    Args:
      exc: from decoding the arguments.
      input_schema: the schema the model was shown; it has the names, and the choices of enumerations.
      subject: what was called, as in "this tool takes: a, b".
    """
    text = str(exc)
    return _shorten(text if isinstance(exc, ExplainedError) else _sentence(text, input_schema, subject))


def _sentence(text: str, input_schema: Mapping[str, Any], subject: str) -> str:
    what, separator, where = text.rpartition(" - at ")
    place = _WHERE.fullmatch(where) if separator else None
    if place is None:
        return _about_all(text, input_schema, subject)
    path = place["path"].removeprefix(".")
    name = f"Parameter {path!r}" + (": a key" if place["key"] else "")
    if field := _FIELD.fullmatch(what):
        problem = "is required" if field["kind"] == "missing required" else "is unknown"
        return f"{name}: field {field['field']!r} {problem}"
    problem = what.replace("`", "")
    problem = problem[:1].lower() + problem[1:]
    if problem.startswith("invalid enum value") and (choices := _choices(input_schema, path)):
        problem += f"; expected one of {', '.join(repr(choice) for choice in choices)}"
    return f"{name}: {problem}"


def _about_all(text: str, input_schema: Mapping[str, Any], subject: str) -> str:
    if field := _FIELD.fullmatch(text):
        if field["kind"] == "missing required":
            return f"Parameter {field['field']!r} is required"
        names = ", ".join(input_schema.get("properties", ()))
        return f"Unknown parameter {field['field']!r}; this {subject} takes" + (f": {names}" if names else " none")
    expected, _, got = text.replace("`", "").partition(", got ")
    if expected == "Expected object" and got:
        return f"The arguments must be an object, got {got}"
    return text.replace("`", "")


def _choices(input_schema: Mapping[str, Any], path: str) -> list[Any]:
    """The values of an enumeration that is the whole parameter, or one side of `| None`."""
    schema = input_schema.get("properties", {}).get(path, {})
    for option in (schema, *schema.get("anyOf", ())):
        name = option.get("$ref", "").removeprefix("#/$defs/")
        target = input_schema["$defs"][name] if name else option
        if "enum" in target:
            return list(target["enum"])
    return []


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 3]}..."
