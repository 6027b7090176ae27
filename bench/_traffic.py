"""The traffic of the bug report, one request after the other, every answer checked.

A benchmark of error answers is fast and worthless, so the first wrong answer ends the run.
"""

from __future__ import annotations

import http.client
import time
from http import HTTPStatus
from typing import Generic, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from _target import BenchError

PROTOCOL_VERSION = "2025-03-26"
TIMEOUT_SECONDS = 10.0
ANSWER_LIMIT = 1 << 20
_INITIALIZE = msgspec.json.encode(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }
)
_PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
_POST_HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


_R = TypeVar("_R")


class _ServerInfo(msgspec.Struct):
    name: str
    version: str


class _InitializeResult(msgspec.Struct, rename="camel"):
    protocol_version: str
    server_info: _ServerInfo


class _EmptyResult(msgspec.Struct):
    """What `ping` is answered with; a server may add `_meta`."""


class _Response(msgspec.Struct, Generic[_R]):
    jsonrpc: Literal["2.0"]
    id: Literal[1]
    result: _R


class Client:
    """A legacy MCP client over one HTTP/1.1 connection at a time.

    With `keep_alive` the connection serves until `pause`; without, each request opens its own, as curl does in
    the report. Every method raises `BenchError` on a wrong answer, a lost connection, silence of ten seconds, or
    past `deadline` (of `time.monotonic`).
    """

    def __init__(self, url: str, *, keep_alive: bool, deadline: float) -> None:
        parts = urlsplit(url)
        self._path = parts.path or "/"
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=TIMEOUT_SECONDS)
        self._keep_alive = keep_alive
        self._deadline = deadline
        self.server = ""
        """What the server calls itself, name and version, from its last InitializeResult."""

    def initialize(self) -> str:
        """Open a session as the report does (no `notifications/initialized` follows) and give its ID."""
        status, headers, body = self._ask("POST", self._path, _INITIALIZE, _POST_HEADERS)
        session = headers.get("mcp-session-id", "")
        if status != HTTPStatus.OK:
            raise _wrong("initialize", status, body)
        if not session:
            raise _wrong("initialize", status, body, " without a session ID (is the server stateless?)")
        result = _result(headers, body, _InitializeResult)
        if result is None or result.protocol_version != PROTOCOL_VERSION:
            raise _wrong("initialize", status, body, f" with what is no InitializeResult of {PROTOCOL_VERSION}")
        self.server = f"{result.server_info.name} {result.server_info.version}"
        return session

    def delete(self, session: str) -> None:
        """Terminate a session; any 2xx is a yes."""
        status, _, body = self._ask("DELETE", self._path, None, {"mcp-session-id": session})
        if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            raise _wrong("DELETE", status, body)

    def is_answered(self, session: str) -> bool:
        """Tell whether a request in `session` is still answered; False is the 404 of a session that has ended.

        https://modelcontextprotocol.io/specification/2025-03-26/basic/transports#session-management: "after which it
        MUST respond to requests containing that session ID with HTTP 404 Not Found".
        """
        headers = {**_POST_HEADERS, "mcp-session-id": session}
        status, answered, body = self._ask("POST", self._path, _PING, headers)
        if status == HTTPStatus.NOT_FOUND:
            return False
        if status != HTTPStatus.OK or _result(answered, body, _EmptyResult) is None:
            raise _wrong("ping", status, body)
        return True

    def health(self) -> bool:
        """GET /health; False when the server has no such route."""
        status, _, body = self._ask("GET", "/health", None, {})
        if status not in {HTTPStatus.OK, HTTPStatus.NOT_FOUND}:
            raise _wrong("GET /health", status, body)
        return status == HTTPStatus.OK

    def pause(self) -> None:
        """Close the connection, so that a server's keep-alive limit cannot cut the next request; it reopens itself."""
        self._connection.close()

    def _ask(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        if time.monotonic() > self._deadline:
            raise BenchError("the run is over its time limit; ask for fewer requests or raise --limit")
        try:
            self._connection.request(method, path, body, headers)
            answer = self._connection.getresponse()
            read = answer.read(ANSWER_LIMIT)
        except (OSError, http.client.HTTPException) as exc:
            raise BenchError(f"{method} {path}: no complete answer: {exc or type(exc).__name__}") from exc
        if not self._keep_alive or not answer.isclosed():
            self._connection.close()
        return answer.status, answer.headers, read


def _result(headers: http.client.HTTPMessage, body: bytes, kind: type[_R]) -> _R | None:
    """Find the JSON-RPC response with id 1 in a JSON body or an SSE one; None if there is none of that kind."""
    if headers.get_content_type() == "text/event-stream":
        texts = [line.removeprefix(b"data:") for line in body.splitlines() if line.startswith(b"data:")]
    else:
        texts = [body]
    for text in texts:
        try:
            return msgspec.json.decode(text, type=_Response[kind]).result  # type: ignore[valid-type]
        except msgspec.DecodeError:  # an error, a notification, a priming event
            continue
    return None


def _wrong(what: str, status: int, body: bytes, why: str = "") -> BenchError:
    excerpt = body[:300].decode("utf-8", "replace")
    return BenchError(f"{what} was answered {status}{why}: {excerpt!r}; nothing is reported from wrong answers")
