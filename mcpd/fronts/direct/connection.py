"""One client's connection: request, endpoint, response, and the next request, in one task."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from mcpd.errors import BodyTooLargeError, ExchangeClosedError
from mcpd.fronts.direct import response
from mcpd.fronts.direct.deadlines import NEVER
from mcpd.fronts.direct.exchange import DirectExchange
from mcpd.fronts.direct.malformed import MalformedError
from mcpd.fronts.direct.parser import Request, RequestParser
from mcpd.fronts.direct.transport import LostError, Transport

if TYPE_CHECKING:
    from mcpd.endpoint.exchange import Handler

logger: Final = logging.getLogger("mcpd.http")

SMALL_REST: Final = 64 * 1024
"""Bytes of a body nobody wants that are read all the same, so that the connection can go on."""
LINGER: Final = 5.0
"""Seconds in which a client may read its last response while it still sends."""
FAREWELL: Final = 1.0
"""Seconds that telling a client of its end may take."""


class Service:
    """What all connections of a front share."""

    __slots__ = ("connections", "draining", "endpoint", "now")

    def __init__(self, endpoint: Handler) -> None:
        """Args: *endpoint*: answers the requests."""
        self.endpoint = endpoint
        self.connections: set[Connection] = set()
        self.now = trio.current_time
        """The same time for less, once the front runs."""
        self.draining = False
        """Every response is the last one of its connection."""


class Connection:
    """One connection. It counts among the service's from its making until `run` is over."""

    __slots__ = (
        "_ending",
        "_exchange",
        "_lingers",
        "_said_all",
        "_service",
        "_settings",
        "_whole",
        "broken",
        "client",
        "deadline",
        "gone",
        "parser",
        "scope",
        "transport",
        "used_up",
        "write_timeout",
    )

    def __init__(self, service: Service, transport: Transport, client: str | None = None) -> None:
        """Args: *service*: what it serves; *transport*: to the client; *client*: the peer's address, if it has one."""
        self.transport = transport
        self.client = client
        self.parser = RequestParser()
        self.gone = False
        """The client sends no more: it is taken to be gone."""
        self.broken = False
        """Nothing can be sent to it either."""
        self._service = service
        self._settings = settings = service.endpoint.settings
        self.write_timeout = settings.write_timeout
        """For `send` of what nobody else has an eye on."""
        self._exchange: DirectExchange | None = None
        self._whole = trio.CancelScope()
        self.scope = self._whole
        """Around the exchanges, for their calls; one that is cancelled uses it up."""
        self.used_up = False
        self._lingers = False
        self._ending = False
        self._said_all = False
        self.deadline = trio.current_time() + settings.header_timeout
        service.connections.add(self)

    # ----- Running

    async def run(self) -> None:
        """Serve until the connection ends. It raises nothing but ``trio.Cancelled``."""
        try:
            with self._whole:
                await self._serve()
                self.deadline = trio.current_time() + FAREWELL
                await self.transport.close()
            if self._ending and not self.broken:
                await self._end()
        except LostError:
            pass
        except Exception:
            logger.exception("A connection failed")
        finally:
            self._service.connections.discard(self)
            await self.transport.abort()

    @property
    def idle(self) -> bool:
        """Whether it waits for a request and nothing has come of it."""
        return not self.busy and self.parser.complete and not self.parser.unread

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self._exchange is not None

    def expire(self) -> None:
        """Its time is up, or the server's: end it. An exchange in flight is cancelled."""
        self.deadline = NEVER
        self._ending = True
        self._whole.cancel()

    def lost(self, broken: bool) -> None:  # noqa: FBT001 - a callback
        """The client has closed, or the connection is broken."""
        self.gone = True
        self.broken = self.broken or broken
        if self._exchange is not None:
            self._exchange.lost()

    async def _serve(self) -> None:
        over = False
        while not over:
            over, self.used_up = True, False
            self.scope = trio.CancelScope()
            with self.scope:
                over = await self._serve_exchanges()
        if self._lingers:
            await self._linger()

    async def _serve_exchanges(self) -> bool:
        """Serve until the connection ends, which is True, or `scope` is used up."""
        service, keep_alive = self._service, self._settings.keep_alive
        while True:
            if not self.parser.complete:
                await self._discard_body()
                self.deadline = trio.current_time() + keep_alive
            try:
                request = await self._next_request()
            except MalformedError as exc:
                logger.info("Refused a request with %d: %s", exc.status, exc.message)
                await self.send(response.refusal(exc.status, exc.message), within=self.write_timeout)
                self._lingers = True
                return True
            if request is None:
                return True
            self.deadline = NEVER
            exchange = self._exchange = DirectExchange(self, request)
            await service.endpoint(exchange)
            self._exchange = None
            if not exchange.complete:
                if not self.gone:
                    raise LostError
                # Nothing can follow half a response. What has come whole behind the request is run all the same.
                self.broken = True
            if exchange.last or service.draining:
                # The drain may have begun after the response did.
                self._lingers = not self.parser.complete or self.parser.unread
                return True
            del request, exchange  # nothing of them stays while the connection waits for the next
            self.deadline = service.now() + keep_alive
            if self.used_up:
                return False

    async def _next_request(self) -> Request | None:
        """The next request; None when the client sends no more."""
        parser = self.parser
        if parser.unread:
            request = parser.next_request()
            if request is not None:
                # Requests in one packet are no reason for others to wait.
                await trio.lowlevel.checkpoint()
                return request
            self.deadline = trio.current_time() + self._settings.header_timeout
        while True:
            data = await self.transport.receive()
            if not data:
                return None
            beginning = not parser.unread
            parser.feed(data)
            request = parser.next_request()
            if request is not None:
                return request
            if beginning:
                self.deadline = trio.current_time() + self._settings.header_timeout

    # ----- What an exchange needs

    def must_close(self, request: Request) -> bool:
        """Whether the response to the request must be the last one."""
        if request.close or self._service.draining:
            return True
        if self.parser.complete:
            return False
        # The endpoint does not want the body. A client that waits for leave to send it may send it or not.
        rest = self.parser.remaining
        return rest is None or rest > SMALL_REST or request.expects_continue

    async def receive_body(self, begun: bytes, limit: int) -> bytes:
        """The whole body, of which *begun* has come.

        Raises:
          BodyTooLargeError, MalformedError, ExchangeClosedError: as `mcpd.endpoint.exchange.Exchange.body` and the
          parser do.
        """
        parser = self.parser
        pieces, size = [begun], len(begun)
        self.deadline = trio.current_time() + self._settings.body_timeout
        while not parser.complete:
            if size > limit:
                raise BodyTooLargeError(limit)
            try:
                data = await self.transport.receive()
            except LostError:
                data = b""
            if not data:
                self.lost(broken=False)
                raise ExchangeClosedError
            parser.feed(data)
            pieces.append(parser.read_body())
            size += len(pieces[-1])
        self.deadline = NEVER
        return b"".join(pieces)

    def send_nowait(self, data: bytes) -> int:
        """Send what can be sent without waiting, and say how many bytes are sent, or have nobody to go to."""
        if self.broken:
            return len(data)
        try:
            return self.transport.send_nowait(data)
        except LostError:
            self.lost(broken=True)
            return len(data)

    async def send(self, data: bytes, *, within: float | None = None) -> bool:
        """Send it all; False when the client is gone. Cancelled within, it takes the connection with it.

        Args:
          data: what to send.
          within: seconds after which a client that does not take it is cut off; None leaves that to the caller.
        """
        sent = self.send_nowait(data)
        if sent == len(data):
            return not self.broken
        transport = self.transport
        try:
            if within is not None:
                self.deadline = trio.current_time() + within
            await transport.send(memoryview(data)[sent:])
            if within is not None:
                self.deadline = NEVER
        except LostError:
            self.lost(broken=True)
            return False
        except trio.Cancelled:
            self.lost(broken=True)
            await transport.abort()
            raise
        return True

    # ----- Ending

    async def _discard_body(self) -> None:
        self.deadline = trio.current_time() + self._settings.body_timeout
        while not self.parser.complete:
            self.parser.read_body()
            if not self.parser.complete:
                data = await self.transport.receive()
                if not data:
                    raise LostError
                self.parser.feed(data)

    async def _linger(self) -> None:
        # To close while the client sends would reset the connection, and the reset may overtake the response (RFC 9112,
        # 9.6). So we say that this was all, and read until the client has understood.
        self._said_all = True
        self.deadline = trio.current_time() + LINGER
        await self.transport.send_eof()
        while await self.transport.receive():
            pass

    async def _end(self) -> None:
        """After `expire`: say why to a client that was in the middle of a request, then close."""
        with trio.CancelScope(deadline=trio.current_time() + FAREWELL, shield=True):
            exchange, self._exchange = self._exchange, None
            if exchange is None:
                owed = self.parser.complete and self.parser.unread and not self._said_all
            else:
                owed = exchange.untouched
            if owed:
                await self.send(response.refusal(408, "The request did not come in time"))
            await self.transport.close()
