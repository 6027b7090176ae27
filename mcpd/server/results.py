"""From what a tool returns to a `CallToolResult`.

The return annotation decides, when the tool is registered, between two shapes. **Content**: text, images, files, in
the order given. **Structured**: data, encoded once, checked against the annotation and sent twice, as
`structuredContent` and as text ("a tool that returns structured content SHOULD also return the serialized JSON in a
TextContent block", server/tools). An unannotated tool gets what its value looks like, and shows no output schema.

- `str`, `None`, content blocks; lists, tuples and unions with a content block or `bytes` in them: content.
- `bytes`: content, an image or audio if the first bytes say so, else an embedded blob.
- `CallToolResult`: sent as it is.
- no annotation, `Any`, `object`, a bare `list` or `tuple`: by value. A list with content blocks or `bytes` in it is
  content, what becomes a JSON object is structured, other data is text.
- all others, such as numbers, `list[str]`, `dict`, a Struct or a dataclass: structured.
"""

# No `from __future__ import annotations`: see signature.py.
import copy
import enum
import hashlib
import inspect
import math
import types
import typing
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, cast

import msgspec
from msgspec import UNSET, Raw

from mcpd.protocol.jsonrpc import checked, one_line
from mcpd.protocol.types import (
    CONTENT_BLOCKS,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
)
from mcpd.server import content
from mcpd.server.functions import SignatureError, first_line
from mcpd.server.schema import SchemaError, Validator, check_schema, is_array, is_object, subschemas

# Not data: these make content. The contents of a resource are embedded.
_BYTES: Final = (bytes, bytearray)
_CONTENT: Final = (*CONTENT_BLOCKS, TextResourceContents, BlobResourceContents, *_BYTES)
# `-> Image` names a function, which type checkers refuse; it is clear what it means all the same.
_HELPERS: Final[dict[Any, type]] = {
    content.Text: TextContent,
    content.Image: ImageContent,
    content.Audio: AudioContent,
    content.File: EmbeddedResource,
}
_encoder: Final = msgspec.json.Encoder()


class ResultError(Exception):
    """A tool returned what it may not. The message is for the log, and not for the client."""


