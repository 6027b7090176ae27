"""The endpoint: every HTTP exchange comes in here.

The order of the checks is the order in which a stranger may learn something: path, Host and Origin, method, who is
asking, headers, body; only then is a session looked up or made. Every refusal is a JSON-RPC error, and none leaves
anything behind.

    exchange -> Endpoint -+- GET /health, /ready, /.well-known/oauth-protected-resource
                          +- POST   -> one message or batch -> modern.py or legacy.py -> Reply
                          +- GET    -> legacy.py: a stream, or resuming one
                          +- DELETE -> legacy.py: the end of a session
"""

from __future__ import annotations

import logging
import time
from contextlib import asynccontextmanager, nullcontext, suppress
from math import ceil
from typing import TYPE_CHECKING, Final

import trio

from mcpd.auth.challenge import AccessError
from mcpd.endpoint.access import Access
from mcpd.endpoint.exchange import JSON, Admitted
from mcpd.endpoint.heartbeats import Heartbeats
from mcpd.endpoint.legacy import Legacy
from mcpd.endpoint.modern import Modern
from mcpd.endpoint.operations import Operations
from mcpd.endpoint.places import Places
from mcpd.endpoint.reply import Reply
from mcpd.endpoint.stream import EventStream
from mcpd.errors import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    BodyTooLargeError,
    ExchangeClosedError,
    LimitError,
    ProtocolError,
    StoreError,
)
from mcpd.protocol import envelope, jsonrpc, requests
from mcpd.sessions.leases import Leases
from mcpd.sessions.sessions import Sessions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from mcpd.auth.authorization import Authorization
    from mcpd.core import Core
    from mcpd.endpoint.access import Checked
    from mcpd.endpoint.exchange import Exchange, HeaderList
    from mcpd.protocol.jsonrpc import RequestId
    from mcpd.server.call import Call
    from mcpd.server.dispatch import Answer
    from mcpd.server.principal import Principal
    from mcpd.sessions.live import Closable
    from mcpd.settings import Settings

logger: Final = logging.getLogger("mcpd.http")
_LATER: Final = (b"retry-after", b"5")
_TRY_AGAIN: Final = (429, 503)
_ALLOW: Final = (b"allow", b"GET, POST, DELETE, OPTIONS")
_LAST_WORDS: Final = 5.0
"""Seconds in which the client of a cancelled call has to take its answer."""


