"""The rules of a modern request: its envelope in ``_meta``, and the headers that mirror it.

Source: 2026-07-28, basic/index ("_meta") and basic/transports/streamable-http ("Request Metadata", "Server
Validation"). The order of the checks is the order in which the first failure wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from mcpd.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    UNSUPPORTED_PROTOCOL_VERSION,
    ProtocolError,
)
from mcpd.protocol.headers import Headers, unwrap
from mcpd.protocol.revisions import MODERN, Revision
from mcpd.protocol.types import LOGGING_LEVELS, ClientCapabilities, Implementation, LoggingLevel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcpd.protocol.jsonrpc import Message
    from mcpd.protocol.requests import Meta

NAMED_BY: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""The member of params that ``Mcp-Name`` mirrors, by method."""

_MAX_SAFE_INTEGER: Final = 2**53 - 1
_capabilities: Final = msgspec.json.Decoder(ClientCapabilities)
_implementation: Final = msgspec.json.Decoder(Implementation)


# Params of which one member is read, and all others are skipped.
class _ByName(msgspec.Struct, rename={"value": "name"}):
    value: Any = None


class _ByUri(msgspec.Struct, rename={"value": "uri"}):
    value: Any = None


class _ByTask(msgspec.Struct, rename={"value": "taskId"}):
    value: Any = None


_named: Final[dict[str, msgspec.json.Decoder[_ByName | _ByUri | _ByTask]]] = {
    "name": msgspec.json.Decoder(_ByName),
    "uri": msgspec.json.Decoder(_ByUri),
    "taskId": msgspec.json.Decoder(_ByTask),
}


class Envelope(msgspec.Struct, frozen=True):
    """What a modern request says of itself and its client. It holds for this request only."""

    revision: Revision
    capabilities: ClientCapabilities
    client_info: Implementation | None
    log_level: LoggingLevel | None


def is_modern(meta: Meta, version_header: str | None) -> bool:
    """Whether a request is to be judged by the modern rules.

    It is when it carries the envelope, or when its version header names a modern revision. An ``Mcp-Method`` header
    alone makes no request modern.
    """
    return meta.protocol_version is not msgspec.UNSET or version_header in MODERN


def check_era(era: str, message: Message, *, modern: bool) -> None:
    """Refuse the era that the server was told not to speak, so that clients of both eras fall back as they should.

    Args:
      era: ``both``, ``modern`` or ``legacy``.
      message: what was received.
      modern: what `is_modern` said of it.

    Raises:
      ProtocolError: with status 400. A modern-only server names its revisions to an ``initialize``; a legacy-only
      server
        answers with no modern code, which is how clients know it (2026-07-28, basic/versioning, "Backward
        Compatibility").
    """
    if era == "modern" and not modern:
        if message.method == "initialize":
            asked: Any = msgspec.json.decode(message.params).get("protocolVersion")
            raise unsupported(asked if isinstance(asked, str) else "", tuple(MODERN))
        raise mismatch("This server speaks 2026-07-28 only: send MCP-Protocol-Version, and the envelope in _meta")
    if era == "legacy" and modern:
        raise ProtocolError(INVALID_REQUEST, "This server has sessions: begin with initialize", http_status=400)


def read_envelope(
    meta: Meta, *, header: str | None = None, over_http: bool, served: Sequence[str] = tuple(MODERN)
) -> Envelope:
    """Check the envelope and, over HTTP, that ``MCP-Protocol-Version`` (*header*) agrees with it.

    Raises:
      ProtocolError: -32602 incomplete, -32020 header and envelope differ, -32022 not a revision we serve. All with
      status 400.
    """
    version = meta.protocol_version
    if not isinstance(version, str):
        raise _incomplete("io.modelcontextprotocol/protocolVersion", "a string")
    if meta.client_capabilities is msgspec.UNSET:
        raise _incomplete("io.modelcontextprotocol/clientCapabilities", "an object")
    try:
        capabilities = _capabilities.decode(meta.client_capabilities)
    except msgspec.ValidationError:
        raise _incomplete("io.modelcontextprotocol/clientCapabilities", "an object") from None
    if over_http and header != version:
        was = "missing" if header is None else repr(header)
        raise mismatch(f"MCP-Protocol-Version is {was}, but the request says {version!r}")
    if version not in MODERN or version not in served:
        raise unsupported(version, served)
    try:
        # Display only, and optional: what cannot be read is left out, not refused.
        info = None if meta.client_info is msgspec.UNSET else _implementation.decode(meta.client_info)
    except msgspec.ValidationError:
        info = None
    level: LoggingLevel | msgspec.UnsetType | None = meta.log_level
    if level is msgspec.UNSET:
        level = None
    elif not isinstance(level, str) or level not in LOGGING_LEVELS:
        raise ProtocolError(
            INVALID_PARAMS, f"Unknown log level {level!r}; known are {', '.join(LOGGING_LEVELS)}", http_status=400
        )
    return Envelope(MODERN[version], capabilities, info, level)


