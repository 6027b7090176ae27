"""The dialects of JSON Schema, by the `jsonschema` library: the only module that imports it.

That import costs a tenth of a second and six megabytes, so `mcpd.server.schema` does it when the first schema written
by hand comes, and a server that has none never does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import jsonschema
import jsonschema.exceptions
from jsonschema.protocols import Validator as JsonSchemaValidator
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, EMPTY_REGISTRY, Schema, specification_with

from mcpd.server.schema import DEFAULT_DIALECT, SchemaError, subschemas

_DIALECTS: Final[Mapping[str, type[JsonSchemaValidator]]] = {
    DEFAULT_DIALECT: jsonschema.Draft202012Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema.Draft201909Validator,
    "http://json-schema.org/draft-07/schema": jsonschema.Draft7Validator,
    "http://json-schema.org/draft-06/schema": jsonschema.Draft6Validator,
    "http://json-schema.org/draft-04/schema": jsonschema.Draft4Validator,
}


def validator(schema: Mapping[str, Any], what: str) -> JsonSchemaValidator:
    """Check a schema, but for the rules of MCP, and make its validator.

    Raises:
      SchemaError: the schema cannot be used.
    """
    if not isinstance(schema, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] (users need not have a type checker)
        raise SchemaError(f"{what}: a schema is a JSON object (a dict), not {type(schema).__name__}")
    dialect = _dialect(schema, what)
    for _ in subschemas(schema, what):  # bounds the depth, before anything recursive looks at it
        pass
    try:
        # The protocol class does not know this parameter, without which `pattern` is not checked to be a pattern.
        cast("Any", dialect).check_schema(dict(schema), format_checker=dialect.FORMAT_CHECKER)
    except jsonschema.exceptions.SchemaError as exc:
        where = "/".join(str(each) for each in exc.absolute_path) or "the root"
        raise SchemaError(f"{what}: is no valid schema: {exc.message} at {where}") from None
    _check_references(schema, what)
    # An empty registry of our own: the default one still fetches over HTTP, with a warning.
    return dialect(dict(schema), registry=EMPTY_REGISTRY)


def problem(validator: JsonSchemaValidator, value: Any) -> tuple[str, str] | None:
    """Find the most telling thing that is wrong: where (empty for the whole) and what; `None` for nothing."""
    found = jsonschema.exceptions.best_match(validator.iter_errors(value))  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    error = cast("jsonschema.exceptions.ValidationError | None", found)
    if error is None:
        return None
    path = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in error.absolute_path)
    return path.removeprefix("."), error.message


def _dialect(schema: Mapping[str, Any], what: str) -> type[JsonSchemaValidator]:
    uri = schema.get("$schema", DEFAULT_DIALECT)
    found = _DIALECTS.get(uri.rstrip("#")) if isinstance(uri, str) else None
    if found is None:
        raise SchemaError(f"{what}: $schema {uri!r} is no dialect known here; known are {', '.join(_DIALECTS)}")
    return found


def _check_references(schema: Mapping[str, Any], what: str) -> None:
    specification = specification_with(str(schema.get("$schema", DEFAULT_DIALECT)), default=DRAFT202012)
    root: Resource[Schema] = specification.create_resource(dict(schema))
    registry: Registry[Schema] = EMPTY_REGISTRY.with_resource(root.id() or "", root)
    todo = [(root, registry.resolver_with_root(root))]
    while todo:
        resource, resolver = todo.pop()
        contents = resource.contents
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if not isinstance(contents, Mapping) or not isinstance(reference := contents.get(keyword), str):
                continue
            try:
                resolver.lookup(reference)
            except Unresolvable:
                raise SchemaError(
                    f"{what}: {keyword} {reference!r} leads to nothing in this schema; nothing is fetched, so put "
                    "what it means under $defs"
                ) from None
        todo += [(each, resolver.in_subresource(each)) for each in resource.subresources()]
