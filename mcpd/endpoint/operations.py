"""What operators ask: is it alive, is it ready, what does it count, and where is its memory.

Answered without authorization and without a session: health and readiness everywhere, metrics where the settings say,
and the debug pages on the metrics port alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from mcpd.endpoint.exchange import JSON
from mcpd.endpoint.guard import Guard, refusal
from mcpd.errors import INVALID_REQUEST, ProtocolError, StoreError
from mcpd.protocol import jsonrpc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcpd.endpoint.endpoint import Endpoint
    from mcpd.endpoint.exchange import Exchange
    from mcpd.settings import Settings

_NO_STORE: Final = (b"cache-control", b"no-store")
PATIENCE: Final = 0.8
"""Seconds for the store to answer. A probe of Kubernetes waits for one, and then knows less than we do."""


class Operations:
    """The operators' pages."""

    def __init__(
        self,
        endpoint: Endpoint,
        pages: Mapping[str, Callable[[], Awaitable[tuple[bytes, bytes]]]],
        *,
        loopback: bool | None = None,
    ) -> None:
        """
        Args:
          endpoint: of which they tell.
          pages: further pages by path, each giving content type and body.
          loopback: whether they are at a loopback address, which is no wall to the browser beside it: the pages then
            answer for no other Host (and allowed ones). None: where the endpoint is.
        """  # noqa: D205, D212 - the class says it
        self._endpoint = endpoint
        self._pages = dict(pages)
        self.settings: Settings = endpoint.settings
        local = self.settings.on_loopback if loopback is None else loopback
        self._guard = Guard(loopback=True, hosts=self.settings.allowed_host) if local else None

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one exchange."""
        path = exchange.path
        page = self._pages.get(path)
        if page is None and path not in {"/health", "/ready"}:
            await self._refuse(exchange, 404, f"There is nothing at {path[:200]!r}")
        elif exchange.method not in {"GET", "HEAD"}:
            await self._refuse(exchange, 405, "Use GET or HEAD", (b"allow", b"GET, HEAD"))
        elif page is not None:
            try:
                self._check(exchange)
                kind, body = await page()
            except ProtocolError as exc:
                await self._refuse(exchange, exc.http_status or 403, exc.message)
            else:
                await self._respond(exchange, 200, (b"content-type", kind), body)
        else:
            state = b"ok" if path == "/health" else await self._readiness()
            await self._respond(exchange, 200 if state == b"ok" else 503, JSON, b'{"status":"%s"}' % state)

    def serves(self, path: str) -> bool:
        """Whether there is a page at *path*."""
        return path in {"/health", "/ready"} or path in self._pages

    def _check(self, exchange: Exchange) -> None:
        """Raise ProtocolError for what a web page of somebody else's has made a browser send."""
        if self._guard is not None:
            self._guard.check(exchange.headers)
        # An image or a form sends no Origin.
        if exchange.headers.get(b"sec-fetch-site") in {"cross-site", "same-site"}:
            raise refusal(403, "This page is not for other sites")

    async def _readiness(self) -> bytes:
        endpoint = self._endpoint
        if endpoint.draining:
            return b"draining"
        try:
            with trio.fail_after(PATIENCE):
                await endpoint.store.ping()
        except (StoreError, trio.TooSlowError):
            return b"store"
        return b"ok"

    async def _respond(self, exchange: Exchange, status: int, kind: tuple[bytes, bytes], body: bytes) -> None:
        await exchange.respond(status, [kind, _NO_STORE], b"" if exchange.method == "HEAD" else body)

    async def _refuse(self, exchange: Exchange, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
        body = jsonrpc.encode_error(None, ProtocolError(INVALID_REQUEST, message))
        await exchange.respond(status, [JSON, *headers], b"" if exchange.method == "HEAD" else body)
