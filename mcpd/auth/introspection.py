"""Opaque tokens: the authorization server is asked whose they are (RFC 7662)."""

from __future__ import annotations

import hashlib
import logging
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote_plus

import trio

from mcpd.auth.claims import LEEWAY, RefusedTokenError, Rules
from mcpd.auth.fetch import TIMEOUT, Fetcher
from mcpd.errors import VerifierError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from mcpd.server.principal import Principal

logger: Final = logging.getLogger("mcpd.auth")
REMEMBERED: Final = 30.0
"""Seconds that an answer counts: how long a token that was revoked goes on to work."""
MAX_REMEMBERED: Final = 4096
MAX_TOKEN: Final = 16 * 1024
AT_ONCE: Final = 20
"""Questions under way at the same time; whoever sends bad tokens in bulk waits for those."""


class IntrospectionVerifier:
    """Asks an authorization server. It implements `mcpd.auth.verifier.TokenVerifier`; open it with ``async with``."""

    def __init__(
        self,
        url: str,
        issuer: str,
        audiences: Iterable[str],
        *,
        client_id: str = "",
        client_secret: str = "",
        leeway: float = LEEWAY,
        remembered: float = REMEMBERED,
        fetcher: Fetcher | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
          url: the introspection endpoint.
          issuer: whose tokens these are.
          audiences: for whom a token must have been issued: one of these. The answer must name it (``aud``).
          client_id: how this server identifies itself there, with HTTP Basic.
          client_secret: its password.
          leeway: seconds that clocks may differ.
          remembered: seconds that a good answer counts, at most; a bad one is never kept.
          fetcher: asks.
          now: the wall clock.
        """  # noqa: D205, D212 - the class says it
        self._url = url
        self._rules = Rules(issuer, audiences, leeway=leeway)
        # "The client identifier is encoded using the application/x-www-form-urlencoded encoding algorithm [...] and the
        # encoded value is used as the username" (RFC 6749, section 2.3.1).
        self._credentials = (quote_plus(client_id), quote_plus(client_secret)) if client_id else None
        self._remembered = remembered
        self._fetcher = fetcher or Fetcher()
        self._now = now
        self._known: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()
        """By the token's hash: until when, on Trio's clock, and whose."""
        self._slots = trio.CapacityLimiter(AT_ONCE)

    async def __aenter__(self) -> Self:
        await self._fetcher.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._fetcher.__aexit__(kind, value, traceback)

    async def verify(self, token: str) -> Principal | None:
        """Whose the token is.

        Raises:
          VerifierError: the authorization server cannot be asked, or does not let us.
        """
        await trio.lowlevel.checkpoint()
        if len(token) > MAX_TOKEN:
            return None
        key = hashlib.sha256(token.encode()).digest()
        known = self._known.get(key)
        if known is not None and known[0] > trio.current_time():
            self._known.move_to_end(key)
            return known[1]
        self._known.pop(key, None)
        asked = trio.current_time()
        answer = await self._ask(token)
        if answer.get("active") is not True:
            return None
        try:
            now = self._now()
            principal = self._rules.principal(answer, now, introspected=True)
        except RefusedTokenError as exc:
            logger.info("A token was refused: %s", exc)
            return None
        expires = answer.get("exp")
        lasting = self._remembered if expires is None else min(self._remembered, float(expires) - now)
        if lasting > 0:
            self._known[key] = (asked + lasting, principal)
            while len(self._known) > MAX_REMEMBERED:
                self._known.popitem(last=False)
        return principal

    async def _ask(self, token: str) -> dict[str, Any]:
        form = {"token": token, "token_type_hint": "access_token"}
        try:
            with trio.fail_after(TIMEOUT):
                async with self._slots:
                    return await self._fetcher.post(self._url, form, self._credentials)
        except trio.TooSlowError:
            raise VerifierError(f"{self._url} is too slow") from None