@dataclass(frozen=True, slots=True, eq=False)
class ResultShape:
    """How the values that one tool returns become results.

    Attributes:
      output_schema: for 2026-07-28: `structuredContent` can be any JSON value, so the root can be of any type.
      legacy_output_schema: up to 2025-11-25 the root is an object; any other schema is put into one, as its `result`.
      wraps: whether it was, so that a legacy `structuredContent` is `{"result": ...}`.
    """

    output_schema: dict[str, Any] | None
    legacy_output_schema: dict[str, Any] | None
    wraps: bool
    _kind: "_Kind"
    _check: Callable[[Any, bytes], object]

    @classmethod
    def from_annotation(
        cls, annotation: Any, output_schema: dict[str, Any] | None = None, *, name: str = "the function"
    ) -> "ResultShape":
        """Decide the shape.

        Args:
          annotation: the function's return annotation, resolved; `inspect.Signature.empty` if it has none.
          output_schema: written by hand; then every value is checked against it, whatever the annotation.
          name: of the function, for messages.

        Raises:
          SignatureError: the annotation is of a type that JSON cannot show.
          SchemaError: `output_schema` cannot be used.
        """
        if output_schema is not None:
            what = f"output_schema of {name}"
            check_schema(output_schema, what=what, root_object=False)
            return cls._structured(output_schema, _schema_check(Validator(output_schema, what=what)), what)
        annotation = _strip(annotation)
        if annotation in _DYNAMIC:
            return cls(None, None, wraps=False, _kind=_Kind.DYNAMIC, _check=_unchecked)
        if _is_content(annotation):
            return cls(None, None, wraps=False, _kind=_Kind.CONTENT, _check=_unchecked)
        try:
            schema = _output_schema(annotation)
            check = _annotation_check(annotation)
        except Exception as exc:
            raise SignatureError(
                f"{name}(): return annotation {annotation!r}: {first_line(exc)}; return builtin types, a "
                "msgspec.Struct, dataclass or TypedDict, or annotate it `-> typing.Any`, or give output_schema="
            ) from exc
        return cls._structured(schema, check, name)

    @classmethod
    def _structured(cls, schema: dict[str, Any], check: Callable[[Any, bytes], object], what: str) -> "ResultShape":
        wraps = schema.get("type") != "object"
        legacy = _wrapped(schema, what) if wraps else schema
        return cls(schema, legacy, wraps=wraps, _kind=_Kind.STRUCTURED, _check=check)

    def render(self, value: Any, *, wrap: bool) -> CallToolResult:
        """Make the result of a value.

        Args:
          value: what the tool returned.
          wrap: for a legacy session, where `structuredContent` is always an object.

        Returns:
          A result of the caller's own, to change as it likes.

        Raises:
          ResultError: the value has no JSON, or does not fit what the tool says it returns.
        """
        if type(value) is str and self._kind is not _Kind.STRUCTURED:
            return CallToolResult([TextContent(value)])
        if isinstance(value, CallToolResult):
            return self._finished(value, wrap=wrap)
        if self._kind is _Kind.STRUCTURED:
            encoded = _encode(value)
            self._check(value, encoded)
            structured = _in_object(encoded) if wrap and self.wraps else encoded
            return CallToolResult([_json_text(encoded)], structured_content=Raw(structured))
        if value is None:
            return CallToolResult([])
        if isinstance(value, (str, *_CONTENT)):
            return CallToolResult([_block(value)])
        if isinstance(value, list | tuple):
            values = cast("list[Any]", value)
            if self._kind is _Kind.CONTENT or any(isinstance(each, _CONTENT) for each in values):
                return CallToolResult([_block(each) for each in values if each is not None])
        encoded = _encode_unchecked(value)
        if self._kind is _Kind.DYNAMIC and encoded.startswith(b"{"):
            return CallToolResult([_json_text(encoded)], structured_content=Raw(encoded))
        return CallToolResult([_json_text(encoded)])

    def _finished(self, value: CallToolResult, *, wrap: bool) -> CallToolResult:
        """Take a result as the tool made it, but for the checks that its output schema promises."""
        result = copy.copy(value)
        if result.meta is not None:
            _encode_unchecked(result.meta)
        for block in result.content:
            _block(block)
        if result.structured_content is UNSET:
            if self.output_schema is not None and not result.is_error:
                raise ResultError("the result has no structured_content, and the tool has an output schema")
            return result
        # Users write plain data where the type says Raw.
        encoded = _encode_unchecked(result.structured_content)
        if self.output_schema is not None and not result.is_error:
            self._check(None, encoded)
        is_object = encoded.lstrip().startswith(b"{")
        result.structured_content = Raw(_in_object(encoded) if wrap and (self.wraps or not is_object) else encoded)
        return result


class _Kind(enum.Enum):
    CONTENT = enum.auto()
    STRUCTURED = enum.auto()
    DYNAMIC = enum.auto()


# ------------------------------------------------------------------------------------------------------- the annotation

# Lists and tuples of anything say as little as no annotation does: they may hold content.
_DYNAMIC: Final = (inspect.Signature.empty, Any, object, list, list[Any], tuple, tuple[Any, ...])


def _strip(annotation: Any) -> Any:
    """See through what means nothing here: `Annotated[str, ...]`, which still matters for data, and aliases."""
    if typing.get_origin(annotation) is Annotated and _is_content(typing.get_args(annotation)[0]):
        return typing.get_args(annotation)[0]
    return annotation


def _is_content(annotation: Any) -> bool:
    """Whether values are content: text alone, nothing, or content blocks or bytes somewhere in a list or union."""
    if annotation in (None, type(None), str, typing.NoReturn, typing.Never, CallToolResult):
        return True
    if _names_content(annotation):
        return True
    return _is_union(annotation) and all(_is_content(each) for each in typing.get_args(annotation))


def _names_content(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, (*_CONTENT, CallToolResult)):
        return True
    if isinstance(annotation, types.FunctionType):
        return annotation in _HELPERS
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _names_content(typing.get_args(annotation)[0])
    if _is_union(annotation) or (isinstance(origin, type) and issubclass(origin, list | tuple)):
        return any(_names_content(each) for each in typing.get_args(annotation))
    return False


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def _output_schema(annotation: Any) -> dict[str, Any]:
    (root,), components = msgspec.json.schema_components([annotation], ref_template="#/$defs/{name}")
    schema = dict(root)
    if reference := schema.pop("$ref", None):
        # The root in its own place, for clients that look for its properties; it stays in $defs only if something
        # else, such as itself, refers to it.
        name = reference.removeprefix("#/$defs/")
        schema = components[name] | schema
        if not _mentions(list(components.values()), reference):
            del components[name]
    return schema | {"$defs": components} if components else schema


