"""Legacy requests over HTTP: initialize, and POST, GET and DELETE of sessions (2025-11-25, basic/transports)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, cast

import trio

from mcpd.endpoint.exchange import JSON
from mcpd.endpoint.guard import refusal
from mcpd.endpoint.rate import Rate
from mcpd.endpoint.reply import Reply
from mcpd.endpoint.session_streams import SessionStreams
from mcpd.endpoint.stream import HEADERS
from mcpd.errors import INVALID_REQUEST, LimitError, ProtocolError, StoreError
from mcpd.protocol import jsonrpc, requests
from mcpd.protocol import sse as sse_encoding
from mcpd.protocol.jsonrpc import Message, MessageError
from mcpd.protocol.revisions import LEGACY, MODERN, negotiate
from mcpd.protocol.types import ClientCapabilities
from mcpd.server.call import Call
from mcpd.server.principal import identity_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcpd.endpoint.access import Checked
    from mcpd.endpoint.endpoint import Endpoint
    from mcpd.endpoint.exchange import Admitted
    from mcpd.protocol.jsonrpc import RequestId
    from mcpd.protocol.requests import Meta
    from mcpd.protocol.revisions import Revision
    from mcpd.server.principal import Owner
    from mcpd.sessions.sessions import Session

logger: Final = logging.getLogger("mcpd.http")
_ALLOW: Final = (b"allow", b"POST, DELETE, OPTIONS")


class Legacy:
    """The legacy half of an endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Args: *endpoint*: the whole."""
        self._endpoint = endpoint
        self._rate = Rate(endpoint.settings.initialize_rate / 60) if endpoint.settings.initialize_rate else None
        self._events = endpoint.store.events if endpoint.settings.resumable else None
        self._streams = SessionStreams(endpoint)
        self._brief = min(1.0, endpoint.sessions.idle / 20)
        """Seconds by which a session may expire too early."""

    # ----- POST

    async def post(self, post: Admitted, message: Message, meta: Meta) -> None:
        """Answer a POST of one message.

        Raises:
          ProtocolError: it is refused; nothing was run and nothing created.
        """
        method, request_id = message.method, message.id
        if method == "initialize" and request_id is not jsonrpc.UNSET:
            # A client that lost its session may still send the old ID along: it is ignored.
            if self._endpoint.core.tracing:
                from mcpd.tracing import initialization  # noqa: PLC0415 - who does not trace has no need of it

                with initialization(message, post.exchange.headers):
                    await self._initialize(post, message)
            else:
                await self._initialize(post, message)
            return
        endpoint = self._endpoint
        began = endpoint.now()
        sessions, checked = endpoint.sessions, post.checked
        if sessions.at_hand is None or not checked.legacy or checked.session_id is None:
            session = await self._session(post)
        else:
            # The same without waiting: most requests come by here.
            identity = identity_of(post.principal)
            session = sessions.load_nowait(checked.session_id, identity, began)
            if session is None:
                raise _not_found()
        try:
            if method is jsonrpc.UNSET or request_id is jsonrpc.UNSET:
                await self._hear(session, message)
                await post.exchange.respond(202, post.checked.cors)
                return
            call = self._new_call(post, message, meta, session, post.exchange.scope)
            call.outlet = reply = self._reply(post, session, (call.id,))
            if session is None:
                await endpoint.run_call(call, reply, began)
                return
            session.live.calls.add(call)
            try:
                await endpoint.run_call(call, reply, began)
            finally:
                session.live.calls.discard(call)
        finally:
            if session is not None and (endpoint.now() - began > self._brief or not session.record.initialized):
                await self._release(session, began)

    async def post_batch(self, post: Admitted, batch: Sequence[Message | MessageError]) -> None:
        """Answer a POST of a JSON-RPC batch, which only 2025-03-26 has.

        Raises:
          ProtocolError: it is refused; nothing was run.
        """
        session = await self._session(post)
        if session is None or not session.revision.batches:
            raise ProtocolError(
                INVALID_REQUEST, "Batches are of 2025-03-26 only: send one message in each POST", http_status=400
            )
        if any(isinstance(message, Message) and message.method == "initialize" for message in batch):
            raise ProtocolError(INVALID_REQUEST, "initialize must not be part of a batch", http_status=400)
        endpoint = self._endpoint
        began = endpoint.now()
        ids = [message.id for message in batch if isinstance(message, Message) and message.is_request]
        reply = self._reply(post, session, cast("list[RequestId]", ids))
        answers: list[bytes] = []
        calls: list[Call] = []

        async def run(call: Call) -> None:
            session.live.calls.add(call)
            endpoint.calls.add(call)
            try:
                answer = await endpoint.dispatcher.answer(call)
            finally:
                endpoint.call_done(call)
                session.live.calls.discard(call)
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

    async def _initialize(self, post: Admitted, message: Message) -> None:
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

    async def _session(self, asked: Admitted) -> Session | None:
        """The session this exchange belongs to; None only where legacy clients are served without.

        Raises:
          ProtocolError: 404 for an unknown one, which another principal's is as well.
        """
        checked = asked.checked
        if not checked.legacy:
            self._check_fields(asked)
        if checked.session_id is None:
            return None
        session = await self._endpoint.sessions.load(checked.session_id, identity_of(asked.principal))
        if session is None:
            raise _not_found()
        return session

    def _check_fields(self, asked: Admitted) -> None:
        version = asked.checked.version
        if version is not None and version not in LEGACY and version not in MODERN:
            raise refusal(400, f"Unsupported MCP-Protocol-Version {version[:100]!r}; supported are {', '.join(LEGACY)}")
        if asked.checked.session_id is None and self._endpoint.settings.sessions:
            raise refusal(400, "Mcp-Session-Id is missing: initialize first and send the ID you get with each request")
        if asked.exchange.headers.repeated(b"mcp-session-id"):
            raise refusal(400, "Mcp-Session-Id stands more than once")

    async def _release(self, session: Session, began: float) -> None:
        """The exchange is over: the session's idle time counts from now, if that makes a difference."""
        brief = self._endpoint.now() - began <= self._brief
        if session.live.ended or (brief and session.is_initialized):
            return
        with trio.move_on_after(1.0, shield=True):
            try:
                await self._endpoint.sessions.renew(session)
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
        self,
        post: Admitted,
        message: Message,
        meta: Meta,
        session: Session | None,
        scope: trio.CancelScope | None = None,
    ) -> Call:
        record = None if session is None else session.record
        request_id: Any = message.id
        method: Any = message.method
        return Call(
            id=request_id,
            method=method,
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

    def _reply(self, post: Admitted, session: Session | None, ids: Sequence[RequestId]) -> Reply:
        checked = post.checked
        if session is None:
            return Reply(post.exchange, checked, self._endpoint, checked.cors, ids=ids)
        revision = session.revision
        log = self._events if revision.event_ids else None
        return Reply(post.exchange, checked, self._endpoint, checked.cors, session, log, revision.priming, ids)

    def _revision(self, checked: Checked) -> Revision:
        # "If the server does not receive an MCP-Protocol-Version header, and has no other way to identify the version
        # [...] the server SHOULD assume protocol version 2025-03-26" (2025-11-25, basic/transports).
        return LEGACY[checked.version or "2025-03-26"]

    # ----- DELETE

    async def delete(self, delete: Admitted) -> None:
        """End the session."""
        session = await self._session(delete)
        if session is None or not await self._endpoint.sessions.end(session):
            raise _not_found()
        await delete.exchange.respond(204, delete.checked.cors)

    # ----- GET

    async def get(self, get: Admitted) -> None:
        """The standalone stream, or with Last-Event-ID the rest of any stream of the session."""
        checked = get.checked
        if checked.session_id is None:
            # 405 is what tells clients that there is no stream here; several connect only on that.
            headers = [_ALLOW, *checked.cors]
            await self._endpoint.refuse(get.exchange, 405, "There is no stream without a session", headers)
            return
        session = await self._session(get)
        assert session is not None  # noqa: S101 - the ID is there
        if not checked.sse:
            raise refusal(406, "Accept must allow text/event-stream")
        began = self._endpoint.now()
        try:
            await self._streams.open(get, session, self._events if session.revision.event_ids else None)
        finally:
            await self._release(session, began)


def _not_found() -> ProtocolError:
    return refusal(404, "Session not found: it has ended or expired; initialize again")


_NO_CAPABILITIES: Final = ClientCapabilities()
