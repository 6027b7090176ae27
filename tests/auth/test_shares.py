"""With authorization a share is the user's: whatever token she has, and from wherever she comes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mcpd import Server
from tests.auth.users import ADA, ADA_AGAIN, BOB, bearer, guarded
from tests.endpoint.test_limits import BEHIND_A_PROXY, INITIALIZE, from_address, refused
from tests.harness import Http, Response, modern_request

HOME, WORK = from_address("192.0.2.1"), from_address("198.51.100.9")


@pytest.fixture
def server() -> Server:
    server = Server("shared")

    @server.tool
    async def wait() -> None:
        await trio.sleep_forever()

    return server


def asked(method: str, params: dict[str, Any], by: dict[str, str]) -> dict[str, Any]:
    request = modern_request(method, params)
    return request | {"headers": dict(request["headers"]) | by}


def call(http: Http, by: dict[str, str]) -> AbstractAsyncContextManager[Any]:
    return http.open("POST", **asked("tools/call", {"name": "wait", "arguments": {}}, by))


def listen(http: Http, by: dict[str, str]) -> AbstractAsyncContextManager[Any]:
    return http.open("POST", **asked("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, by))


def old_stream(http: Http, by: dict[str, str]) -> AbstractAsyncContextManager[Any]:
    return http.open("GET", "/sse", headers=by | {"Accept": "text/event-stream"})


@asynccontextmanager
async def session(http: Http, by: dict[str, str]) -> Any:
    """A session in use, which gives way to no other."""
    opened = await http.request("POST", json=INITIALIZE, headers=by)
    if opened.status != 200:
        yield opened
        return
    headers = by | {"Mcp-Session-Id": opened.headers["mcp-session-id"], "Accept": "text/event-stream"}
    async with http.open("GET", headers=headers) as stream:
        yield stream


KINDS: dict[str, tuple[Callable[[Http, dict[str, str]], AbstractAsyncContextManager[Any]], str]] = {
    "calls": (call, "max_calls_per_principal"),
    "streams": (listen, "max_streams_per_principal"),
    "streams of HTTP+SSE": (old_stream, "max_streams_per_principal"),
    "sessions": (session, "max_sessions_per_principal"),
}


@pytest.mark.parametrize("what", KINDS)
async def test_a_share_is_the_users_and_not_the_addresss(
    autojump_clock: MockClock, server: Server, front: str, tmp_path: Path, what: str
):
    take, limit = KINDS[what]
    options: dict[str, Any] = {"legacy_sse": True, limit: 2} | BEHIND_A_PROXY
    async with guarded(server, tmp_path, front=front, **options) as http, AsyncExitStack() as stack:

        async def taken(token: str, address: dict[str, str]) -> Any:
            return await stack.enter_async_context(take(http, bearer(token) | address))

        async def check_refused(token: str, address: dict[str, str]) -> None:
            found = await taken(token, address)
            assert found.status == 429
            if not isinstance(found, Response):
                body = b""
                while (piece := await found.connection.piece()) is not None:
                    body += piece
                found = Response(found.status, found.headers, body)
            refused(found, 429, limit)

        # One user, with two tokens, from two addresses: one share.
        assert (await taken(ADA, HOME)).status == 200
        assert (await taken(ADA_AGAIN, WORK)).status == 200
        for token, address in ((ADA, HOME), (ADA, WORK), (ADA_AGAIN, HOME)):
            await check_refused(token, address)
        # Another one, from the same addresses: a share of his own.
        assert (await taken(BOB, HOME)).status == 200
        assert (await taken(BOB, WORK)).status == 200
        await check_refused(BOB, HOME)


async def test_the_rate_of_initialize_is_the_users(
    autojump_clock: MockClock, server: Server, front: str, tmp_path: Path
):
    async with guarded(server, tmp_path, front=front, initialize_rate=60, **BEHIND_A_PROXY) as http:

        async def initialize(token: str, address: dict[str, str]) -> Response:
            return await http.request("POST", json=INITIALIZE, headers=bearer(token) | address)

        for number in range(10):
            token, address = ((ADA, HOME), (ADA_AGAIN, WORK))[number % 2]
            assert (await initialize(token, address)).status == 200
        for address in (HOME, WORK):
            refused(await initialize(ADA, address), 429, "initialize_rate")
        assert (await initialize(BOB, HOME)).status == 200
