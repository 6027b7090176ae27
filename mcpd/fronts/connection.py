"""One connection of JSON-RPC messages, both eras in it: what stdio and the in-process client have in common.

A request with the modern envelope is stateless; ``initialize`` makes the connection a legacy session, which is in
memory and ends with it (2026-07-28, basic/versioning, "stdio").
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec
import trio

from mcpd.errors import CONNECTION_CLOSED, INVALID_PARAMS, INVALID_REQUEST, ClientError, ProtocolError
from mcpd.protocol import envelope, jsonrpc, requests
from mcpd.protocol.revisions import LATEST_LEGACY, negotiate
from mcpd.protocol.types import ClientCapabilities
from mcpd.server.call import Call
from mcpd.sessions.live import Live
from mcpd.sessions.record import SessionRecord
from mcpd.sessions.sessions import MAX_SUBSCRIPTIONS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from mcpd.protocol.jsonrpc import Message, RequestId
    from mcpd.protocol.requests import Meta
    from mcpd.protocol.types import LoggingLevel
    from mcpd.server.changes import Change
    from mcpd.server.dispatch import Dispatcher

T = TypeVar("T")
logger: Final = logging.getLogger("mcpd.connection")
_NO_CAPABILITIES: Final = ClientCapabilities()


class LocalSession:
    """The legacy session of one connection, in memory. It implements `mcpd.server.call.LegacySession`."""

    def __init__(self, record: SessionRecord) -> None:
        self.id = "local"
        self.record = record
        self._values: dict[str, bytes] = {}

    async def get(self, key: str, default: Any = None) -> Any:
        """The value kept under *key*, or *default*."""
        await trio.lowlevel.checkpoint()
        found = self._values.get(key)
        return default if found is None else msgspec.json.decode(found)

    async def set(self, key: str, value: Any) -> None:
        """Keep *value*; None removes it."""
        await self.update(key, lambda _: value)

    async def update(self, key: str, change: Callable[[Any], Any], default: Any = None) -> Any:
        """Replace the value by what *change* makes of it."""
        await trio.lowlevel.checkpoint()
        found = self._values.get(key)
        new = change(default if found is None else msgspec.json.decode(found))
        if new is None:
            self._values.pop(key, None)
        else:
            self._values[key] = jsonrpc.encode(new)
        return new

    async def initialized(self) -> None:
        """The client has finished its side of the initialization."""
        await trio.lowlevel.checkpoint()
        self.record.initialized = True

    async def set_log_level(self, level: LoggingLevel) -> None:
        """Send no log message below *level* from now on."""
        await trio.lowlevel.checkpoint()
        self.record.log_level = level

    async def subscribe(self, uri: str) -> None:
        """Tell of updates of *uri*."""
        await trio.lowlevel.checkpoint()
        if uri not in self.record.subscriptions:
            if len(self.record.subscriptions) >= MAX_SUBSCRIPTIONS:
                raise ProtocolError(INVALID_PARAMS, f"A session has at most {MAX_SUBSCRIPTIONS} subscriptions")
            self.record.subscriptions.append(uri)

    async def unsubscribe(self, uri: str) -> None:
        """No longer tell of updates of *uri*."""
        await trio.lowlevel.checkpoint()
        if uri in self.record.subscriptions:
            self.record.subscriptions.remove(uri)


class _Outlet:
    """A call's way to its client: the connection, which all calls share."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.finished = False

    async def send(self, message: bytes) -> None:
        if self.finished:
            await trio.lowlevel.checkpoint()
        else:
            await self._connection.send(message)

    async def ask(
        self, method: str, params: dict[str, Any], read: Callable[[msgspec.Raw], T], *, key: str | None, timeout: float
    ) -> T:
        connection = self._connection
        if connection.session is None:
            raise ClientError(CONNECTION_CLOSED, "This client cannot be asked")

        async def send(request_id: RequestId) -> None:
            await connection.send(jsonrpc.encode_request(request_id, method, params))

        async def give_up(request_id: RequestId) -> None:
            reason = {"requestId": request_id, "reason": f"No answer within {timeout:g} s"}
            await connection.send(jsonrpc.encode_notification("notifications/cancelled", reason))

        return await connection.live.questions.ask(send, read, timeout=timeout, give_up=give_up)

    async def close_stream(self) -> None:
        await trio.lowlevel.checkpoint()


