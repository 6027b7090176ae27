"""One connection of JSON-RPC messages, both eras in it: what stdio and the in-process client have in common.

A request with the modern envelope is stateless; ``initialize`` makes the connection a legacy session, which is in
memory and ends with it (2026-07-28, basic/versioning, "stdio").
"""

from __future__ import annotations

import logging
import secrets
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec
import trio

from mcpd.errors import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_REQUEST, ClientError, ProtocolError
from mcpd.listening import METHOD as LISTEN
from mcpd.listening import Listening, last
from mcpd.protocol import envelope, jsonrpc, requests
from mcpd.protocol.revisions import LATEST_LEGACY, negotiate
from mcpd.protocol.types import ClientCapabilities
from mcpd.server.call import Call
from mcpd.server.changes import Change
from mcpd.sessions.live import Live
from mcpd.sessions.record import SessionRecord, changed_record, decode_record, new_record
from mcpd.sessions.recorded import RecordedSession

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from mcpd.core import Core
    from mcpd.protocol.headers import Headers
    from mcpd.protocol.jsonrpc import Message, RequestId
    from mcpd.protocol.requests import Meta
    from mcpd.server.principal import Owner, Principal

T = TypeVar("T")
logger: Final = logging.getLogger("mcpd.connection")
MAX_LISTENING: Final = 100
MAX_TAKEN: Final = 1_000
"""Requests without an answer. They are read and not left in the pipe: behind them may come what they wait for."""
_NO_CAPABILITIES: Final = ClientCapabilities()


class LocalSession(RecordedSession):
    """The legacy session of one connection, in memory. It implements `mcpd.server.call.LegacySession`."""

    def __init__(self, record: bytes) -> None:
        """Args: *record*: what the client has told of itself."""
        self.id = secrets.token_urlsafe(18)
        self.ended = False
        self._kept = record
        self.record = _decoded(record)

    async def _current(self) -> SessionRecord:
        await trio.lowlevel.checkpoint()
        return self.record

    async def _change(self, apply: Callable[[SessionRecord], object]) -> None:
        await trio.lowlevel.checkpoint()
        record = _decoded(self._kept)
        apply(record)
        self._kept = changed_record(record)
        self.record = record