def _mentions(node: Any, reference: str) -> bool:
    if is_object(node):
        return node.get("$ref") == reference or any(_mentions(each, reference) for each in node.values())
    return is_array(node) and any(_mentions(each, reference) for each in node)


def _wrapped(schema: dict[str, Any], what: str) -> dict[str, Any]:
    """Put a schema under `result`, with its references leading where they did."""
    # With an $id it is a document of its own wherever it is; else what it refers to moves to the new root.
    hoisted = ("$schema",) if "$id" in schema else ("$schema", "$defs", "definitions")
    if "$id" not in schema:
        for _, node in subschemas(schema, what):
            reference = node.get("$ref", "")
            if reference == "#" or (reference.startswith("#/") and reference.split("/")[1] not in hoisted):
                raise SchemaError(
                    f"{what}: {reference!r} would lead elsewhere for clients before 2026-07-28, which get this schema "
                    "inside that of an object; move what it means to $defs, or give the schema an $id"
                )
    inner = {key: value for key, value in schema.items() if key not in hoisted}
    root = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return root | {key: schema[key] for key in hoisted if key in schema}


# ------------------------------------------------------------------------------------------------------------ the value


def _unchecked(_value: Any, _encoded: bytes) -> None:
    """Content says of itself what it is."""


def _annotation_check(annotation: Any) -> Callable[[Any, bytes], object]:
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(annotation)
    # msgspec writes NaN as null, which no float is; so a float goes the long way, unless it is finite.
    exact = annotation if annotation in (int, bool) else None

    def check(value: Any, encoded: bytes) -> None:
        if exact is not None and type(value) is exact:
            return
        if annotation is float and type(value) is float and math.isfinite(value):
            return
        try:
            decoder.decode(encoded)
        except msgspec.DecodeError as exc:  # also what is no JSON, from a Raw
            got = f"{value!r} is not a number JSON can hold" if _is_not_finite(value) else str(exc).replace("`", "")
            raise ResultError(f"the value does not fit the return annotation: {got}") from None

    return check


def _is_not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _schema_check(validator: Validator) -> Callable[[Any, bytes], object]:
    def check(_value: Any, encoded: bytes) -> None:
        if (wrong := validator.errors(msgspec.json.decode(encoded))) is not None:
            raise ResultError(f"the value does not fit the output schema: {wrong}")

    return check


def _encode(value: Any) -> bytes:
    try:
        return one_line(_encoder.encode(value))
    except RecursionError:
        raise ResultError("the value is nested too deeply, or contains itself") from None
    except Exception as exc:  # TypeError, UnicodeEncodeError, or whatever the value's own code raises
        raise ResultError(f"the value has no form in JSON: {exc}") from exc


def _encode_unchecked(value: Any) -> bytes:
    """Encode what no annotation checks: a Raw in it can be anything."""
    encoded = _encode(value)
    try:
        checked(encoded)
    except ValueError as exc:
        raise ResultError(f"the value has a Raw that is no JSON: {exc}") from None
    return encoded


def _in_object(encoded: bytes) -> bytes:
    return b'{"result":%b}' % encoded


def _json_text(encoded: bytes) -> TextContent:
    return TextContent(encoded.decode())


def _block(value: Any) -> ContentBlock:
    if isinstance(value, str):
        return TextContent(value)
    if isinstance(value, TextResourceContents | BlobResourceContents):
        value = EmbeddedResource(value)
    if isinstance(value, CONTENT_BLOCKS):
        try:
            return content.sendable(value)
        except (TypeError, ValueError, RecursionError) as exc:
            raise ResultError(f"the _meta of content has no form in JSON: {exc}") from None
    if isinstance(value, _BYTES):
        return _bytes_block(bytes(value))
    return _json_text(_encode_unchecked(value))


def _bytes_block(data: bytes) -> ContentBlock:
    kind = content.sniff_type(data) or ""
    if kind.startswith("image/"):
        return content.Image(data, mime_type=kind)
    if kind.startswith("audio/"):
        return content.Audio(data, mime_type=kind)
    # An embedded resource has a URI. These bytes have no name but their hash, for which there is a scheme: RFC 6920.
    digest = urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    return EmbeddedResource(content.resource_contents(f"ni:///sha-256;{digest}", data))
