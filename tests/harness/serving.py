"""A server served inside the test."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, Protocol

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpd import Server, Settings
from mcpd.auth.verifier import TokenVerifier
from mcpd.endpoint.endpoint import Endpoint
from mcpd.fronts.asgi import AsgiApp
from mcpd.fronts.direct.listener import DirectFront
from mcpd.fronts.http import new_endpoint
from mcpd.fronts.hypercorn import HypercornFront
from mcpd.fronts.legacy_sse import handler_of
from mcpd.ports import Store
from tests.harness.client import Client
from tests.harness.connection import Connection
from tests.harness.ends import WINDOW, pair

FRONTS: Final = ["direct", "hypercorn"]
"""What every test of this harness runs on."""


class Front(Protocol):
    """What speaks HTTP on a connection."""

    async def handle(self, stream: Any) -> None:
        """Serve one connection until it ends."""
        ...

    async def stop(self) -> None:
        """Close what is idle, and each connection after its response."""
        ...


def new_front(name: str, endpoint: Endpoint) -> Front:
    """The front of that name."""
    return (
        DirectFront(handler_of(endpoint)) if name == "direct" else HypercornFront(AsgiApp(endpoint), endpoint.settings)
    )


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


class Http(Client):
    """A served server, and the way to it."""

    def __init__(
        self, endpoint: Endpoint, front: Front, errors: list[logging.LogRecord], nursery: trio.Nursery
    ) -> None:
        super().__init__()
        self.endpoint = endpoint
        self.front = front
        self.errors = errors
        """What mcpd has logged as an error: empty at the end, or the test fails. A test that provokes one clears it."""
        self._nursery = nursery
        self._connections: list[Connection] = []

    def connect(self, *, window: int = WINDOW) -> Connection:
        """A new connection. It is closed when the server is, at the latest."""
        ours, theirs = pair(window)
        self._nursery.start_soon(self.front.handle, theirs)
        connection = Connection(ours)
        self._connections = [other for other in self._connections if not other.closed]
        self._connections.append(connection)
        return connection

    async def count(self) -> int:
        """How many sessions there are."""
        return await self.endpoint.sessions.records.count()

    async def settle(self) -> None:
        """Let everything happen that does not wait for time or for a client."""
        await wait_all_tasks_blocked()

    def close_connections(self) -> None:
        """Close all connections of all clients."""
        for connection in self._connections:
            connection.leave(reset=False)
        self._connections.clear()


@asynccontextmanager
async def serving(
    server: Server,
    *,
    front: str = "hypercorn",
    store: Store | str = "memory",
    verifier: TokenVerifier | None = None,
    allow_errors: bool = False,
    **settings: Any,
) -> AsyncGenerator[Http, None]:
    """Serve *server* with `Settings` of the given values, and drive it over HTTP.

    Whatever mcpd logs as an error fails the test at the end, unless *allow_errors*.
    """
    settings.setdefault("front", front)
    endpoint = new_endpoint(server, store, Settings(**settings), verifier)
    errors = _Errors()
    failure: BaseException | None = None
    logging.getLogger("mcpd").addHandler(errors)
    try:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(endpoint.running())
            nursery = await stack.enter_async_context(trio.open_nursery())
            http = Http(endpoint, new_front(front, endpoint), errors.records, nursery)
            try:
                yield http
            except (Exception, pytest.fail.Exception) as exc:  # noqa: BLE001
                failure = exc  # raised below, where no nursery can wrap it
            finally:
                http.close_connections()
                nursery.cancel_scope.cancel()
    finally:
        logging.getLogger("mcpd").removeHandler(errors)
    if failure is not None:
        try:
            raise failure
        finally:
            failure = None  # no cycle with the traceback
    if not allow_errors:
        formatted = [logging.Formatter().format(record) for record in errors.records]
        assert not formatted, "mcpd logged errors:\n" + "\n".join(formatted)
