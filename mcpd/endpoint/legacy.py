"""Legacy requests over HTTP: initialize, sessions, GET, DELETE (2025-11-25, basic/transports, and before)."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import trio

from mcpd.endpoint.exchange import JSON
from mcpd.endpoint.guard import refusal
from mcpd.endpoint.rate import Rate
from mcpd.endpoint.reply import Reply
from mcpd.endpoint.stream import HEADERS, EventStream
from mcpd.errors import INVALID_REQUEST, LimitError, ProtocolError, StoreError
from mcpd.protocol import jsonrpc, requests
from mcpd.protocol import sse as sse_encoding
from mcpd.protocol.jsonrpc import Message, MessageError
from mcpd.protocol.revisions import LEGACY, MODERN, negotiate
from mcpd.protocol.types import ClientCapabilities
from mcpd.server.call import Call
from mcpd.server.changes import Change
from mcpd.server.principal import identity_of
from mcpd.sessions.leases import LOOK_AGAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcpd.endpoint.access import Checked
    from mcpd.endpoint.endpoint import Endpoint
    from mcpd.endpoint.exchange import Exchange, HeaderList, Post
    from mcpd.ports import EventLog
    from mcpd.protocol.headers import Headers
    from mcpd.protocol.jsonrpc import RequestId
    from mcpd.protocol.requests import Meta
    from mcpd.protocol.revisions import Revision
    from mcpd.server.principal import Owner, Principal
    from mcpd.sessions.sessions import Session

logger: Final = logging.getLogger("mcpd.http")
_ALLOW: Final = (b"allow", b"POST, DELETE, OPTIONS")
LISTENER: Final = "0"
"""The standalone GET stream in the event log; the streams of POSTs have random names, and longer ones."""


class _Get(NamedTuple):
    """A GET that may come in."""

    exchange: Exchange
    cors: HeaderList
    principal: Principal | None


class Legacy:
    """The legacy half of an endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Args: *endpoint*: the whole."""
        self._endpoint = endpoint
        self._rate = Rate(endpoint.settings.initialize_rate / 60) if endpoint.settings.initialize_rate else None
        self._events = endpoint.store.events if endpoint.settings.resumable else None

    # ----- POST

    async def post(self, post: Post, message: Message, meta: Meta) -> None:
        """Answer a POST of one message.

        Raises:
          ProtocolError: it is refused; nothing was run and nothing created.
        """
        if message.method == "initialize" and message.is_request:
            # A client that lost its session may still send the old ID along: it is ignored.
            if self._endpoint.core.tracing:
                from mcpd.tracing import initialization  # noqa: PLC0415 - who does not trace has no need of it

                with initialization(message, post.exchange.headers):
                    await self._initialize(post, message)
            else:
                await self._initialize(post, message)
            return
        session = await self._session(post.exchange.headers, post.checked, post.principal)
        began = self._endpoint.now()
        try:
            if message.is_request:
                call = self._new_call(post, message, meta, session, post.exchange.scope)
                call.outlet = reply = self._reply(post, session, (call.id,))
                if session is None:
                    await self._endpoint.run_call(call, reply, began)
                    return
                session.live.enter(call)
                try:
                    await self._endpoint.run_call(call, reply, began)
                finally:
                    session.live.leave(call)
            else:
                await self._hear(session, message)
                await post.exchange.respond(202, post.checked.cors)
        finally:
            await self._release(session, began)

    async def post_batch(self, post: Post, batch: Sequence[Message | MessageError]) -> None:
        """Answer a POST of a JSON-RPC batch, which only 2025-03-26 has.

        Raises:
          ProtocolError: it is refused; nothing was run.
        """
        session = await self._session(post.exchange.headers, post.checked, post.principal)
        if session is None or not session.revision.batches:
            raise ProtocolError(
                INVALID_REQUEST, "Batches are of 2025-03-26 only: send one message in each POST", http_status=400
            )
        if any(isinstance(message, Message) and message.method == "initialize" for message in batch):
            raise ProtocolError(INVALID_REQUEST, "initialize must not be part of a batch", http_status=400)
        began = trio.current_time()
        endpoint = self._endpoint
        ids = [message.id for message in batch if isinstance(message, Message) and message.is_request]
        reply = self._reply(post, session, cast("list[RequestId]", ids))
        answers: list[bytes] = []
        calls: list[Call] = []

        async def run(call: Call) -> None:
            session.live.enter(call)
            endpoint.calls.add(call)
            try:
                answer = await endpoint.dispatcher.answer(call)
            finally:
                endpoint.call_done(call)
                session.live.leave(call)
            if answer is not None:
                answers.append(answer.body)

        endpoint.call_places.take(post.owner, len(ids))
        try:
            for message in batch:
                if isinstance(message, MessageError):
                    answers.append(jsonrpc.encode_error(message.id, message))
                elif not message.is_request:
                    await self._hear(session, message)
                else:
                    try:
                        meta = requests.read_meta(message.params)
                    except ProtocolError as exc:
                        answers.append(jsonrpc.encode_error(cast("Any", message.id), exc))
                    else:
                        calls.append(self._new_call(post, message, meta, session))
            async with trio.open_nursery() as nursery:
                for call in calls:
                    call.outlet = reply
                    nursery.start_soon(run, call)
            await reply.answer_all(answers)
        finally:
            endpoint.call_places.leave(post.owner, len(ids))
            await self._release(session, began)

    async def _initialize(self, post: Post, message: Message) -> None:
        endpoint = self._endpoint
        try:
            params = requests.decode_params(requests.InitializeParams, message.params)
        except ProtocolError as exc:
            exc.http_status = 400
            raise
        revision = negotiate(params.protocol_version)
        headers = post.checked.cors
        began = trio.current_time()
        session_id = ""
        gone = False

        def left() -> None:
            nonlocal gone
            gone = True

        self._check_rate(post.owner)
        post.exchange.on_close(left)
        if endpoint.settings.sessions:
            session_id = await endpoint.sessions.create(
                revision, params.capabilities, params.client_info, identity_of(post.principal), post.owner
            )
            headers = [(b"mcp-session-id", session_id.encode()), *headers]
        result = endpoint.dispatcher.offer.initialize(revision)
        if not endpoint.settings.sessions:
            result["capabilities"].get("tasks", {}).pop("list", None)  # whose tasks they are nobody could say
        body = jsonrpc.encode_result(cast("Any", message.id), result)
        # Never a stream that could be resumed: "priming [...] never before an initialize result" breaks no client.
        if post.checked.json:
            await post.exchange.respond(200, [JSON, *headers], body)
        else:
            await post.exchange.respond(200, [*HEADERS, *headers], sse_encoding.message(body))
        if gone and session_id:
            # Nobody knows its ID, so nobody would ever end it.
            session = await endpoint.sessions.load(session_id, identity_of(post.principal))
            if session is not None:
                await endpoint.sessions.end(session, "aborted")
        outcome = "cancelled" if gone else "ok"
        endpoint.core.meter.request("legacy", "initialize", outcome, trio.current_time() - began)

    def _check_rate(self, owner: Owner) -> None:
        """Raise LimitError if the client initializes too often."""
        if self._rate is None or not owner:
            return
        wait = self._rate.take(owner, trio.current_time())
        if wait:
            self._endpoint.core.meter.rejected["sessions"]["rate"] += 1
            often = self._endpoint.settings.initialize_rate
            message = f"This client opens more than {often} sessions a minute; let it go on with those it has"
            raise LimitError(message, limit="initialize_rate", own=True, retry_after=wait)

    async def _session(self, headers: Headers, checked: Checked, principal: Principal | None) -> Session | None:
        """The session this exchange belongs to; None only where legacy clients are served without.

        Raises:
          ProtocolError: 404 for an unknown one, which another principal's is as well.
        """
        version, session_id = checked.version, checked.session_id
        if version is not None and version not in LEGACY and version not in MODERN:
            raise refusal(400, f"Unsupported MCP-Protocol-Version {version[:100]!r}; supported are {', '.join(LEGACY)}")
        if session_id is None:
            if not self._endpoint.settings.sessions:
                return None
            raise refusal(400, "Mcp-Session-Id is missing: initialize first and send the ID you get with each request")
        if headers.repeated(b"mcp-session-id"):
            raise refusal(400, "Mcp-Session-Id stands more than once")
        session = await self._endpoint.sessions.load(session_id, identity_of(principal))
        if session is None:
            raise refusal(404, "Session not found: it has ended or expired; initialize again")
        return session

    async def _release(self, session: Session | None, began: float) -> None:
        """The exchange is over: the session's idle time counts from now, if that makes a difference."""
        if session is None or session.live.ended:
            return
        endpoint = self._endpoint
        lasted = endpoint.now() - began
        if lasted > min(1.0, endpoint.sessions.idle / 20) or not session.is_initialized:
            with trio.move_on_after(1.0, shield=True):
                try:
                    await endpoint.sessions.renew(session)
                except StoreError as exc:
                    logger.warning("A session could not be renewed: %s", exc)

    async def _hear(self, session: Session | None, message: Message) -> None:
        """A notification or a response. What makes no sense is ignored: nobody waits for an answer."""
        sessions = self._endpoint.sessions
        if session is None:
            return
        if message.is_response:
            await sessions.answer(session, message)
        elif message.method == "notifications/initialized":
            if not session.record.initialized:
                await session.initialized()
        elif message.method == "notifications/cancelled":
            try:
                params = requests.decode_params(requests.CancelledParams, message.params)
            except ProtocolError:
                return
            if params.request_id is not None:
                logger.debug("Request cancelled: %.200s", params.reason)
                await sessions.cancel(session, params.request_id)

    def _new_call(
        self, post: Post, message: Message, meta: Meta, session: Session | None, scope: trio.CancelScope | None = None
    ) -> Call:
        record = None if session is None else session.record
        return Call(
            id=cast("Any", message.id),
            method=cast("str", message.method),
            params=message.params,
            meta=meta,
            revision=self._revision(post.checked) if session is None else session.revision,
            capabilities=_NO_CAPABILITIES if record is None else record.capabilities,
            client_info=None if record is None else record.client_info,
            log_level=None if record is None else record.log_level,
            headers=post.exchange.headers,
            session=session,
            principal=post.principal,
            scope=scope,
            owner=post.owner,
        )

    def _reply(self, post: Post, session: Session | None, ids: Sequence[RequestId]) -> Reply:
        return Reply(
            post, self._endpoint, session=session, log=None if session is None else self._log(session), ids=ids
        )

    def _log(self, session: Session) -> EventLog | None:
        # 2024-11-05 knows no event ids.
        return self._events if session.revision.audio else None

    def _revision(self, checked: Checked) -> Revision:
        # "If the server does not receive an MCP-Protocol-Version header, and has no other way to identify the version
        # [...] the server SHOULD assume protocol version 2025-03-26" (2025-11-25, basic/transports).
        return LEGACY[checked.version or "2025-03-26"]

    # ----- DELETE

    async def delete(self, exchange: Exchange, checked: Checked, principal: Principal | None) -> None:
        """End the session."""
        session = await self._session(exchange.headers, checked, principal)
        if session is None or not await self._endpoint.sessions.end(session):
            raise refusal(404, "Session not found: it has ended or expired")
        await exchange.respond(204, checked.cors)

    # ----- GET

    async def get(self, exchange: Exchange, checked: Checked, principal: Principal | None) -> None:
        """The standalone stream, or with Last-Event-ID the rest of any stream of the session."""
        cors = checked.cors
        if checked.session_id is None:
            # 405 is what tells clients that there is no stream here; several connect only on that.
            await self._endpoint.refuse(exchange, 405, "There is no stream without a session", [_ALLOW, *cors])
            return
        session = await self._session(exchange.headers, checked, principal)
        assert session is not None  # noqa: S101 - the ID is there
        if not checked.sse:
            raise refusal(406, "Accept must allow text/event-stream")
        began = trio.current_time()
        get = _Get(exchange, cors, principal)
        last = exchange.headers.get(b"last-event-id")
        stream_id, _, after = (last or "").rpartition(".")
        log = self._log(session)
        standalone = last is None or log is None or stream_id == LISTENER
        places = self._endpoint.stream_places
        owner = checked.owner if principal is None else principal.identity
        places.take(owner, leaving=int(standalone and session.live.standalone is not None))
        try:
            if last is None or log is None:
                await self._listen(get, session, log, None)
            elif stream_id == LISTENER:
                await self._listen(get, session, log, after)
            else:
                await self._resume(get, session, log, (stream_id, after))
        finally:
            places.leave(owner)
            await self._release(session, began)

    async def _listen(self, get: _Get, session: Session, log: EventLog | None, after: str | None) -> None:
        """The standalone stream: changes, as they come. With *after*, first what was missed."""
        endpoint = self._endpoint
        stream = endpoint.new_stream(get.exchange, "get")
        listener = Listener(session, stream, log, after)
        if after is not None and log is not None and await log.read(session.key, LISTENER, after=after) is None:
            raise refusal(400, "That event is not known (any more): open the stream without Last-Event-ID")
        live = session.live
        # Before the first event: what changes after that is told.
        endpoint.subscriptions.add(listener)
        try:
            if after is None and log is not None:
                number = await session.log(LISTENER, b"")
                if session.revision.priming:
                    stream.push(sse_encoding.priming(f"{LISTENER}.{number}", retry=endpoint.retry))
            await endpoint.sessions.take_over(session, stream)
            if live.ended:
                raise refusal(404, "Session not found: it has ended or expired; initialize again")
            del session.record  # it may be open for hours, and whoever needs the record then needs it as it is then
            if after is None:
                await self._hold(get, session, stream)
                return
            async with trio.open_nursery() as nursery:
                nursery.start_soon(listener.catch_up)
                await self._hold(get, session, stream)
                nursery.cancel_scope.cancel()
        finally:
            endpoint.subscriptions.remove(listener)
            if live.standalone is not None and live.standalone.stream is stream:
                live.standalone = None

    async def _resume(self, get: _Get, session: Session, log: EventLog, event: tuple[str, str]) -> None:
        """The rest of a POST's stream, as far as it has come and as it goes on, here or on another replica."""
        stream_id, after = event
        if await log.read(session.key, stream_id, after=after) is None:
            raise refusal(400, "That event is not known (any more): its stream cannot be resumed")
        stream = self._endpoint.new_stream(get.exchange, "resume")

        async def read_on() -> None:
            position = after
            while not stream.closed:
                found = await log.read(session.key, stream_id, after=position)
                if found is None:
                    break
                events, finished = found
                for missed in events:
                    position = missed.id
                    if missed.data:
                        data = sse_encoding.message(missed.data, f"{stream_id}.{missed.id}")
                        await stream.room(len(data))
                        stream.push(data)
                if finished:
                    break
                if not events:
                    await self._wait(session, log, stream_id, position)

        async def follow() -> None:
            try:
                await read_on()
            except StoreError as exc:
                # The response has begun; who wants the rest asks for it when the store is back.
                logger.warning("A resumed stream could not be followed any further: %s", exc)
            stream.finish()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await self._hold(get, session, stream)
            nursery.cancel_scope.cancel()

    async def _wait(self, session: Session, log: EventLog, stream_id: str, position: str) -> None:
        """Return when the stream may have gone on. If who ran its call is gone, it ends here, with an error."""
        with trio.move_on_after(LOOK_AGAIN) as silence:
            await log.wait(session.key, stream_id, after=position)
        if silence.cancelled_caught:
            leases = self._endpoint.leases
            lost = await leases.lost(session.key, stream_id)
            for index, error in enumerate(lost):
                await log.append(session.key, stream_id, error, last=index == len(lost) - 1)
            if lost:
                await leases.settled(session.key, stream_id)

    async def _hold(self, get: _Get, session: Session, stream: EventStream) -> None:
        """Write the stream until it ends, is closed by the client, or the session, the server or the token ends."""
        endpoint = self._endpoint
        get.exchange.on_close(stream.close)
        session.live.streams.add(stream)
        endpoint.streams.add(stream)
        if session.live.ended or endpoint.draining:
            stream.finish()
        endpoint.end_with_token(get.principal, stream, stream.finish)
        try:
            await stream.run([*HEADERS, *get.cors])
        finally:
            session.live.streams.discard(stream)
            endpoint.streams.discard(stream)


