"""The official client logs in: from the first 401 to a call, a token refreshed, and further scopes asked for."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2
import pytest
import trio
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

import mcpd
from mcpd import Context, Server
from tests.auth.authorization_server import AuthorizationServer, query_of
from tests.requirements import requirement

REDIRECT = "http://127.0.0.1:3030/callback"


class Storage:
    """What a client keeps."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Browser:
    """The user's part: follows the redirect to the authorization server, and brings back what that says."""

    def __init__(self) -> None:
        self.visited: list[dict[str, str]] = []
        self._told: dict[str, str] = {}

    async def visit(self, url: str) -> None:
        self.visited.append(query_of(url))
        async with httpx2.AsyncClient() as client:
            response = await client.get(url, follow_redirects=False)
        assert response.status_code == 302, response.text
        self._told = query_of(response.headers["location"])

    async def come_back(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code=self._told["code"], state=self._told.get("state"), iss=self._told["iss"])


@asynccontextmanager
async def served(server: Server, **settings: Any) -> AsyncGenerator[str, None]:
    async with trio.open_nursery() as nursery:
        yield await nursery.start(partial(mcpd.serve, server, port=0, **settings))
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def logged_in(
    url: str, storage: Storage, browser: Browser, mode: str
) -> AsyncGenerator[tuple[Client, OAuthClientProvider], None]:
    metadata = OAuthClientMetadata(
        client_name="tests", redirect_uris=[REDIRECT], grant_types=["authorization_code", "refresh_token"]
    )
    auth = OAuthClientProvider(url, metadata, storage, browser.visit, browser.come_back)
    async with (
        httpx2.AsyncClient(auth=auth, timeout=10) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,  # type: ignore[arg-type]
    ):
        yield client, auth


@pytest.fixture
def server() -> Server:
    server = Server("guarded", title="A guarded server")

    @server.tool
    async def whoami(ctx: Context) -> str:
        assert ctx.principal is not None
        assert "authorization" not in ctx.headers
        return " ".join([ctx.principal.issuer, ctx.principal.subject, *sorted(ctx.principal.scopes)])

    @server.tool(scopes=["files:read", "files:write"])
    async def change(text: str) -> str:
        return f"changed to {text}"

    return server


@pytest.mark.parametrize("front", ["direct", "hypercorn"])
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@requirement("Y313", "Y314", "Y315", "Y316", "Y317", "Y319", "Y322", "Y323", "D59")
async def test_the_official_client_logs_in_and_asks_for_more(server: Server, mode: str, front: str):
    issuer, browser, storage = AuthorizationServer(), Browser(), Storage()
    with trio.fail_after(30):
        async with (
            issuer.running(),
            served(server, front=front, auth_issuer=issuer.issuer, auth_scope=("mcp",)) as url,
            logged_in(url, storage, browser, mode) as (client, _),
        ):
            assert text_of(await client.call_tool("whoami")) == f"{issuer.issuer} ada mcp"
            # The first 401 led it through discovery and registration to a token for this server, and no more scopes
            # than needed.
            assert [(each["resource"], each["scope"]) for each in browser.visited] == [(url, "mcp")]
            # A tool that needs more: 403 names all of it at once, the client asks its user, and the call goes through.
            changed = await client.call_tool("change", {"text": "new"})
            assert text_of(changed) == "changed to new"
            assert [set(each["scope"].split()) for each in browser.visited[1:]] == [
                {"mcp", "files:read", "files:write"}
            ]
            told = text_of(await client.call_tool("whoami"))
            assert told == f"{issuer.issuer} ada files:read files:write mcp"
    # Its keys were asked for once, for any number of requests.
    assert issuer.requests["/jwks"] == 1


@pytest.mark.parametrize("front", ["direct", "hypercorn"])
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@requirement("F102")
async def test_a_refreshed_token_goes_on_with_what_the_old_one_began(server: Server, mode: str, front: str):
    # A session, and what a user keeps, is its user's and not its token's.
    @server.tool
    async def keep(ctx: Context) -> str:
        if ctx.session is not None:
            await ctx.session.set("kept", "here")
            return ctx.session.id
        return await ctx.handles.create("here")

    @server.tool
    async def kept(handle: str, ctx: Context) -> str:
        return str(await (ctx.session.get("kept") if ctx.session is not None else ctx.handles.get(handle)))

    issuer, browser, storage = AuthorizationServer(), Browser(), Storage()
    with trio.fail_after(30):
        async with (
            issuer.running(),
            served(server, front=front, auth_issuer=issuer.issuer) as url,
            logged_in(url, storage, browser, mode) as (client, auth),
        ):
            handle = text_of(await client.call_tool("keep"))
            assert storage.tokens is not None
            first = storage.tokens.access_token
            auth.context.token_expiry_time = 1.0  # for the client its token has expired
            assert text_of(await client.call_tool("kept", {"handle": handle})) == "here"
            assert storage.tokens.access_token != first
            assert len(browser.visited) == 1, "the user was asked again"


def text_of(result: Any) -> str:
    assert not result.is_error, result
    [content] = result.content
    return str(content.text)
