"""The header fields of bearer tokens: reading Authorization, writing WWW-Authenticate (RFC 6750, RFC 9728)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mcpd.errors import INTERNAL_ERROR, INVALID_REQUEST, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mcpd.protocol.headers import Headers

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_BEARER: Final = "bearer"


class AccessError(ProtocolError):
    """An exchange may not come in; *headers* say what would be needed."""

    def __init__(self, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(INTERNAL_ERROR if status >= 500 else INVALID_REQUEST, message, http_status=status)
        self.headers = headers


class MalformedError(Exception):
    """The Authorization field is none."""


def is_token(text: str) -> bool:
    """Whether *text* can be sent as a bearer token."""
    return _TOKEN.fullmatch(text) is not None


def bearer_token(headers: Headers) -> str | None:
    """The token of the request; None when there is none, or credentials of another scheme.

    Only from this field: "Access tokens MUST NOT be included in the URI query string" (2026-07-28,
    basic/authorization), and a form body is no JSON-RPC.

    Raises:
      MalformedError: it has credentials for Bearer that are no token, or several.
    """
    value = headers.get(b"authorization")
    if value is None:
        return None
    if headers.repeated(b"authorization"):
        raise MalformedError("Authorization stands more than once")
    scheme, _, token = value.partition(" ")
    if scheme.lower() != _BEARER:
        return None
    token = token.strip(" ")
    if not is_token(token):
        raise MalformedError("Authorization must be 'Bearer' and one token (RFC 6750)")
    return token


def challenge(
    *, metadata_url: str | None, scopes: Iterable[str] = (), error: str | None = None, description: str | None = None
) -> str:
    """A WWW-Authenticate value.

    Args:
      metadata_url: where the resource's metadata is, if it has any.
      scopes: what the request needs.
      error: ``invalid_token``, ``invalid_request`` or ``insufficient_scope``; None where no token was given.
      description: for people.
    """
    scope = " ".join(scopes)
    given = {
        "error": error,
        "error_description": description,
        "scope": scope or None,
        "resource_metadata": metadata_url,
    }
    parameters = ", ".join(f'{name}="{value}"' for name, value in given.items() if value is not None)
    return f"Bearer {parameters}" if parameters else "Bearer"
