"""Requests as bytes over one connection, many at once if need be: filling a server must not take longer than it does.

Every answer is checked; the first wrong one raises.
"""

from __future__ import annotations

import json
import re
import socket
import time
from typing import TYPE_CHECKING, Any

from _target import BenchError

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION = "2025-11-25"
TIMEOUT_SECONDS = 60.0
# What a client of today sends of itself; what a session costs depends on it.
CLIENT = {
    "protocolVersion": VERSION,
    "capabilities": {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {}},
    "clientInfo": {"name": "example-client", "title": "Example Client", "version": "1.2.3"},
}
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE)
_SESSION = re.compile(rb"\r\nmcp-session-id: *([\x21-\x7e]+)\r\n", re.IGNORECASE)
_FIELDS = b"host: 127.0.0.1\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n"


def initialize(number: int) -> bytes:
    """The request that opens a session."""
    return _post(b"", number, "initialize", CLIENT)


def call(session: bytes, number: int, tool: str, arguments: dict[str, Any]) -> bytes:
    """A call of a tool."""
    return _post(_in(session), number, "tools/call", {"name": tool, "arguments": arguments})


def ping(session: bytes, number: int) -> bytes:
    """A request that does nothing but touch its session."""
    return _post(_in(session), number, "ping", {})


def listen(session: bytes) -> bytes:
    """The request that opens the standalone stream."""
    return b"GET /mcp HTTP/1.1\r\n%b%b\r\n" % (_FIELDS, _in(session))


def _in(session: bytes) -> bytes:
    return b"mcp-session-id: %b\r\nmcp-protocol-version: %b\r\n" % (session, VERSION.encode())


def _post(fields: bytes, number: int, method: str, params: object) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()
    head = b"POST /mcp HTTP/1.1\r\n%b%bcontent-length: %d\r\n\r\n" % (_FIELDS, fields, len(body))
    return head + body


class Wire:
    """One connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""

    def ask(self, *requests: bytes) -> list[tuple[bytes, bytes]]:
        """Send all at once and give the answers: head and body of each."""
        self.socket.sendall(b"".join(requests))
        return [self._answer() for _ in requests]

    def timed(self, requests: Sequence[bytes]) -> list[float]:
        """Send one after the other; how long each took, in microseconds."""
        took = []
        for request in requests:
            began = time.perf_counter()
            self.ask(request)
            took.append((time.perf_counter() - began) * 1e6)
        return took

    def open(self, count: int, first: int) -> list[bytes]:
        """Open sessions, and give their IDs."""
        found = [_SESSION.search(head) for head, _ in self.ask(*(initialize(first + n) for n in range(count)))]
        sessions = [match[1] for match in found if match is not None]
        if len(sessions) != count:
            raise BenchError("initialize was answered without a session ID")
        return sessions

    def result(self, request: bytes) -> Any:
        """The structured content of a tool's result."""
        ((_, body),) = self.ask(request)
        return json.loads(body)["result"].get("structuredContent")

    def close(self) -> None:
        """Close."""
        self.socket.close()

    def _answer(self) -> tuple[bytes, bytes]:
        end = self._data.find(b"\r\n\r\n")
        while end < 0:
            self._read()
            end = self._data.find(b"\r\n\r\n")
        head = self._data[: end + 2]
        length = _LENGTH.search(head)
        if not head.startswith(b"HTTP/1.1 200 ") or length is None:
            raise BenchError(f"a request was answered with {head[:60]!r}; nothing is reported from wrong answers")
        size = end + 4 + int(length[1])
        while len(self._data) < size:
            self._read()
        body, self._data = self._data[end + 4 : size], self._data[size:]
        if b'"error"' in body or b'"isError":true' in body:
            raise BenchError(f"a request was answered with an error: {body[:200]!r}")
        return head, body

    def _read(self) -> None:
        try:
            data = self.socket.recv(1 << 18)
        except OSError as exc:
            raise BenchError(f"no complete answer: {exc}") from exc
        if not data:
            raise BenchError("the server closed the connection instead of answering")
        self._data += data