def _decoded(data: bytes) -> SessionRecord:
    record = decode_record(data)
    assert record is not None  # noqa: S101 - we have encoded it
    return record


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
        self,
        core: Core,
        send: Callable[[bytes], Awaitable[None]],
        *,
        push: Callable[[bytes], object] | None = None,
        max_calls: int = 100,
        headers: Headers | None = None,
        principal: Principal | None = None,
        owner: Owner = "",
        begins: Callable[[Call], object] | None = None,
        ends: Callable[[Call], object] | None = None,
    ) -> None:
        """
        Args:
          core: what is served.
          send: writes one message, whole, whichever task calls it.
          push: the same for changes, and without waiting for the client; None if *send* holds up nobody else.
          max_calls: how many requests are worked on at once; further ones, up to a bound, wait for their turn.
          headers: of the HTTP request that opened it, if it is one (HTTP+SSE).
          principal: who opened it, if there is authorization.
          owner: on whose account its calls go; "" is nobody's.
          begins: told of each call before it runs; a ProtocolError that it raises is the call's answer.
          ends: told of each call once its answer has been sent.
        """  # noqa: D205, D212 - the class says it
        self._core = core
        self._dispatcher = core.dispatcher
        self.send = send
        self._push = push
        self.principal = principal
        self._owner: Owner = owner
        self._headers = headers
        self._begins = begins
        self._ends = ends
        self._slots = trio.Semaphore(max_calls)
        self._taken = 0
        self.live = Live("connection")
        self.session: LocalSession | None = None
        self._revision = LATEST_LEGACY
        self._nursery: trio.Nursery | None = None
        self._idle: trio.Event | None = None
        self._listening: dict[RequestId, Listening] = {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Take messages while this is open; what is in flight at its end is cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._core.subscriptions.add(self)
            try:
                yield
            finally:
                self._core.subscriptions.remove(self)
                if self.session is not None:
                    self.session.ended = True
                for listening in self._listening.values():
                    self._core.subscriptions.remove(listening)
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
            if any(isinstance(message, jsonrpc.Message) and message.method == "initialize" for message in batch):
                raise jsonrpc.MessageError(INVALID_REQUEST, "initialize must not be part of a batch")
            for message in batch:
                if isinstance(message, jsonrpc.MessageError):
                    await self.send(jsonrpc.encode_error(message.id, message))
                else:
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
                logger.debug("Request cancelled: %.200s", params.reason)
                self.live.cancel(params.request_id)
                await self._stop_listening(params.request_id)
        elif message.method == "notifications/initialized" and self.session is not None:
            await self.session.initialized()

    async def _request(self, message: Message, request_id: RequestId) -> None:
        meta = requests.read_meta(message.params)
        # Without headers there is nothing to differ from: what a modern-only server misses, it misses in _meta.
        only_modern = self._core.settings.era == "modern" and message.method != "initialize"
        modern = only_modern or envelope.is_modern(meta, None)
        envelope.check_era(self._core.settings.era, message, modern=modern)
        if modern:
            read = envelope.read_envelope(meta, over_http=False)
            await self._start(message, request_id, meta, read)
        elif message.method == "initialize":
            if self._core.tracing:
                from mcpd.tracing import initialization  # noqa: PLC0415 - who does not trace has no need of it

                with initialization(message, self._headers):
                    await self._initialize(message, request_id)
            else:
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
        self.session = LocalSession(new_record(self._revision.name, params.capabilities, params.client_info))
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
            headers=self._headers,
            session=None if read.revision.modern else self.session,
            principal=self.principal,
            owner=self._owner,
        )
        if read.revision.modern and call.method == LISTEN:
            await self._listen(call)
            return
        if self._nursery is None:
            return
        if self._taken >= MAX_TAKEN:
            raise ProtocolError(
                INTERNAL_ERROR, f"Too many requests at once: at most {MAX_TAKEN} may wait for an answer"
            )
        if self._begins is not None:
            self._begins(call)
        self._taken += 1
        # Entered here, not in its task: a cancellation that comes right behind must find it.
        self.live.calls.add(call)
        self._nursery.start_soon(self._run, call)

    async def _run(self, call: Call) -> None:
        call.outlet = outlet = _Outlet(self)
        # Who asks whether we are alive does not stand in line.
        turn = nullcontext() if call.method == "ping" else self._slots
        try:
            async with turn:
                # What was cancelled while it waited for its turn does not even begin.
                answer = None if call.cancelled else await self._dispatcher.answer(call)
            outlet.finished = True
            if answer is not None:
                await self.send(answer.body)
        finally:
            outlet.finished = True
            self.live.calls.discard(call)
            self._taken -= 1
            if self._ends is not None:
                self._ends(call)
            if self._idle is not None and not self.live.calls:
                self._idle.set()

    async def _listen(self, call: Call) -> None:
        async def end() -> None:
            if call.id in self._listening:
                await self._stop_listening(call.id)
                await self.send(last(call))

        listening = Listening(self._core, call, self.send, end)
        await self._stop_listening(call.id)
        if len(self._listening) >= MAX_LISTENING:
            raise ProtocolError(INVALID_REQUEST, f"A connection has at most {MAX_LISTENING} subscriptions")
        # Before the client can know of it: it has been promised all that changes from the acknowledgement on.
        self._listening[call.id] = listening
        self._core.subscriptions.add(listening)
        try:
            await listening.begin()
        except BaseException:
            self._listening.pop(call.id, None)
            self._core.subscriptions.remove(listening)
            raise

    async def _stop_listening(self, request_id: RequestId) -> None:
        listening = self._listening.pop(request_id, None)
        if listening is not None:
            self._core.subscriptions.remove(listening)
        await trio.lowlevel.checkpoint()

    async def stop_listening(self) -> None:
        """End all subscriptions cleanly: the server is stopping."""
        for request_id, listening in list(self._listening.items()):
            await self._stop_listening(request_id)
            await self.send(listening.result)

    async def missed(self, lists: Sequence[Change]) -> None:
        """Changes may have been lost: tell of these, and of all resources it is subscribed to."""
        uris = () if self.session is None else tuple(self.session.record.subscriptions)
        for change in (*lists, *(Change("resource", uri) for uri in uris)):
            await self.deliver(change)

    async def deliver(self, change: Change) -> None:
        """Tell a legacy client of a change; `mcpd.sessions.subscriptions.Subscriber`."""
        session = self.session
        if session is None or not session.record.initialized or change.kind == "task":
            return
        if change.kind != "resource" or change.uri in session.record.subscriptions:
            if self._push is None:
                await self.send(change.notification())
            else:
                self._push(change.notification())
