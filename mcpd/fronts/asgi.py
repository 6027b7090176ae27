"""The endpoint as an ASGI 3 application, for Hypercorn's Trio worker or mounted in a larger one."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import trio

from mcpd.endpoint.exchange import MAX_HEAD
from mcpd.errors import INVALID_REQUEST, BodyTooLargeError, ExchangeClosedError, ProtocolError
from mcpd.fronts.legacy_sse import handler_of
from mcpd.protocol.headers import Headers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping, Sequence

    from mcpd.endpoint.endpoint import Endpoint

Scope: TypeAlias = "MutableMapping[str, Any]"
Message: TypeAlias = "MutableMapping[str, Any]"
Receive: TypeAlias = "Callable[[], Awaitable[Message]]"
Send: TypeAlias = "Callable[[Message], Awaitable[None]]"

logger: Final = logging.getLogger("mcpd.http")
_LONGEST_REST: Final = 1024 * 1024
"""Bytes of a refused body that are read away, so that its client reads the answer and the connection can go on."""
_REST_WITHIN: Final = 0.5
"""Seconds that they may take; the answer waits for that."""
_LINGER: Final = 5.0
"""Seconds in which a client may read its answer while it still sends."""
_AMBIGUOUS: Final = "Content-Length and Transfer-Encoding exclude each other"


class AsgiApp:
    """An ASGI application around an endpoint.

    It needs its lifespan run, for that is where the store and the server's own lifespan live. A server or an outer
    application that runs no lifespan for it can enter `Endpoint.running` itself.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        """Args: *endpoint*: to serve."""
        self.endpoint = endpoint
        self._handle = handler_of(endpoint)

    async def drain(self) -> None:
        """Be no longer ready, end the open streams cleanly, and wait for the calls in flight.

        What serves this application hears the signal to stop, and says so only when its connections are over. So call
        this first, and have the server stop when it returns: with Hypercorn, in its ``shutdown_trigger``. After
        ``drain_timeout`` seconds the calls are cancelled and answered so. Cancelling this leaves them to the server.
        """
        await self.endpoint.drain()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection of the ASGI server: a lifespan or an HTTP request."""
        kind = scope["type"]
        if kind == "lifespan":
            await self._lifespan(receive, send)
        elif kind == "http":
            await self._http(scope, receive, send)
        elif kind == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        started = False
        try:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(self.endpoint.running())
                started = True
                await send({"type": "lifespan.startup.complete"})
                await receive()
            await send({"type": "lifespan.shutdown.complete"})
        except Exception as exc:
            logger.exception("The server could not %s", "go on" if started else "start")
            await send({"type": f"lifespan.{'shutdown' if started else 'startup'}.failed", "message": str(exc)})
            raise

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = AsgiExchange(scope, receive, send, body_timeout=self.endpoint.settings.body_timeout)
        async with trio.open_nursery() as nursery:
            exchange.watch_in(nursery)
            # Servers may look at the size only when the header comes in several pieces (h11 does).
            size = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
            if size > MAX_HEAD:
                logger.warning("Refused a header of %d bytes, of at most %d", size, MAX_HEAD)
                message = f"The header is longer than {MAX_HEAD} bytes"
                await self.endpoint.refuse(exchange, 431, message, [(b"connection", b"close")])
            elif exchange.ambiguous:
                await self.endpoint.refuse(exchange, 400, _AMBIGUOUS, [(b"connection", b"close")])
            elif not self.endpoint.is_running:
                # Half of everything would work; whoever mounted it would find out late.
                message = (
                    "The lifespan of this application is not running: the server or application around it has to run it"
                )
                logger.error("%s", message)
                await self.endpoint.refuse(exchange, 503, message, [])
            else:
                await self._handle(exchange)
            nursery.cancel_scope.cancel()
        exchange.release()


class AsgiExchange:
    """`mcpd.endpoint.exchange.Exchange` over one ASGI HTTP scope."""

    scope: trio.CancelScope | None = None

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, body_timeout: float = inf) -> None:
        """Args: *scope*, *receive*, *send*: of ASGI; *body_timeout*: seconds that the body may take to come."""
        self.method: str = scope["method"]
        path: str = scope["path"]
        root: str = scope.get("root_path", "")
        # Servers differ in whether `path` still begins with what the application is mounted under.
        self.path = (path[len(root) :] or "/") if root and path.startswith(root) else path
        self.headers = Headers((name.lower(), value) for name, value in scope["headers"])
        peer = scope.get("client")
        self.client: str | None = peer[0] if peer else None
        self._body_timeout = body_timeout
        self._receive = receive
        self._send = send
        self._nursery: trio.Nursery | None = None
        self._callback: Callable[[], object] | None = None
        self._closed = False
        self._started = False
        self._complete = False
        self._read = False
        self._version: str = scope.get("http_version", "1.1")

    def use_up(self) -> None:
        """There is none."""

    def watch_in(self, nursery: trio.Nursery) -> None:
        """Where the task may live that watches for the client's end."""
        self._nursery = nursery

    def release(self) -> None:
        """The exchange is over: let go of everybody who was waiting for its end."""
        self._callback = None
        self._nursery = None

    @property
    def ambiguous(self) -> bool:
        """Whether its body has two lengths. h11 goes by one of them, and a proxy before it perhaps by the other.

        "Regardless, the server MUST close the connection after responding to such a request" (RFC 9112, section 6.1).
        """
        headers = self.headers
        return headers.get(b"transfer-encoding") is not None and headers.get(b"content-length") is not None

    def body_nowait(self, limit: int) -> bytes | None:
        """ASGI has to be asked."""
        return None

    async def body(self, limit: int) -> bytes:
        """The request's body, then start to watch for the client's end."""
        declared = self.headers.get(b"content-length")
        if declared is not None and declared.isascii() and declared.isdigit() and int(declared) > limit:
            raise BodyTooLargeError(limit)
        with trio.move_on_after(self._body_timeout):
            return await self._whole_body(limit)
        raise ProtocolError(INVALID_REQUEST, "The body did not come in time", http_status=408)

    async def _whole_body(self, limit: int) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._lost()
                raise ExchangeClosedError
            piece = message.get("body", b"")
            size += len(piece)
            if size > limit:
                raise BodyTooLargeError(limit)
            pieces.append(piece)
            if not message.get("more_body", False):
                self._read = True
                break
        return b"".join(pieces) if len(pieces) != 1 else pieces[0]

    async def respond(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes = b"") -> None:
        """Send the whole response."""
        if self._closed or self._started:
            await trio.lowlevel.checkpoint()
            return
        self._started = self._complete = True
        self._callback = None
        fields = [*headers, (b"content-length", b"%d" % len(body))] if status != 204 else list(headers)
        unread = not self._read and (b"connection", b"close") not in fields and not await self._discard_body()
        if unread:
            # A client that is not told so loses the request that it sends next (RFC 9112, section 9.6).
            fields.append((b"connection", b"close"))
        await self._send({"type": "http.response.start", "status": status, "headers": fields})
        await self._send({"type": "http.response.body", "body": body, "more_body": unread})
        if unread:
            # To close while the client sends would reset the connection, and the reset may overtake the response. So it
            # ends when the client, which has the whole response, has understood.
            with trio.move_on_after(_LINGER):
                while (await self._receive())["type"] != "http.disconnect":
                    pass
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _discard_body(self) -> bool:
        """Read a body that nobody wants to its end, if it is not long; False when the connection cannot go on."""
        headers = self.headers
        length = headers.get(b"content-length")
        if headers.get(b"transfer-encoding") is None and length in {None, "0"}:
            return True
        left = _LONGEST_REST
        is_short = length is None or (len(length) < 10 and length.isdigit() and int(length) <= left)
        if is_short and headers.get(b"expect") is None:  # who expects to be asked for it does not send it before
            with trio.move_on_after(_REST_WITHIN):
                while left >= 0:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        self._lost()
                        break
                    left -= len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return True
        return not self._version.startswith("1")  # a connection of HTTP/2 goes on in any case

    async def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Start a response."""
        if self._started:
            await trio.lowlevel.checkpoint()
            return
        self._started = True
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def write(self, data: bytes) -> None:
        """Send a piece of it."""
        if self._closed:
            raise ExchangeClosedError
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self) -> None:
        """End it."""
        self._complete = True
        self._callback = None
        if not self._closed:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def on_close(self, callback: Callable[[], object]) -> None:
        """Call *callback* when the client is gone."""
        if self._closed:
            callback()
            return
        first = self._callback is None
        self._callback = callback
        if first and self._nursery is not None:
            # ASGI tells of the client's end only to who is waiting in receive().
            self._nursery.start_soon(self._watch)

    async def _watch(self) -> None:
        while not self._closed and not self._complete:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._lost()

    def _lost(self) -> None:
        if not self._complete:
            self._closed = True
            callback, self._callback = self._callback, None
            if callback is not None:
                callback()
