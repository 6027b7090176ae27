"""A client that writes bytes as they are, and reads responses strictly, over any stream; and the front to try it on."""

import json
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import h11
import trio
from trio.testing import lockstep_stream_pair, memory_stream_pair

from mcpd import Server, Settings
from mcpd.fronts.direct.listener import DirectFront
from mcpd.fronts.http import new_endpoint

_META = "io.modelcontextprotocol/"


def request(method: str, path: str, *fields: str, body: bytes = b"", version: str = "1.1") -> bytes:
    """A request with Host, these fields and no others."""
    lines = [f"{method} {path} HTTP/{version}", "Host: 127.0.0.1:8000", *fields, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def post(message: Any, *fields: str) -> bytes:
    """A POST of a message, as MCP clients send it."""
    body = json.dumps(message).encode()
    usual = ["Content-Type: application/json", "Accept: application/json, text/event-stream"]
    names = {field.partition(":")[0].lower() for field in fields}
    usual = [field for field in usual if field.partition(":")[0].lower() not in names]
    return request("POST", "/mcp", *usual, *fields, f"Content-Length: {len(body)}", body=body)


def call(
    tool: str, arguments: dict[str, Any] | None = None, *fields: str, token: int | None = None, id: int = 1
) -> bytes:
    """A modern call of a tool."""
    meta = {
        _META + "protocolVersion": "2026-07-28",
        _META + "clientCapabilities": {},
        _META + "clientInfo": {"name": "test", "version": "1"},
    }
    if token is not None:
        meta["progressToken"] = token
    params = {"name": tool, "arguments": arguments or {}, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
    return post(message, "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", f"Mcp-Name: {tool}", *fields)


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


class Response(NamedTuple):
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Its body."""
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)

    @property
    def text(self) -> str:
        """The text of a tool's result."""
        text: str = self.json["result"]["content"][0]["text"]
        return text


class ClosedError(Exception):
    """The server has closed the connection within a response, or before one."""


class Client:
    """One connection to a server."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._reader = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        self._methods: deque[str] = deque()

    async def send(self, *requests: bytes) -> None:
        """Send whole requests."""
        self._methods += (data.split(b" ", 1)[0].decode() for data in requests)
        await self.stream.send_all(b"".join(requests))

    async def response(self) -> Response:
        """The response to the oldest request without one."""
        status, headers = await self.head()
        body = b""
        while piece := await self.piece():
            body += piece
        return Response(status, headers, body)

    async def ask(self, data: bytes) -> Response:
        """Send a request, and read its response."""
        await self.send(data)
        return await self.response()

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and fields of the response to the oldest request without one."""
        if self._reader.our_state is h11.DONE:
            self._reader.start_next_cycle()
        # The request was written without h11, which has to know of it to read the response.
        method = self._methods.popleft() if self._methods else "GET"
        self._reader.send(h11.Request(method=method, target="/", headers=[("host", "a")]))
        self._reader.send(h11.EndOfMessage())
        event = await self._event()
        assert isinstance(event, h11.Response), event
        return event.status_code, {name.decode(): value.decode() for name, value in event.headers}

    async def piece(self) -> bytes:
        """The next piece of the response's body; b"" at its end."""
        event = await self._event()
        if isinstance(event, h11.EndOfMessage):
            return b""
        assert isinstance(event, h11.Data), event
        return bytes(event.data)

    async def rest(self) -> bytes:
        """All bytes that come until the server closes, as they are."""
        data = b""
        while piece := await self.stream.receive_some(65536):
            data += piece
        return data

    async def half_close(self) -> None:
        """Send nothing more."""
        assert isinstance(self.stream, trio.abc.HalfCloseableStream)
        await self.stream.send_eof()

    async def _event(self) -> Any:
        while True:
            try:
                event = self._reader.next_event()
            except h11.RemoteProtocolError as exc:
                raise ClosedError(str(exc)) from None
            if event is not h11.NEED_DATA:
                return event
            try:
                self._reader.receive_data(bytes(await self.stream.receive_some(65536)))
            except trio.BrokenResourceError as exc:
                raise ClosedError(str(exc)) from None


class Served:
    """A direct front without a listener."""

    def __init__(self, front: DirectFront, nursery: trio.Nursery) -> None:
        self.front = front
        self.nursery = nursery

    def connect(self, *, buffered: bool = True) -> Client:
        """A new connection; unless it is buffered, a write waits until the other end has read all of it."""
        ours, theirs = memory_stream_pair() if buffered else lockstep_stream_pair()
        self.nursery.start_soon(self.front.handle, theirs)
        return Client(ours)


@asynccontextmanager
async def direct(server: Server, **settings: Any) -> AsyncGenerator[Served]:
    """Serve it on connections in memory."""
    endpoint = new_endpoint(server, "memory", Settings(**settings))
    async with endpoint.running(), trio.open_nursery() as nursery:
        yield Served(DirectFront(endpoint), nursery)
        nursery.cancel_scope.cancel()
