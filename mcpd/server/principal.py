"""Who is asking, as authorization found out, and what a part of the server asks of them."""

# No `from __future__ import annotations`: msgspec reads these annotations at run time.
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from mcpd.errors import ScopeError

if TYPE_CHECKING:
    from mcpd.server.call import Call

# "scope-token = 1*( %x21 / %x23-5B / %x5D-7E )" (RFC 6749, section 3.3).
_SCOPE: Final = re.compile(r"[\x21\x23-\x5B\x5D-\x7E]+")


Owner: TypeAlias = tuple[str, str] | str
"""On whose account something goes: the principal's identity, or without authorization the client's address. "" is
nobody's: on stdio and in-process there is only one client."""


class Principal(Struct, frozen=True):
    """Who is asking: the user, or the service, that an access token was issued for.

    Never the token itself, nor anything it could be made from.
    """

    issuer: str
    """Who vouches for it: the authorization server's issuer identifier."""
    subject: str
    """Its name there; the issuer never gives it to another."""
    client_id: str | None = None
    """The OAuth client that acts for it, if the token says so."""
    scopes: frozenset[str] = frozenset()
    """What it may do, with all that these scopes imply."""
    claims: Mapping[str, Any] = {}
    """All that the issuer says, as received."""
    expires_at: float | None = None
    """Until when its token is accepted, in seconds of the wall clock; None if that is not known. Then it is asked for
    again: a stream that it has opened ends."""

    @property
    def identity(self) -> tuple[str, str]:
        """Issuer and subject: what all that outlives a request is bound to. It stays when the token is renewed."""
        return self.issuer, self.subject

    def __repr__(self) -> str:
        """Without the claims, which say more of a person than a log should."""
        return f"Principal({self.issuer!r}, {self.subject!r})"


def identity_of(principal: Principal | None) -> tuple[str, str] | None:
    """What everything that outlives a request is bound to; None where everybody may ask."""
    return None if principal is None else principal.identity


def scopes_needed(scopes: Iterable[str]) -> tuple[str, ...]:
    """The scopes that a tool, resource or prompt asks for, each once.

    Raises:
      ValueError: one of them is no scope, or ``offline_access``.
    """
    if isinstance(scopes, str):
        raise ValueError(f"scopes is a list of scopes, not {scopes!r}; write [{scopes!r}]")  # noqa: TRY004 - as documented
    needed = tuple(dict.fromkeys(scopes))
    for scope in needed:
        if _SCOPE.fullmatch(scope) is None:
            raise ValueError(f"{scope!r} is no scope: it is of visible ASCII without '\"', '\\' and spaces")
        if scope == "offline_access":
            # The specification: "refresh tokens are not a resource requirement" (2026-07-28, basic/authorization).
            raise ValueError("offline_access is between a client and its authorization server; do not ask for it")
    return needed


def check_scopes(call: "Call", needed: tuple[str, ...]) -> None:
    """Let the call go on if its principal holds all scopes *needed*.

    On stdio and in-process there is no authorization: who starts the server is who uses it. Over HTTP nobody holds a
    scope that no authorization has granted.

    Raises:
      ScopeError: it does not.
    """
    if not needed:
        return
    principal = call.principal
    if principal is None:
        if call.headers is not None:
            raise ScopeError(needed)
    elif not principal.scopes.issuperset(needed):
        raise ScopeError(needed)