class Endpoint:
    """One MCP endpoint of one server on one store."""

    def __init__(self, core: Core, authorization: Authorization | None = None) -> None:
        """
        Args:
          core: what is served, on which store, with which bounds.
          authorization: who may come in; None lets everybody.
        """  # noqa: D205, D212 - the class says it
        settings = core.settings
        self.core = core
        self.dispatcher = core.dispatcher
        self.store = core.store
        self.settings: Settings = settings
        self.subscriptions = core.subscriptions
        self.sessions = Sessions(
            core.store,
            idle=settings.session_idle,
            initialization=settings.initialization_timeout,
            capacity=settings.max_sessions,
            each=settings.per_principal("sessions"),
            meter=core.meter,
            memory=core.memory,
            forget_tasks=core.tasks.forget,
        )
        self.leases = Leases(core.store, keep=settings.session_idle)
        self._one_era = settings.era != "both"
        self.retry = settings.retry
        self.draining = False
        self.now = trio.current_time
        """The same time for less, once the endpoint runs."""
        self.calls: set[Call] = set()
        """Calls in flight in this process."""
        self.streams: set[Closable] = set()
        """Streams that only the client or a drain ends: GET and listen."""
        self.call_places = Places("calls", settings, core.meter)
        self.stream_places = Places("streams", settings, core.meter)
        self._heartbeats = Heartbeats(settings.heartbeat)
        self._quiet: dict[Reply, float] = {}
        self._none_quiet: trio.Event | None = None
        """Where who watches them waits for the first one."""
        self.access = Access(settings, authorization, core.server.info.title or core.server.info.name)
        path = settings.path.rstrip("/")
        self._paths = frozenset({path or "/", path + "/"})
        self._legacy = Legacy(self)
        self._modern = Modern(self)
        self.operations = Operations(self, {})
        """The operators' pages on this port."""
        self._nursery: trio.Nursery | None = None
        self._drained: trio.Event | None = None

    # ----- Running

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Serve exchanges while this is open; a background task that fails ends it, for a server must not limp."""
        authorization = self.access.authorization
        verifiers = nullcontext() if authorization is None else authorization.running()
        async with verifiers, self.core.running() as nursery:
            await nursery.start(self.sessions.run)
            await nursery.start(self.leases.run)
            nursery.start_soon(self._watch_quiet, nursery)
            nursery.start_soon(self._heartbeats.run)
            self._nursery = nursery
            self.now = trio.lowlevel.current_clock().current_time
            try:
                yield
            finally:
                self._nursery = None

    @property
    def is_running(self) -> bool:
        """Whether `running` is open."""
        return self._nursery is not None

    async def drain(self) -> None:
        """Be no longer ready, end the open streams cleanly, and wait for the calls in flight.

        After ``drain_timeout`` seconds they are cancelled and answered so.
        """
        self.draining = True
        for stream in list(self.streams):
            stream.finish()
        if not self.store.shared:
            # They end with this process, and no connection is accepted any more.
            with suppress(StoreError):
                self.core.meter.sessions_ended["shutdown"] = await self.sessions.records.count()
        if self.calls:
            self._drained = trio.Event()
            with trio.move_on_after(self.settings.drain_timeout):
                await self._drained.wait()
        for call in list(self.calls):
            call.cancel(ProtocolError(INTERNAL_ERROR, "The server is shutting down"))

    def end_with_token(self, principal: Principal | None, stream: EventStream, end: Callable[[], object]) -> None:
        """When the token that opened the stream is no longer accepted, *end* it: its client comes with another one."""
        if principal is not None and principal.expires_at is not None:
            stream.end_at(trio.current_time() + principal.expires_at - time.time(), end)

    def new_stream(self, exchange: Exchange, kind: str) -> EventStream:
        """A stream of the exchange, bounded as the settings say; *kind* is what it counts as."""
        settings = self.settings
        return EventStream(
            exchange,
            kind=kind,
            counts=self.core.meter.streams,
            heartbeats=self._heartbeats,
            max_buffer=settings.max_buffer,
            write_timeout=settings.write_timeout,
        )

    def start_stream(self, stream: EventStream, headers: HeaderList) -> None:
        """Let a task of the endpoint write the stream."""
        if self._nursery is None:
            stream.give_up()
        else:
            self._nursery.start_soon(stream.run, headers)

    # ----- Exchanges

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one exchange. It raises nothing but ``trio.Cancelled``."""
        cors: HeaderList = []
        request_id: RequestId | None = None
        try:
            if exchange.path not in self._paths:
                await self._elsewhere(exchange)
                return
            access = self.access
            checked: Checked | None = exchange.headers.memo
            if checked is None or checked.client != exchange.client:
                checked = access.check(exchange)
            cors = checked.cors
            if exchange.method != "POST":
                await self._other(exchange, checked)
                return
            post = (
                Admitted(exchange, checked, None, checked.owner)
                if access.authorization is None
                else await access.admit(exchange, checked)
            )
            if not checked.sends_json:
                await self.refuse(exchange, 415, "Content-Type must be application/json in UTF-8", cors)
                return
            if not checked.json and not checked.sse:
                await self.refuse(exchange, 406, "Accept must allow application/json or text/event-stream", cors)
                return
            body = exchange.body_nowait(self.settings.max_body)
            if body is None:
                body = await exchange.body(self.settings.max_body)
            # Nearly every body begins with its brace.
            batch = None if body.startswith(b"{") else jsonrpc.decode_batch(body)
            if batch is not None and self.settings.era != "modern":
                await self._legacy.post_batch(post, batch)
                return
            message = jsonrpc.decode(body)
            request_id = None if message.id is jsonrpc.UNSET else message.id
            meta = requests.read_meta(message.params) if requests.may_have_meta(body) else requests.NO_META
            modern = (meta is not requests.NO_META or not checked.legacy) and envelope.is_modern(meta, checked.version)
            if self._one_era:
                envelope.check_era(self.settings.era, message, modern=modern)
            if modern:
                await self._modern.post(post, message, meta)
            else:
                await self._legacy.post(post, message, meta)
        except ExchangeClosedError:
            pass
        except BodyTooLargeError as exc:
            await self.refuse(exchange, 413, f"{exc}; raise --max-body (MCPD_MAX_BODY) if that is too small", cors)
        except jsonrpc.MessageError as exc:
            await self.error(exchange, exc.id, exc, cors)
        except AccessError as exc:
            await self.error(exchange, None, exc, [*exc.headers, *cors])
        except ProtocolError as exc:
            await self.error(exchange, request_id, exc, cors)
        except StoreError as exc:
            logger.warning("The store failed: %s", exc)
            why = "The session store cannot be reached; try again later"
            error = ProtocolError(INTERNAL_ERROR, why, http_status=503)
            await self.error(exchange, request_id, error, cors)
        except Exception:
            logger.exception("%s %s failed", exchange.method, exchange.path)
            await self.refuse(exchange, 500, "Internal error", cors, code=INTERNAL_ERROR)

    async def _elsewhere(self, exchange: Exchange) -> None:
        """What is not at the endpoint's path."""
        path = exchange.path
        if self.operations.serves(path):
            await self.operations(exchange)
        elif self.access.describes(path):
            await self.access.describe(exchange)
        else:
            await self.refuse(exchange, 404, f"Nothing is at {path[:200]!r}; MCP is at {self.settings.path!r}", [])

    async def _other(self, exchange: Exchange, checked: Checked) -> None:
        """All methods but POST."""
        method, cors = exchange.method, checked.cors
        if method == "OPTIONS":
            await exchange.respond(204, [*self.access.guard.preflight(exchange.headers), _ALLOW, *cors])
        elif method == "GET" and self.settings.era != "modern":
            await self._legacy.get(await self.access.admit(exchange, checked))
        elif method == "DELETE" and self.settings.era != "modern":
            await self._legacy.delete(await self.access.admit(exchange, checked))
        else:
            # "HTTP GET or DELETE to the MCP endpoint: respond with 405" (2026-07-28, streamable-http).
            allow = _ALLOW if self.settings.era != "modern" else (b"allow", b"POST, OPTIONS")
            await self.refuse(exchange, 405, f"The method {method} is not allowed", [allow, *cors])

    async def refuse(
        self,
        exchange: Exchange,
        status: int,
        message: str,
        headers: Sequence[tuple[bytes, bytes]],
        *,
        code: int = INVALID_REQUEST,
    ) -> None:
        """Answer with an HTTP status and a JSON-RPC error that belongs to no request."""
        body = jsonrpc.encode_error(None, ProtocolError(code, message))
        await exchange.respond(status, [JSON, *headers], b"" if exchange.method == "HEAD" else body)

    async def error(
        self, exchange: Exchange, request_id: RequestId | None, error: ProtocolError, cors: HeaderList
    ) -> None:
        """Answer with a JSON-RPC error, and the HTTP status that it asks for."""
        status = error.http_status or 400
        headers = [JSON, *cors]
        if isinstance(error, LimitError):
            headers.append((b"retry-after", b"%d" % ceil(error.retry_after)))
        elif status == 503 and all(name != b"retry-after" for name, _ in cors):
            headers.append(_LATER)
        await exchange.respond(status, headers, jsonrpc.encode_error(request_id, error))

    # ----- Calls

    async def run_call(self, call: Call, reply: Reply, now: float) -> None:
        """Run one request's handler, which began at *now*, and send its response.

        Raises:
          LimitError: too many calls are in flight; nothing was run.
        """
        self.call_places.take(call.owner)
        self.calls.add(call)
        self._quiet[reply] = now + self.settings.stream_after
        if self._none_quiet is not None:
            self._none_quiet.set()
        try:
            try:
                answer = await self.dispatcher.answer(call)
            finally:
                self._quiet.pop(reply, None)
            lent = reply.exchange.scope
            if lent is not None and (call.cancelled or call.rounds is not None) and lent.cancel_called:
                reply.exchange.use_up()
                with trio.move_on_after(_LAST_WORDS, shield=True):
                    await self._answer(reply, answer)
            elif answer is not None and not answer.code and reply.ends_whole():
                await reply.exchange.respond(200, reply.checked.json_fields, answer.body)
            else:
                await self._answer(reply, answer)
        finally:
            self.call_places.leave(call.owner)
            self.call_done(call)

    async def _answer(self, reply: Reply, answer: Answer | None) -> None:
        if answer is not None and answer.needed:
            await reply.refuse(answer, self.access.challenge(reply.exchange, answer.needed))
        elif answer is not None and answer.status in _TRY_AGAIN:
            await reply.refuse(answer, [_LATER])
        else:
            await reply.answer(answer, 200 if answer is None else answer.status)

    def call_done(self, call: Call) -> None:
        """The call is no longer in flight; a drain may be waiting for that."""
        self.calls.discard(call)
        if self._drained is not None and not self.calls:
            self._drained.set()

    async def _watch_quiet(self, nursery: trio.Nursery) -> None:
        # One task for all calls: whose response has not begun within `stream_after` becomes a stream. They stand in the
        # order of their beginning, so only the first ones have to be looked at.
        while True:
            if not self._quiet:
                self._none_quiet = trio.Event()
                await self._none_quiet.wait()
                self._none_quiet = None
            await trio.sleep(min(0.25, max(0.01, self.settings.stream_after)))
            now = trio.current_time()
            due: list[Reply] = []
            for reply, deadline in self._quiet.items():
                if deadline > now:
                    break
                due.append(reply)
            for reply in due:
                if self._quiet.pop(reply, None) is not None:
                    # Each for itself: with a store that is slow, the last one would wait for all before it.
                    nursery.start_soon(_go_stream, reply)
            del due
            reply = None  # type: ignore[assignment]  # a name that outlives the loop would keep the last reply alive


async def _go_stream(reply: Reply) -> None:
    try:
        await reply.go_stream()
    except StoreError as exc:
        logger.warning("A stream could not be logged: %s", exc)
    except Exception:
        logger.exception("A response could not become a stream")
