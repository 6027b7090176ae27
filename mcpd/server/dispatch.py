"""From a request to its one response: a handler runs under its call's cancel scope, and is answered for."""

from __future__ import annotations

import logging
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

import msgspec
import trio

from mcpd.errors import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_CLIENT_CAPABILITY,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    CapabilityError,
    ProtocolError,
    ScopeError,
    StoreError,
)
from mcpd.protocol.jsonrpc import encode_error, encode_result
from mcpd.server.background import unknown_method
from mcpd.server.call import CURRENT, CallEndedError
from mcpd.server.context import Context
from mcpd.server.invoke import forget_traceback
from mcpd.server.methods import LEGACY_METHODS, MODERN_METHODS, Handler
from mcpd.server.offer import CacheHint, Offer
from mcpd.server.seal import Sealer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcpd.protocol.revisions import Revision
    from mcpd.server.call import Call
    from mcpd.server.handles import HandleSource
    from mcpd.server.meter import Meter
    from mcpd.server.server import Server

S = TypeVar("S")
ServiceMethod: TypeAlias = "Callable[[S, Call], Awaitable[Any]]"
logger: Final = logging.getLogger("mcpd")
_DEFINED: Final = (HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION)
_NO_HINT: Final = CacheHint()
_STOPPED: Final = object()
"""The result of a handler that has none, for its call was stopped."""


class Answer(msgspec.Struct, frozen=True):
    """A request's response: its bytes, and what HTTP and the metrics want to know of it."""

    body: bytes
    status: int = 200
    """The HTTP status, where it can still be chosen."""
    code: int = 0
    """The code of the error it tells of; 0 for a result."""
    needed: tuple[str, ...] = ()
    """The scopes whose lack it tells of."""


class Dispatcher:
    """Answers the requests of one server. It keeps nothing of a request once that is answered."""

    def __init__(
        self,
        server: Server,
        *,
        read_only: bool = False,
        cache: CacheHint = _NO_HINT,
        sealer: Sealer | None = None,
        handles: HandleSource | None = None,
        meter: Meter | None = None,
    ) -> None:
        """
        Args:
          server: what is offered.
          read_only: offer only tools that say they are.
          cache: what modern clients are told of lists and resources.
          sealer: seals what a modern call wants to know again; by default with a key of its own.
          handles: where ``ctx.handles`` are.
          meter: counts requests and tools.
        """  # noqa: D205, D212 - the class says it
        self.server = server
        self.offer = Offer(server, read_only=read_only, cache=cache, sealer=sealer or Sealer())
        self.offer.meter = meter
        self._handles = handles
        self._meter = meter
        self._legacy: dict[str, Handler] = dict(LEGACY_METHODS)
        self._modern: dict[str, Handler] = dict(MODERN_METHODS)

    def extend(
        self, service: S, *, legacy: Mapping[str, ServiceMethod[S]], modern: Mapping[str, ServiceMethod[S]]
    ) -> None:
        """Answer further methods, each by a function of *service* and the call."""

        def bound(method: ServiceMethod[S]) -> Handler:
            return lambda _offer, call, _context: method(service, call)

        self._legacy |= {name: bound(method) for name, method in legacy.items()}
        self._modern |= {name: bound(method) for name, method in modern.items()}

    def knows(self, method: str, revision: Revision) -> bool:
        """Whether *method* is one of the revision's requests."""
        return method in (self._modern if revision.modern else self._legacy)

    async def answer(self, call: Call) -> Answer | None:
        """Run the request's handler and give its one response; None when it was cancelled and gets none.

        Whatever a handler does, this returns: only ``trio.Cancelled`` of a scope around it, and what is no Exception,
        goes through. (When the call was cancelled as well, that shows at the caller's next checkpoint.)
        """
        call.lifespan = self.offer.lifespan
        modern = call.revision.modern
        handler = (self._modern if modern else self._legacy).get(call.method)
        began = perf_counter()
        token = CURRENT.set((call.id, None if call.session is None else call.session.id))
        answer: Answer | None = None
        try:
            if handler is None:
                raise unknown_method(call.method, call.revision)
            context = Context(self.server, call, self._handles)
            if call.scope is None:
                result = await self._run_alone(handler, call, context)
            else:
                # It is around more than the call: to make, enter and leave one for each would cost as much as most
                # calls do. Once a call was cancelled in it it is used up, and who lent it has to make a new one.
                try:
                    result = await handler(self.offer, call, context)
                except BaseException as exc:
                    if not _says_stopped(exc, call.scope):
                        raise
                    result = _STOPPED
            if result is _STOPPED or (call.rounds is not None and call.rounds.open):
                # A handler that has swallowed the cancellation has asked all the same.
                answer = self._stopped(call)
            else:
                answer = Answer(encode_result(call.id, self.offer.complete(result) if modern else result))
        except CapabilityError as exc:
            # -32021 is a code of the modern era.
            answer = _error(call, exc if modern else ProtocolError(INVALID_PARAMS, exc.message))
        except ProtocolError as exc:
            answer = _error(call, exc)
        except StoreError as exc:
            logger.warning("%s: the store failed: %s", call.method, exc)
            away = ProtocolError(INTERNAL_ERROR, "The session store cannot be reached; try again", http_status=503)
            answer = _error(call, away)
        except Exception:
            logger.exception("%s failed", call.method)
            answer = _error(call, ProtocolError(INTERNAL_ERROR, "Internal error"))
        finally:
            call.ended = True
            CURRENT.reset(token)
            if call.asking:
                call.over()
            if self._meter is not None:
                outcome = "cancelled" if answer is None else "error" if answer.code else "ok"
                method = "unknown" if handler is None else call.method
                self._meter.request("modern" if modern else "legacy", method, outcome, perf_counter() - began)
        return answer

    async def _run_alone(self, handler: Handler, call: Call, context: Context) -> Any:
        """Run it in a scope of its own."""
        call.scope = scope = trio.CancelScope()
        if call.cancelled:
            scope.cancel()
        with scope:
            try:
                return await handler(self.offer, call, context)
            except BaseException as exc:
                if not _says_stopped(exc, scope):
                    raise
        return _STOPPED

    def _stopped(self, call: Call) -> Answer | None:
        """The answer of a call that was stopped before it had a result: its questions, or what stopped it."""
        if call.rounds is not None and call.rounds.open and not call.cancelled:
            return Answer(encode_result(call.id, self.offer.signed(call.rounds.result())))
        return None if call.answer is None else _error(call, call.answer)