def check_headers(headers: Headers, method: str, params: msgspec.Raw) -> None:
    """Check ``Mcp-Method`` and, where the method has one, ``Mcp-Name`` against the body.

    Raises:
      ProtocolError: -32020 with status 400.
    """
    if headers.any_repeated:
        for field in (b"mcp-protocol-version", b"mcp-method", b"mcp-name"):
            if headers.repeated(field):
                raise mismatch(f"The header {field.decode()} stands more than once")
    sent = headers.get(b"mcp-method")
    if sent != method:
        raise mismatch(
            f"Mcp-Method is {'missing' if sent is None else repr(sent)}, but the body's method is {method!r}"
        )
    member = NAMED_BY.get(method)
    if member is None:
        return
    body = _named[member].decode(params).value
    sent = headers.get(b"mcp-name")
    if sent is None:
        raise mismatch(f"Mcp-Name is missing, but {method} needs it to equal params.{member}")
    name = unwrap(sent) if sent.startswith("=?") else sent
    if name is None or name != body:
        raise mismatch(f"Mcp-Name is {sent!r}, but the body's params.{member} is {body!r}")


def check_parameters(
    headers: Headers, mirrored: Sequence[tuple[tuple[str, ...], str, str]], arguments: msgspec.Raw
) -> None:
    """Check each ``Mcp-Param-*`` header of a tool against its argument.

    Args:
      headers: the request's.
      mirrored: path in the arguments, header name after ``Mcp-Param-`` and JSON Schema type, one for each
      ``x-mcp-header``.
      arguments: the call's arguments as received.

    Raises:
      ProtocolError: -32020 with status 400.
    """
    values = msgspec.json.decode(arguments)
    for path, name, kind in mirrored:
        value: Any = values
        for key in path:
            value = cast("dict[str, Any]", value).get(key) if isinstance(value, dict) else None
        field = f"Mcp-Param-{name}"
        lower = field.lower().encode()
        sent = headers.get(lower)
        where = ".".join(path)
        if headers.repeated(lower):
            raise mismatch(f"The header {field} stands more than once")
        if value is None:
            if sent is not None:
                raise mismatch(f"{field} was sent, but the argument {where} is absent")
            continue
        if sent is None:
            raise mismatch(f"{field} is missing, but the argument {where} is there")
        if kind == "integer" and isinstance(value, int | float) and abs(value) > _MAX_SAFE_INTEGER:
            # "Integer values MUST be within the safe range" (server/tools, x-mcp-header).
            raise ProtocolError(
                INVALID_PARAMS, f"The argument {where} must be within +-{_MAX_SAFE_INTEGER}", http_status=400
            )
        text = unwrap(sent)
        if text is None or not _equal(text, value, kind):
            raise mismatch(f"{field} does not equal the argument {where}")


def _equal(text: str, value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int | float) and kind in {"integer", "number"}:
        # "Integers SHOULD be compared numerically": 42.0 is 42. Numbers are JSON's: int() would take 4_2 and other
        # digits.
        try:
            return msgspec.json.decode(text, type=int | float) == value
        except msgspec.DecodeError:
            return False
    return isinstance(value, str) and text == value


def mismatch(message: str) -> ProtocolError:
    """-32020 HeaderMismatch."""
    return ProtocolError(HEADER_MISMATCH, message, http_status=400)


def unsupported(version: str, served: Sequence[str]) -> ProtocolError:
    """-32022 UnsupportedProtocolVersion, with what is supported."""
    return ProtocolError(
        UNSUPPORTED_PROTOCOL_VERSION,
        f"Unsupported protocol version {version!r}",
        {"supported": list(served), "requested": version},
        http_status=400,
    )


def _incomplete(key: str, kind: str) -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, f"A request needs {key} in its _meta, {kind}", http_status=400)
