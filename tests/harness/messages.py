"""What clients send: JSON-RPC messages, and HTTP requests as bytes."""

from __future__ import annotations

import base64
import json as json_module
from collections.abc import Mapping, Sequence
from typing import Any, Final

HOST: Final = "127.0.0.1:8000"
LEGACY: Final = "2025-11-25"
MODERN: Final = "2026-07-28"
META: Final = "io.modelcontextprotocol/"
AUTO: Final[Any] = object()
"""No argument; None is one."""

HeaderValue = str | bytes | None
HeaderFields = Mapping[str, HeaderValue] | Sequence[tuple[str, HeaderValue]]
"""Fields to send besides the usual ones, which they replace; None leaves a usual one out."""


def merged(usual: Sequence[tuple[str, HeaderValue]], given: HeaderFields | None) -> list[tuple[str, HeaderValue]]:
    """The usual fields that *given* does not replace, and then those."""
    fields = list(given.items() if isinstance(given, Mapping) else given or ())
    replaced = {name.lower() for name, _ in fields}
    return [(name, value) for name, value in usual if name.lower() not in replaced] + fields


def encode_request(
    method: str,
    path: str = "/mcp",
    *,
    headers: HeaderFields | None = None,
    json: Any = AUTO,
    body: bytes | None = None,
) -> bytes:
    """A request as bytes: with *json* or *body*, and the usual fields where *headers* does not replace them."""
    if json is not AUTO:
        body = json_module.dumps(json, ensure_ascii=False).encode()
    usual: list[tuple[str, HeaderValue]] = [("Host", HOST), ("Accept", "application/json, text/event-stream")]
    if body is not None:
        usual += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    lines = [f"{method} {path} HTTP/1.1".encode()]
    for name, value in merged(usual, headers):
        if value is not None:
            lines.append(name.encode() + b": " + (value if isinstance(value, bytes) else value.encode("latin-1")))
    return b"\r\n".join([*lines, b"", body or b""])


def rpc(method: str, params: Mapping[str, Any] | None = None, *, id: Any = AUTO) -> dict[str, Any]:
    """A JSON-RPC request; without *id* a notification."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if id is not AUTO:
        message["id"] = id
    if params is not None:
        message["params"] = params
    return message


def call_params(tool: str, arguments: Mapping[str, Any] | None = None, progress: Any = None) -> dict[str, Any]:
    """The params of ``tools/call``."""
    params: dict[str, Any] = {"name": tool, "arguments": arguments or {}}
    if progress is not None:
        params["_meta"] = {"progressToken": progress}
    return params


def modern_request(
    method: str,
    params: Mapping[str, Any] | None = None,
    *,
    id: Any = 1,
    name: str | None = None,
    capabilities: Mapping[str, Any] | None = None,
    version: str = MODERN,
    meta: Mapping[str, Any] | None = None,
    headers: HeaderFields | None = None,
) -> dict[str, Any]:
    """Headers and JSON of a modern request, as arguments of `Http.request`.

    Args:
      method: the method, also in ``Mcp-Method``.
      params: without ``_meta``, which becomes the envelope and *meta*.
      id: the request's id; None sends a notification.
      name: for ``Mcp-Name``; without it what params have for it.
      capabilities: of the client.
      version: the protocol version, in the envelope and in its header.
      meta: more of ``_meta``.
      headers: replace any of these, or with None take them away.
    """
    params = dict(params or {})
    params["_meta"] = {
        META + "protocolVersion": version,
        META + "clientCapabilities": capabilities or {},
        META + "clientInfo": {"name": "harness", "version": "1"},
        **params.get("_meta", {}),
        **(meta or {}),
    }
    if name is None:
        member = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}.get(method)
        name = None if member is None else params.get(member)
    usual: list[tuple[str, HeaderValue]] = [("MCP-Protocol-Version", version), ("Mcp-Method", method)]
    if name is not None:
        usual.append(("Mcp-Name", header_text(name)))
    return {"headers": merged(usual, headers), "json": rpc(method, params, **({} if id is None else {"id": id}))}


def header_text(text: str) -> str:
    """*text* as a header value: in base64 when it could not stand there."""
    if text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?"):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="
