"""One request and its response, as the endpoint sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcpd.errors import INVALID_REQUEST, BodyTooLargeError, ExchangeClosedError, ProtocolError
from mcpd.fronts.direct import response
from mcpd.fronts.direct.malformed import MalformedError
from mcpd.protocol.headers import Headers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import trio

    from mcpd.fronts.direct.connection import Connection
    from mcpd.fronts.direct.parser import Request

_FORGOTTEN: Final = Headers(())


class DirectExchange:
    """`mcpd.endpoint.exchange.Exchange` on a connection of its own.

    Nothing it does is a checkpoint unless it has to wait for the client. A write that is cancelled may have sent a part
    of a chunk, so it takes the connection with it.
    """

    __slots__ = (
        "_callback",
        "_connection",
        "_head",
        "_request",
        "_started",
        "client",
        "complete",
        "headers",
        "last",
        "method",
        "path",
        "scope",
    )

    def __init__(self, connection: Connection, request: Request) -> None:
        """Args: *connection*: where the response goes; *request*: what has come of it so far."""
        self.method = request.method
        self.path = request.path
        self.headers = request.headers
        self.client = connection.client
        self.last = False
        """The client has been told that the connection ends with this response."""
        self.complete = False
        """The whole response is sent, or there is nobody to send it to."""
        self.scope: trio.CancelScope = connection.scope
        """The one that the connection lends, to one call after the other."""
        self._connection = connection
        self._request = request
        self._started = False
        self._head = b""
        self._callback: Callable[[], object] | None = None

    def use_up(self) -> None:
        """The connection needs a new one."""
        self._connection.used_up = True

    @property
    def untouched(self) -> bool:
        """Whether nothing of a response has been made."""
        return not self._started and not self.complete

    def body_nowait(self, limit: int) -> bytes | None:
        """The request's body, if all of it came with the head."""
        return self._connection.parser.whole_body() if self._request.length <= limit else None

    async def body(self, limit: int) -> bytes:
        """The request's body. What is no body is a `ProtocolError` with status 400."""
        request, connection = self._request, self._connection
        if request.length > limit:
            raise BodyTooLargeError(limit)
        parser = connection.parser
        try:
            body = parser.read_body()
            if len(body) != request.length or request.chunked:
                if request.expects_continue and not body:
                    await connection.send(response.CONTINUE)
                body = await connection.receive_body(body, limit)
        except MalformedError as exc:
            self.last = True
            raise ProtocolError(INVALID_REQUEST, exc.message, http_status=exc.status) from None
        if len(body) > limit:
            raise BodyTooLargeError(limit)
        return body

    async def respond(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes = b"") -> None:
        """Send the whole response, with one write."""
        if self._started or self.complete:
            return
        self.complete = True
        self._callback = None
        connection = self._connection
        self.last = self.last or connection.must_close(self._request)
        data = response.whole(status, headers, body, close=self.last, without_body=self.method == "HEAD")
        sent = connection.send_nowait(data)
        if sent < len(data):
            await connection.send(data[sent:], within=connection.write_timeout)

    async def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Start a response. Its head goes out with the first piece, so a short stream is one write and no more."""
        if self._started or self.complete:
            return
        self._started = True
        http10 = self._request.http10
        self.last = self.last or self._connection.must_close(self._request)
        self._head = response.beginning(status, headers, close=self.last, chunked=not http10)
        if self.method == "GET":
            # It may go on for hours, and nobody asks any more what the request was.
            self.headers = self._request.headers = _FORGOTTEN
            self._connection.parser.rest()

    async def write(self, data: bytes) -> None:
        """Send a piece of it."""
        if not self._started or self.complete or self._connection.gone:
            raise ExchangeClosedError
        if not await self._connection.send(self._with_head(self._piece(data))):
            raise ExchangeClosedError

    async def finish(self) -> None:
        """End it."""
        if not self._started or self.complete:
            return
        self.complete = True
        self._callback = None
        if self._connection.gone:
            return
        ending = b"" if self._request.http10 or self.method == "HEAD" else response.LAST_CHUNK
        await self._connection.send(self._with_head(ending), within=self._connection.write_timeout)

    def on_close(self, callback: Callable[[], object]) -> None:
        """Call *callback* when the client is gone."""
        if self.complete:
            return
        if self._connection.gone:
            callback()
        else:
            self._callback = callback

    def lost(self) -> None:
        """The client is gone."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    def _piece(self, data: bytes) -> bytes:
        if not data or self.method == "HEAD":
            return b""
        return data if self._request.http10 else response.chunk(data)

    def _with_head(self, data: bytes) -> bytes:
        if self._head:
            data, self._head = self._head + data, b""
        return data
