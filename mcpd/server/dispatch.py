"""From a request to its one response: a handler runs under its call's cancel scope, and is answered for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from mcpd.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, CapabilityError, ProtocolError, StoreError
from mcpd.protocol.jsonrpc import encode_error, encode_result
from mcpd.server.context import Context
from mcpd.server.methods import LEGACY_METHODS, MODERN_METHODS, Handler
from mcpd.server.offer import CacheHint, Offer
from mcpd.server.seal import Sealer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcpd.protocol.revisions import Revision
    from mcpd.server.call import Call
    from mcpd.server.context import HandleSource
    from mcpd.server.server import Server

S = TypeVar("S")
ServiceMethod: TypeAlias = "Callable[[S, Call], Awaitable[Any]]"
logger: Final = logging.getLogger("mcpd")
_NO_HINT: Final = CacheHint()


class Answer(NamedTuple):
    """A request's response: its bytes, and what HTTP and the metrics want to know of it."""

    body: bytes
    status: int = 200
    """The HTTP status, where it can still be chosen."""
    code: int = 0
    """The code of the error it tells of; 0 for a result."""


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
    ) -> None:
        """
        Args:
          server: what is offered.
          read_only: offer only tools that say they are.
          cache: what modern clients are told of lists and resources.
          sealer: seals what a modern call wants to know again; by default with a key of its own.
          handles: where ``ctx.handles`` are.
        """  # noqa: D205, D212 - the class says it
        self.server = server
        self.offer = Offer(server, read_only=read_only, cache=cache, sealer=sealer or Sealer())
        self._handles = handles
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
        goes through.
        """
        call.lifespan = self.offer.lifespan
        modern = call.revision.modern
        handler = (self._modern if modern else self._legacy).get(call.method)
        try:
            if handler is None:
                return _error(
                    call,
                    ProtocolError(
                        METHOD_NOT_FOUND, f"Unknown method {call.method!r}", http_status=404 if modern else None
                    ),
                )
            with call.scope:
                result = await handler(self.offer, call, Context(self.server, call, self._handles))
                return Answer(encode_result(call.id, self.offer.complete(result, call.revision)))
            # Only our own scope's cancellation comes here.
            if call.rounds is not None and call.rounds.open and not call.cancelled:
                return Answer(encode_result(call.id, self.offer.signed(call.rounds.result())))
            return None if call.answer is None else _error(call, call.answer)
        except CapabilityError as exc:
            # -32021 is a code of the modern era.
            return _error(call, exc if modern else ProtocolError(INVALID_PARAMS, exc.message))
        except ProtocolError as exc:
            return _error(call, exc)
        except StoreError as exc:
            logger.warning("%s: the store failed: %s", call.method, exc)
            return _error(
                call, ProtocolError(INTERNAL_ERROR, "The session store cannot be reached; try again", http_status=503)
            )
        except Exception:
            logger.exception("%s failed", call.method)
            return _error(call, ProtocolError(INTERNAL_ERROR, "Internal error"))


def _error(call: Call, error: ProtocolError) -> Answer:
    status = error.http_status or 200
    try:
        return Answer(encode_error(call.id, error), status, error.code)
    except (TypeError, ValueError, RecursionError):
        logger.exception("%s: the data of an error cannot be sent", call.method)
        return Answer(encode_error(call.id, ProtocolError(error.code, error.message)), status, error.code)
