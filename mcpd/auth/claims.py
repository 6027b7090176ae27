"""What the claims of a token must say (RFC 9068, section 4; RFC 7662, section 2.2), and whom they speak of."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from mcpd.auth.resource import canonical
from mcpd.server.principal import Principal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LEEWAY: Final = 60.0
"""Seconds that clocks may differ."""
_LATEST: Final = 1e15
"""No time of a token is later; neither what is no number nor an integer that no float can hold is less."""


class RefusedTokenError(Exception):
    """Why a token is not accepted. For the log; a client only learns that it is not."""


class Rules:
    """What is asked of every token of one issuer."""

    def __init__(self, issuer: str, audiences: Iterable[str], *, leeway: float = LEEWAY) -> None:
        """
        Args:
          issuer: who must have issued it, exactly as it calls itself.
          audiences: for whom it must have been issued: one of these. Scheme and host of a URL may be in upper case.
          leeway: seconds that clocks may differ.
        """  # noqa: D205, D212 - the class says it
        self.issuer = issuer
        self.audiences = frozenset(map(canonical, audiences))
        self.leeway = leeway

    def principal(self, claims: Mapping[str, Any], now: float, *, introspected: bool = False) -> Principal:
        """Whom the claims speak of, at the wall-clock time *now*.

        An authorization server that was asked has checked issuer and expiry itself and need not repeat them, so with
        *introspected* they may be missing; what it does say must hold.

        Raises:
          RefusedTokenError: they do not hold.
        """
        issuer = claims.get("iss")
        if issuer != self.issuer and not (issuer is None and introspected):
            raise RefusedTokenError(f"its issuer is {_shown(issuer)}, not {self.issuer!r}")
        audiences = claims.get("aud")
        given = cast("Sequence[Any]", audiences) if isinstance(audiences, list) else [audiences]
        if not any(isinstance(each, str) and canonical(each) in self.audiences for each in given):
            known = ", ".join(sorted(map(repr, self.audiences)))
            raise RefusedTokenError(
                f"it was issued for {_shown(audiences)}, not for {known} (auth_audience, public_url)"
            )
        expires = claims.get("exp")
        if expires is None and not introspected:
            raise RefusedTokenError("it has no expiry")
        if expires is not None and not _number(expires, "exp") > now - self.leeway:
            raise RefusedTokenError("it has expired")
        begins = claims.get("nbf")
        if begins is not None and not _number(begins, "nbf") <= now + self.leeway:
            raise RefusedTokenError("it is not valid yet")
        subject = claims.get("sub")
        if not isinstance(subject, str) or not subject:
            raise RefusedTokenError("it has no subject")
        client = claims.get("client_id") or claims.get("azp")
        return Principal(
            self.issuer,
            subject,
            client if isinstance(client, str) else None,
            _scopes(claims.get("scope")) | _scopes(claims.get("scp")),
            MappingProxyType(dict(claims)),
            None if expires is None else expires + self.leeway,
        )


def _number(value: Any, claim: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LATEST:
        raise RefusedTokenError(f"its {claim} is no time")
    return value


def _scopes(value: Any) -> frozenset[str]:
    """Scopes as one string (RFC 9068), or as a list, as several authorization servers have them."""
    if isinstance(value, str):
        # At spaces only (RFC 6749, section 3.3): who looks at other white space sees scopes that its issuer did not.
        return frozenset(filter(None, value.split(" ")))
    if isinstance(value, list):
        return frozenset(each for each in cast("Sequence[Any]", value) if isinstance(each, str))
    return frozenset()


def _shown(value: Any) -> str:
    return repr(value)[:200]
