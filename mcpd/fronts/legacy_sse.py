"""HTTP+SSE, the transport of 2024-11-05: one GET that stays open, and POSTs to an address it names.

Deprecated, and off by default.

"When a client connects, the server MUST send an endpoint event containing a URI for the client to use for sending
messages. [...] Server messages are sent as SSE message events" (2024-11-05, basic/transports).
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import trio

from mcpd.auth.challenge import AccessError
from mcpd.endpoint.guard import refusal
from mcpd.endpoint.stream import HEADERS
from mcpd.errors import INTERNAL_ERROR, BodyTooLargeError, ExchangeClosedError, ProtocolError
from mcpd.fronts.connection import Connection
from mcpd.protocol import sse
from mcpd.server.principal import identity_of

if TYPE_CHECKING:
    from mcpd.endpoint.endpoint import Endpoint
    from mcpd.endpoint.exchange import Admitted, Exchange, HeaderList
    from mcpd.endpoint.stream import EventStream
    from mcpd.server.call import Call
    from mcpd.settings import Settings

logger: Final = logging.getLogger("mcpd.http")
_SSE: Final = "/sse"
_MESSAGES: Final = "/messages/"


class LegacySse:
    """The endpoint, with the two addresses of HTTP+SSE beside it."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Args: *endpoint*: which answers everything else."""
        self._endpoint = endpoint
        self.settings: Settings = endpoint.settings
        # Held by the GETs alone: a connection ends with its stream.
        self._connections: WeakValueDictionary[str, Connection] = WeakValueDictionary()

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one exchange."""
        path = exchange.path
        if path.rstrip("/") != _SSE and not path.startswith(_MESSAGES):
            await self._endpoint(exchange)
            return
        cors: HeaderList = []
        try:
            access = self._endpoint.access
            checked = access.check(exchange)
            cors = checked.cors
            if exchange.method == "OPTIONS":
                await exchange.respond(204, [*access.guard.preflight(exchange.headers), *cors])
                return
            asked = await access.admit(exchange, checked)
            if path.startswith(_MESSAGES):
                await self._post(asked, path.removeprefix(_MESSAGES))
            else:
                await self._stream(asked)
        except ExchangeClosedError:
            pass
        except BodyTooLargeError as exc:
            await self._endpoint.refuse(exchange, 413, str(exc), cors)
        except AccessError as exc:
            await self._endpoint.error(exchange, None, exc, [*exc.headers, *cors])
        except ProtocolError as exc:
            await self._endpoint.error(exchange, None, exc, cors)
        except Exception:
            logger.exception("%s %s failed", exchange.method, path)
            await self._endpoint.refuse(exchange, 500, "Internal error", cors, code=INTERNAL_ERROR)

    async def _stream(self, get: Admitted) -> None:
        if get.exchange.method != "GET":
            await self._endpoint.refuse(get.exchange, 405, "Use GET", [(b"allow", b"GET"), *get.checked.cors])
            return
        with self._endpoint.stream_places.held(get.owner):
            await self._hold(get)

    async def _hold(self, get: Admitted) -> None:
        endpoint, exchange = self._endpoint, get.exchange
        stream = endpoint.new_stream(exchange, "sse")

        async def send(message: bytes) -> None:
            data = sse.message(message)
            await stream.room(len(data))
            stream.push(data)

        def push(message: bytes) -> None:
            stream.push(sse.message(message))

        calls = _Calls(endpoint, stream)
        connection = Connection(
            endpoint.core,
            send,
            push=push,
            headers=exchange.headers,
            principal=get.principal,
            owner=get.owner,
            begins=calls.begins,
            ends=calls.ends,
        )
        connection_id = secrets.token_urlsafe(18)
        self._connections[connection_id] = connection
        # Relative to this address, so it also holds where the application is mounted below another.
        beside = b"../messages/" if exchange.path.endswith("/") else b"messages/"
        stream.push(b"event: endpoint\ndata: " + beside + connection_id.encode() + b"\n\n")
        exchange.on_close(stream.close)
        endpoint.end_with_token(get.principal, stream, calls.finish)
        endpoint.streams.add(calls)
        if endpoint.draining:
            calls.finish()
        try:
            async with connection.running():
                await stream.run([*HEADERS, *get.checked.cors])
        finally:
            endpoint.streams.discard(calls)

    async def _post(self, post: Admitted, connection_id: str) -> None:
        exchange, cors = post.exchange, post.checked.cors
        if exchange.method != "POST":
            await self._endpoint.refuse(exchange, 405, "Use POST", [(b"allow", b"POST"), *cors])
            return
        connection = self._connections.get(connection_id)
        if connection is None or identity_of(connection.principal) != identity_of(post.principal):
            raise refusal(404, "There is no such connection: open /sse again")
        if not post.checked.sends_json:
            raise refusal(415, "Content-Type must be application/json in UTF-8")
        body = await exchange.body(self._endpoint.settings.max_body)
        # 2024-11-05 answers the POST at once; what it brought about comes on the stream.
        await exchange.respond(202, cors)
        await connection.receive(body)
        await trio.lowlevel.checkpoint()


class _Calls:
    """The calls in flight on one connection. Its stream ends cleanly once they have been answered on it."""

    def __init__(self, endpoint: Endpoint, stream: EventStream) -> None:
        self._endpoint = endpoint
        self._stream = stream
        self._calls: set[Call] = set()
        self._finishing = False

    def begins(self, call: Call) -> None:
        """Raises LimitError if there are too many in this process, or of one principal."""
        self._endpoint.call_places.take(call.owner)
        self._endpoint.calls.add(call)
        self._calls.add(call)

    def ends(self, call: Call) -> None:
        self._calls.discard(call)
        self._endpoint.call_places.leave(call.owner)
        self._endpoint.call_done(call)
        if self._finishing:
            self.finish()

    def finish(self) -> None:
        """End the stream as soon as no call is in flight."""
        self._finishing = True
        if not self._calls:
            self._stream.finish()


def handler_of(endpoint: Endpoint) -> Endpoint | LegacySse:
    """What answers exchanges: the endpoint, with HTTP+SSE beside it if the settings say so."""
    return LegacySse(endpoint) if endpoint.settings.legacy_sse else endpoint