def _says_stopped(exc: BaseException, scope: trio.CancelScope) -> bool:
    """Whether what a handler raised says that its call was stopped, and no more; raises what more it says.

    If a scope further out is cancelled as well, that shows at the next checkpoint.
    """
    stops = (CallEndedError, trio.Cancelled) if scope.cancel_called else CallEndedError
    if not isinstance(exc, BaseExceptionGroup):
        return isinstance(exc, stops)
    stopped, rest = cast("BaseExceptionGroup[BaseException]", exc).split(stops)
    if stopped is not None and rest is not None:
        raise rest
    return stopped is not None


def _in_era(error: ProtocolError, *, modern: bool) -> ProtocolError:
    """The error with a code that the era has: one that a handler raises may be of the other, or reserved.

    "MUST NOT use [...] -32020 to -32099 [...]" but for those the specification defines, neither -32002 nor -32042
    any more, and nothing is to be allocated from -32000 to -32019 (2026-07-28, basic/index, "Error codes").
    """
    if not modern:
        return error
    code = error.code
    if code == RESOURCE_NOT_FOUND:
        code = INVALID_PARAMS
    elif code not in _DEFINED and -32099 <= code <= -32000:
        code = INTERNAL_ERROR
    return error if code == error.code else ProtocolError(code, error.message, error.data)


def _error(call: Call, error: ProtocolError) -> Answer:
    forget_traceback(error)
    error = _in_era(error, modern=call.revision.modern)
    status = error.http_status or 200
    needed = error.needed if isinstance(error, ScopeError) else ()
    try:
        return Answer(encode_error(call.id, error), status, error.code, needed)
    except (TypeError, ValueError, RecursionError):
        logger.exception("%s: the data of an error cannot be sent", call.method)
        return Answer(encode_error(call.id, ProtocolError(error.code, error.message)), status, error.code)