class Listener:
    """A standalone GET stream as a subscriber to changes."""

    def __init__(self, session: Session, stream: EventStream, log: EventLog | None, after: str | None = None) -> None:
        """
        Args:
          session: whose stream.
          stream: where to write.
          log: so that it can be resumed.
          after: the last event that the client has; until `catch_up` is done, changes are only logged.
        """  # noqa: D205, D212 - the class says it
        self._session = session
        self._stream = stream
        self._log = log
        self._after = None if log is None else after
        # Between a read that finds nothing more and the first change that is written, none may be logged.
        self._turn = None if self._after is None else trio.Lock()

    async def catch_up(self) -> None:
        """Write what was missed, as fast as the client reads it."""
        log, turn = self._log, self._turn
        if log is None or turn is None:
            return
        try:
            while self._after is not None:
                async with turn:
                    found = await log.read(self._session.key, LISTENER, after=self._after)
                    if not found or not found[0]:
                        self._after = None
                        return
                for event in found[0]:
                    self._after = event.id
                    if event.data:
                        data = sse_encoding.message(event.data, f"{LISTENER}.{event.id}")
                        await self._stream.room(len(data))
                        self._stream.push(data)
        except StoreError as exc:
            # The client asks again for what it has not got.
            logger.warning("A resumed stream could not be followed any further: %s", exc)
            self._stream.finish()

    async def deliver(self, change: Change) -> None:
        """Send the change if the session wants it."""
        session = self._session
        if session.live.ended or change.kind == "task":
            return  # what is logged now would be kept for nobody; and of tasks only the modern era is told like this
        if change.kind == "resource":
            # What it is subscribed to stands in its record: any replica may have changed it since the stream was
            # opened.
            record = await session.reload()
            if record is None or change.uri not in record.subscriptions:
                return
        await self._tell(change)

    async def missed(self, lists: Sequence[Change]) -> None:
        """Changes may have been lost."""
        record = await self._session.reload()
        if record is not None and not self._session.live.ended:
            for change in (*lists, *(Change("resource", uri) for uri in record.subscriptions)):
                await self._tell(change)

    async def _tell(self, change: Change) -> None:
        session = self._session
        message = change.notification()
        event_id = None
        async with self._turn or nullcontext():
            if self._log is not None:
                event_id = f"{LISTENER}.{await session.log(LISTENER, message)}"
            if self._after is None:
                self._stream.push(sse_encoding.message(message, event_id))


_NO_CAPABILITIES: Final = ClientCapabilities()