class Connection:
    """The server's end of one connection."""

    def __init__(
        self, dispatcher: Dispatcher, send: Callable[[bytes], Awaitable[None]], *, max_calls: int = 100
    ) -> None:
        """
        Args:
          dispatcher: answers the requests.
          send: writes one message, whole, whichever task calls it.
          max_calls: how many requests may be in flight; further ones are read only when one is answered.
        """  # noqa: D205, D212 - the class says it
        self._dispatcher = dispatcher
        self.send = send
        self._slots = trio.Semaphore(max_calls)
        self.live = Live("connection")
        self.session: LocalSession | None = None
        self._revision = LATEST_LEGACY
        self._nursery: trio.Nursery | None = None
        self._pending: dict[Change, None] = {}
        self._changed = trio.Event()
        self._idle: trio.Event | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Take messages while this is open; what is in flight at its end is cancelled."""
        listeners = self._dispatcher.server.listeners
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._tell_changes)
            listeners.add(self._note)
            try:
                yield
            finally:
                listeners.discard(self._note)
                self._nursery = None
                nursery.cancel_scope.cancel()

    async def finish(self) -> None:
        """Wait for the calls in flight."""
        if self.live.calls:
            self._idle = trio.Event()
            await self._idle.wait()

    async def receive(self, data: bytes) -> None:
        """Take one message from the client. It returns when the message is on its way, not when it is answered."""
        try:
            batch = jsonrpc.decode_batch(data)
            if batch is None:
                await self._take(jsonrpc.decode(data))
                return
            if self.session is None or not self._revision.batches:
                raise jsonrpc.MessageError(
                    INVALID_REQUEST, "Batches are of 2025-03-26 only: send one message at a time"
                )
            for message in batch:
                await self._take(message)
        except jsonrpc.MessageError as exc:
            await self.send(jsonrpc.encode_error(exc.id, exc))

    async def _take(self, message: Message) -> None:
        if message.is_response:
            self.live.questions.answer(message)
        elif not message.is_request:
            await self._hear(message)
        else:
            request_id = cast("RequestId", message.id)
            try:
                await self._request(message, request_id)
            except ProtocolError as exc:
                await self.send(jsonrpc.encode_error(request_id, exc))

    async def _hear(self, message: Message) -> None:
        if message.method == "notifications/cancelled":
            try:
                params = requests.decode_params(requests.CancelledParams, message.params)
            except ProtocolError:
                return
            if params.request_id is not None:
                self.live.cancel(params.request_id)
        elif message.method == "notifications/initialized" and self.session is not None:
            await self.session.initialized()

    async def _request(self, message: Message, request_id: RequestId) -> None:
        meta = requests.read_meta(message.params)
        if envelope.is_modern(meta, None):
            read = envelope.read_envelope(meta, over_http=False)
            await self._start(message, request_id, meta, read)
        elif message.method == "initialize":
            await self._initialize(message, request_id)
        elif self.session is None and message.method != "ping":
            raise ProtocolError(
                INVALID_REQUEST, "Initialize first, or send the envelope of 2026-07-28 with each request"
            )
        else:
            record = None if self.session is None else self.session.record
            read = envelope.Envelope(
                self._revision,
                _NO_CAPABILITIES if record is None else record.capabilities,
                None if record is None else record.client_info,
                None if record is None else record.log_level,
            )
            await self._start(message, request_id, meta, read)

    async def _initialize(self, message: Message, request_id: RequestId) -> None:
        params = requests.decode_params(requests.InitializeParams, message.params)
        self._revision = negotiate(params.protocol_version)
        self.session = LocalSession(SessionRecord(self._revision.name, params.capabilities, params.client_info))
        await self.send(jsonrpc.encode_result(request_id, self._dispatcher.offer.initialize(self._revision)))

    async def _start(self, message: Message, request_id: RequestId, meta: Meta, read: envelope.Envelope) -> None:
        call = Call(
            id=request_id,
            method=cast("str", message.method),
            params=message.params,
            meta=meta,
            revision=read.revision,
            capabilities=read.capabilities,
            client_info=read.client_info,
            log_level=read.log_level,
            headers=None,
            session=None if read.revision.modern else self.session,
        )
        await self._slots.acquire()
        if self._nursery is None:
            self._slots.release()
            return
        # Entered here, not in its task: a cancellation that comes right behind must find it.
        self.live.enter(call)
        self._nursery.start_soon(self._run, call)

    async def _run(self, call: Call) -> None:
        call.outlet = outlet = _Outlet(self)
        try:
            answer = await self._dispatcher.answer(call)
            outlet.finished = True
            if answer is not None:
                await self.send(answer.body)
        finally:
            outlet.finished = True
            self.live.leave(call)
            self._slots.release()
            if self._idle is not None and not self.live.calls:
                self._idle.set()

    def _note(self, change: Change) -> None:
        if len(self._pending) < MAX_SUBSCRIPTIONS:
            self._pending[change] = None
            self._changed.set()

    async def _tell_changes(self) -> None:
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            pending, self._pending = self._pending, {}
            session = self.session
            if session is None or not session.record.initialized:
                continue
            for change in pending:
                if change.kind != "resource" or change.uri in session.record.subscriptions:
                    await self.send(change.notification())
