"""Clients of a served server, wherever it is."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

from tests.harness.connection import WITHIN, Connection, Stream
from tests.harness.ends import WINDOW
from tests.harness.messages import AUTO, LEGACY, HeaderFields, HeaderValue, call_params, merged, modern_request, rpc
from tests.harness.responses import Response


class Client:
    """The way to a server."""

    def __init__(self) -> None:
        self.ids = itertools.count(1)
        """Request ids, each used once."""

    def connect(self, *, window: int = WINDOW) -> Connection:
        """A new connection, with about *window* bytes for what was not read yet."""
        raise NotImplementedError

    def keep_alive(self) -> KeepAlive:
        """A client that keeps its connection for many requests, and opens another when the server has closed it."""
        return KeepAlive(self)

    async def request(
        self,
        method: str,
        path: str = "/mcp",
        *,
        on: Connection | KeepAlive | None = None,
        within: float = WITHIN,
        **kwargs: Any,
    ) -> Response:
        """Send a request on a connection of its own, or on *on*, and read the whole response."""
        if on is not None:
            return await on.request(method, path, within=within, **kwargs)
        async with self.connect() as connection:
            return await connection.request(method, path, within=within, **kwargs)

    @asynccontextmanager
    async def open(
        self, method: str, path: str = "/mcp", *, window: int = WINDOW, within: float = WITHIN, **kwargs: Any
    ) -> AsyncGenerator[Stream, None]:
        """Send a request on a connection of its own, and read the response as it comes."""
        async with self.connect(window=window) as connection:
            await connection.send(method, path, **kwargs)
            yield await connection.stream(within=within)

    async def initialize(
        self,
        version: str = LEGACY,
        capabilities: Mapping[str, Any] | None = None,
        *,
        on: Connection | KeepAlive | None = None,
        initialized: bool = True,
        headers: HeaderFields | None = None,
    ) -> Session:
        """Open a legacy session, and finish the initialization unless told otherwise."""
        params = {
            "protocolVersion": version,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "harness", "version": "1"},
        }
        response = await self.request("POST", on=on, headers=headers, json=rpc("initialize", params, id=0))
        assert response.status == 200, (response.status, response.body)
        session = Session(self, response.headers["mcp-session-id"], response.result["protocolVersion"], response.result)
        if initialized:
            assert (await session.notify("notifications/initialized", on=on)).status == 202
        return session

    async def modern(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        on: Connection | KeepAlive | None = None,
        **kwargs: Any,
    ) -> Response:
        """Send a modern request: see `modern_request`."""
        within = kwargs.pop("within", WITHIN)
        return await self.request("POST", on=on, within=within, **modern_request(method, params, **kwargs))

    def open_modern(self, method: str, params: Mapping[str, Any] | None = None, **kwargs: Any) -> Any:
        """Send a modern request, and read the response as it comes."""
        return self.open("POST", **modern_request(method, params, **kwargs))

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None, **kwargs: Any) -> Response:
        """Call a tool as a modern client."""
        return await self.modern("tools/call", {"name": tool, "arguments": arguments or {}}, **kwargs)


class KeepAlive:
    """One client's connection, for one request after the other."""

    def __init__(self, http: Client) -> None:
        self._http = http
        self._connection: Connection | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._connection is not None:
            await self._connection.aclose()

    async def request(self, method: str, path: str = "/mcp", **kwargs: Any) -> Response:
        """As `Connection.request`."""
        if self._connection is None or not self._connection.reusable:
            if self._connection is not None:
                await self._connection.aclose()
            self._connection = self._http.connect()
        return await self._connection.request(method, path, **kwargs)


@dataclass
class Session:
    """A legacy client's session."""

    http: Client
    id: str
    version: str
    init: dict[str, Any]
    """The ``InitializeResult``."""

    def headers(self, more: HeaderFields | None = None) -> list[tuple[str, HeaderValue]]:
        """What a client of this session sends with each request."""
        own: list[tuple[str, HeaderValue]] = [("Mcp-Session-Id", self.id)]
        if self.version >= "2025-06-18":
            own.append(("MCP-Protocol-Version", self.version))
        return merged(own, more)

    async def send(
        self,
        message: Any,
        *,
        on: Connection | KeepAlive | None = None,
        headers: HeaderFields | None = None,
        within: float = WITHIN,
    ) -> Response:
        """POST any message."""
        return await self.http.request("POST", on=on, within=within, headers=self.headers(headers), json=message)

    async def post(
        self, method: str, params: Mapping[str, Any] | None = None, *, id: Any = AUTO, **kwargs: Any
    ) -> Response:
        """POST a request."""
        return await self.send(rpc(method, params, id=self._id(id)), **kwargs)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None, **kwargs: Any) -> Response:
        """POST a notification."""
        return await self.send(rpc(method, params), **kwargs)

    async def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, *, progress: Any = None, **kwargs: Any
    ) -> Response:
        """Call a tool; with *progress* as its progress token."""
        return await self.post("tools/call", call_params(tool, arguments, progress), **kwargs)

    def open(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        id: Any = AUTO,
        headers: HeaderFields | None = None,
        **kwargs: Any,
    ) -> Any:
        """POST a request, and read the response as it comes."""
        message = rpc(method, params, id=self._id(id))
        return self.http.open("POST", headers=self.headers(headers), json=message, **kwargs)

    def open_call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, *, progress: Any = None, **kwargs: Any
    ) -> Any:
        """Call a tool, and read the response as it comes."""
        return self.open("tools/call", call_params(tool, arguments, progress), **kwargs)

    def get(self, last_event_id: str | None = None, *, headers: HeaderFields | None = None, **kwargs: Any) -> Any:
        """Open the standalone stream, or resume one."""
        fields = [*self.headers(headers), ("Accept", "text/event-stream"), ("Last-Event-ID", last_event_id)]
        return self.http.open("GET", headers=fields, **kwargs)

    async def delete(self, *, on: Connection | KeepAlive | None = None) -> Response:
        """End the session."""
        return await self.http.request("DELETE", on=on, headers=self.headers())

    def _id(self, id: Any) -> Any:
        return next(self.http.ids) if id is AUTO else id
