"""Running a handler: async functions on Trio, plain ones in worker threads, and what their exceptions mean."""

from __future__ import annotations

import logging
import math
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, cast

import trio

from mcpd.errors import INTERNAL_ERROR, ProtocolError, StoreError, ToolError, only
from mcpd.server.call import CallEndedError

if TYPE_CHECKING:
    from mcpd.server.context import Context
    from mcpd.server.signature import Signature

logger: Final = logging.getLogger("mcpd.handlers")
_PASSES: Final = (Exception, trio.Cancelled, KeyboardInterrupt, CallEndedError)


def checked_timeout(timeout: float | None) -> float | None:
    """The seconds that a handler may take.

    Raises:
      ValueError: that is no time.
    """
    if timeout is not None and not 0 < timeout < math.inf:
        raise ValueError(f"timeout must be more than 0 seconds, or None for no limit, not {timeout!r}")
    return timeout


async def invoke(
    signature: Signature,
    arguments: Any,
    context: Context,
    limiter: trio.CapacityLimiter,
    timeout: float | None = None,
) -> Any:
    """Call the handler and return what it returns.

    A plain function runs in a thread, of which *limiter* allows so many at once. When its call is cancelled it runs to
    its end unobserved, and holds its place in *limiter* until then; if it is asking the client something, that raises
    `CallEndedError` in it at once.

    Raises:
      ToolError: it has taken longer than *timeout* seconds, and was cancelled.
      RuntimeError: it raised what is no `Exception` and would stop the server, as asyncio's cancellation.
    """
    if timeout is not None:
        with trio.move_on_after(timeout):
            return await invoke(signature, arguments, context, limiter)
        raise ToolError(f"It did not finish within the {timeout:g} s it may take")
    try:
        if signature.is_async:
            value = signature.call(arguments, context)
            # A plain wrapper around an async function may have returned something else.
            return await value if isawaitable(value) else value
        return await trio.to_thread.run_sync(
            signature.call, arguments, context, limiter=limiter, abandon_on_cancel=True
        )
    except BaseException as exc:
        if passes(exc):
            raise
        raise RuntimeError(f"The handler raised {type(only(exc)).__name__}") from exc


def passes(exc: BaseException) -> bool:
    """Whether what a handler raised goes on as it is; anything else would stop the server."""
    group = cast("BaseExceptionGroup[BaseException] | None", exc if isinstance(exc, BaseExceptionGroup) else None)
    return isinstance(exc, _PASSES) if group is None else group.split(_PASSES)[1] is None


def meant(exc: BaseException) -> ToolError | ProtocolError | None:
    """The one error that the handler meant its client to see, also out of the groups that its nurseries made of it."""
    exc = only(exc)
    if isinstance(exc, StoreError):
        logger.warning("A handler could not reach the store: %s", exc)
        return ProtocolError(INTERNAL_ERROR, "The store cannot be reached; try again", http_status=503)
    if isinstance(exc, ToolError | ProtocolError):
        forget_traceback(exc)
        return exc
    return None


def translated(what: str, exc: BaseException) -> ProtocolError:
    """The error response that a handler's exception becomes, where there is no ``isError``.

    Raise what this returns without keeping it: a name for it would tie exception, traceback and frame into a cycle, and
    keep the call alive until the garbage collector comes by.
    """
    error = meant(exc)
    if isinstance(error, ProtocolError):
        return error
    if error is not None:
        return ProtocolError(INTERNAL_ERROR, str(error))
    log_failure(what, exc)
    return ProtocolError(INTERNAL_ERROR, f"{what} failed with an internal error")


def log_failure(what: str, exc: BaseException) -> None:
    """The traceback of a handler's exception goes to the log, and nowhere else."""
    logger.error("%s failed", what, exc_info=exc)
    forget_traceback(exc)


def forget_traceback(exc: BaseException) -> None:
    """Let go of what *exc* has been through: an exception that a handler raises again and again outlives its calls."""
    exc.__traceback__ = exc.__context__ = exc.__cause__ = None
    if isinstance(exc, BaseExceptionGroup):
        for each in cast("BaseExceptionGroup[BaseException]", exc).exceptions:
            forget_traceback(each)
