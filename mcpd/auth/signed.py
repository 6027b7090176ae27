"""Tokens that an issuer has signed: JWTs (RFC 7519, RFC 9068), verified here by the issuer's public keys."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final, Self

import jwt
import msgspec
from jwt.algorithms import get_default_algorithms

from mcpd.auth.claims import LEEWAY, RefusedTokenError, Rules
from mcpd.auth.fetch import Fetcher
from mcpd.auth.keys import ALGORITHMS, Keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from mcpd.server.principal import Principal

logger: Final = logging.getLogger("mcpd.auth")
MAX_TOKEN: Final = 16 * 1024
"""Characters a token may have."""
_TRIES: Final = 8
"""Keys that are tried for a token that names none."""
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt", "application/jwt"})
_jws: Final = jwt.PyJWS(algorithms=list(ALGORITHMS))
if "Ed25519" not in get_default_algorithms():
    _jws.register_algorithm("Ed25519", _jws.get_algorithm_by_name("EdDSA"))


class JwtVerifier:
    """Verifies JWTs of one issuer. It implements `mcpd.auth.verifier.TokenVerifier`; open it with ``async with``."""

    def __init__(
        self,
        issuer: str,
        audiences: Iterable[str],
        *,
        leeway: float = LEEWAY,
        fetcher: Fetcher | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
          issuer: its identifier, exactly as it stands in its metadata and tokens. Its keys are found by discovery.
          audiences: for whom a token must have been issued: one of these.
          leeway: seconds that clocks may differ.
          fetcher: fetches metadata and keys.
          now: the wall clock.
        """  # noqa: D205, D212 - the class says it
        self._rules = Rules(issuer, audiences, leeway=leeway)
        self._fetcher = fetcher or Fetcher()
        self._keys = Keys(issuer, self._fetcher)
        self._now = now

    async def __aenter__(self) -> Self:
        await self._fetcher.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._fetcher.__aexit__(kind, value, traceback)

    async def verify(self, token: str) -> Principal | None:
        """Whose the token is; None for one that is not valid, or no JWT.

        Raises:
          VerifierError: the issuer's keys cannot be fetched.
        """
        try:
            algorithm, key_id = _header(token)
        except RefusedTokenError as exc:
            logger.debug("A token was refused: %s", exc)
            return None
        keys = await self._keys.find(key_id, algorithm)
        payload = _payload(token, algorithm, [key.public for key in keys[:_TRIES]])
        if payload is None:
            logger.debug("A token was refused: no key of the issuer has signed it")
            return None
        try:
            return self._rules.principal(_claims(payload), self._now())
        except RefusedTokenError as exc:
            # Its issuer did sign it, so nobody can flood the log with these; an operator wants to know.
            logger.info("A token was refused: %s", exc)
            return None


def _header(token: str) -> tuple[str, str | None]:
    """Algorithm and key of a token that may be worth verifying."""
    if len(token) > MAX_TOKEN or token.count(".") != 2:
        raise RefusedTokenError("it is no JWT")
    try:
        header = _jws.get_unverified_header(token)
    except jwt.PyJWTError as exc:
        raise RefusedTokenError(f"its header is wrong ({type(exc).__name__})") from None
    algorithm, key_id, kind = header.get("alg"), header.get("kid"), header.get("typ")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise RefusedTokenError("its algorithm is none that may sign a token")
    if "crit" in header or "b64" in header:
        # "If any of the listed extension header parameters are not understood and supported by the recipient, then the
        # JWS is invalid" (RFC 7515, section 4.1.11); here none is.
        raise RefusedTokenError("its header has extensions")
    if kind is not None and (not isinstance(kind, str) or kind.lower() not in _TYPES):
        # Others the issuer has signed as well: proofs, logout tokens (RFC 8725, section 3.11).
        raise RefusedTokenError("it is a JWT of another type")
    return algorithm, key_id


def _payload(token: str, algorithm: str, keys: Iterable[Any]) -> bytes | None:
    """What one of the keys has signed."""
    for key in keys:
        try:
            payload: bytes = _jws.decode(token, key=key, algorithms=[algorithm])
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
        return payload
    return None


def _claims(payload: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(payload, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RefusedTokenError("its claims are no JSON object") from None
