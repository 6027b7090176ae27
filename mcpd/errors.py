"""Every exception mcpd raises on purpose, and whose fault each one is.

`McpdError` is the root. Below it: `ProtocolError` (the peer asked for something that JSON-RPC or MCP
answers with an error), `ToolError` (a tool's message for the model), `StoreError` (a session store could
not do its work), `VerifierError` (tokens cannot be checked just now) and `SettingError` (the operator's mistake).
Foreign exceptions are turned into one of these at one border each and never travel further.
"""

from __future__ import annotations

from typing import Any, Final, cast

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
# Legacy revisions only: "resource not found" has a code of its own until 2025-11-25, and -32000 is what
# both official SDKs mean by "the connection is closed". A modern request never sees either.
RESOURCE_NOT_FOUND: Final = -32002
CONNECTION_CLOSED: Final = -32000
# 2026-07-28, basic/index, "Error codes".
HEADER_MISMATCH: Final = -32020
MISSING_CLIENT_CAPABILITY: Final = -32021
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022


class McpdError(Exception):
    """The root of mcpd's own exceptions."""


class ProtocolError(McpdError):
    """Becomes a JSON-RPC error response.

    Handlers may raise it to answer with an error of their own; application codes belong outside
    -32768..-32000 (JSON-RPC 2.0, section 5.1).

    Args:
      code: the JSON-RPC error code.
      message: one short sentence.
      data: anything msgspec can encode; sent as ``error.data``.
      http_status: the status of the HTTP response that carries it; None leaves the choice to the endpoint.
    """

    def __init__(self, code: int, message: str, data: Any = None, *, http_status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.http_status = http_status


class CapabilityError(ProtocolError):
    """The client did not declare a capability that the handler needs.

    On a modern request it is answered with -32021 and ``data.requiredCapabilities``
    (2026-07-28, basic/index); on a legacy session a tool's call ends with ``isError``.
    """

    def __init__(self, needed: dict[str, Any], *, what: str) -> None:
        super().__init__(
            MISSING_CLIENT_CAPABILITY,
            f"The client did not declare the {what} capability",
            {"requiredCapabilities": needed},
            http_status=400,
        )


class ClientError(ProtocolError):
    """The client answered a question (elicitation, sampling, roots) with an error, or not in time."""


class ScopeError(ProtocolError):
    """The principal does not hold the scopes that an operation needs.

    Over HTTP it is answered with 403 and a challenge that names all of them (2026-07-28, basic/authorization, "Scope
    Challenge Handling").

    Args:
      needed: all scopes of the operation.
    """

    def __init__(self, needed: tuple[str, ...]) -> None:
        super().__init__(INVALID_REQUEST, f"This needs the scopes: {' '.join(needed)}", http_status=403)
        self.needed = needed


class LimitError(ProtocolError):
    """A bound is reached, and nothing was done or created.

    Over HTTP it is answered with 429 (RFC 6585) where the bound is the client's own, with 503 where all clients share
    it, and with Retry-After.

    Args:
      message: whose bound, and what would help.
      limit: the setting that it is; sent as ``error.data.limit``, and named behind the message.
      own: whether it is the client's own.
      retry_after: seconds after which it may be tried again.
    """

    def __init__(self, message: str, *, limit: str, own: bool = False, retry_after: float = 5.0) -> None:
        super().__init__(
            INVALID_REQUEST if own else INTERNAL_ERROR,
            f"{message} ({limit})",
            {"limit": limit},
            http_status=429 if own else 503,
        )
        self.retry_after = retry_after


class ToolError(McpdError):
    """A tool's failure, told to the model: becomes a result with ``isError`` and this text."""


class StoreError(McpdError):
    """A store could not do what it promises; the request is answered with 503 and may be tried again."""


class StoreFullError(StoreError):
    """The cap is reached and every record is in use: nothing was created."""


class ShareFullError(StoreFullError):
    """The owner has its share, and each record of it is in use: nothing was created."""


class RecordExistsError(StoreError):
    """A record of this key is there already; it was not touched."""


class VerifierError(McpdError):
    """Tokens cannot be checked just now; the request is answered with 503 and may be tried again."""


class SettingError(McpdError):
    """A setting, an argument or an application that cannot be served; the text is for the operator."""


class ExchangeClosedError(McpdError):
    """The client of this HTTP exchange is gone; what was to be written reached nobody."""


class BodyTooLargeError(McpdError):
    """The request's body is larger than allowed; it was not read to its end."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"The request body is larger than {limit} bytes")
        self.limit = limit


def only(exc: BaseException) -> BaseException:
    """The one exception in groups of one, as nested nurseries make them; else *exc* itself."""
    found: BaseException = exc
    while isinstance(found, BaseExceptionGroup):
        inside = cast("BaseExceptionGroup[BaseException]", found).exceptions
        if len(inside) != 1:
            return exc
        found = inside[0]
    return found
