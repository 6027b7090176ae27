"""The check that every exchange passes before anything of it is read, looked up or made."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from mcpd.auth.challenge import AccessError, MalformedError, bearer_token, challenge
from mcpd.auth.verifier import opened
from mcpd.errors import VerifierError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from mcpd.auth.resource import Resource
    from mcpd.auth.verifier import TokenVerifier
    from mcpd.protocol.headers import Headers
    from mcpd.server.principal import Principal

logger: Final = logging.getLogger("mcpd.auth")
_LATER: Final = (b"retry-after", b"5")


class Authorization:
    """Who may come in, and what those are told who may not."""

    def __init__(
        self,
        verifiers: Sequence[TokenVerifier],
        *,
        scopes: tuple[str, ...] = (),
        implied: Mapping[str, frozenset[str]] | None = None,
        issuer: str | None = None,
        resource: Resource | None = None,
    ) -> None:
        """
        Args:
          verifiers: asked in this order; the first to know a token says whose it is.
          scopes: what every request needs.
          implied: for each scope all those that it implies.
          issuer: the authorization server that clients are sent to; None if tokens come from elsewhere.
          resource: what tokens are issued for, if there is an authorization server.
        """  # noqa: D205, D212 - the class says it
        self._verifiers = verifiers
        self._scopes = scopes
        self._implied = implied or {}
        self._issuer = issuer
        self._resource = resource
        self.metadata_paths: frozenset[str] = frozenset() if resource is None else resource.paths
        """Where clients find out about the authorization server."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep the verifiers open."""
        return opened(self._verifiers)

    async def check(self, headers: Headers, *, scheme: str | None = None, host: str | None = None) -> Principal:
        """Who is asking.

        Args:
          headers: of the request.
          scheme: how clients reach us, if a trusted proxy says so.
          host: under which name, likewise.

        Raises:
          AccessError: 401 without a valid token, 403 with too few scopes, 400 for an Authorization field that is none,
            503 when that cannot be found out just now.
        """
        where = self._metadata_url(headers, scheme, host)

        def refused(status: int, message: str, error: str | None) -> AccessError:
            told = challenge(metadata_url=where, scopes=self._scopes, error=error)
            return AccessError(status, message, (b"www-authenticate", told.encode()))

        try:
            token = bearer_token(headers)
        except MalformedError as exc:
            raise refused(400, str(exc), "invalid_request") from None
        if token is None:
            # "If the request lacks any authentication information [...], the resource server SHOULD NOT include an
            # error code" (RFC 6750, section 3.1).
            raise refused(401, "Authorization is needed: send a bearer token", None)
        try:
            principal = await self._verify(token)
        except VerifierError as exc:
            # Not 401: clients would throw a good token away.
            logger.warning("A token cannot be checked: %s", exc)
            raise AccessError(503, "Tokens cannot be checked just now; try again later", _LATER) from None
        if principal is None:
            raise refused(401, "The access token is invalid or has expired", "invalid_token")
        principal = self._with_implied(principal)
        if not principal.scopes.issuperset(self._scopes):
            raise refused(403, f"This needs the scopes: {' '.join(self._scopes)}", "insufficient_scope")
        return principal

    def insufficient(
        self, headers: Headers, needed: Sequence[str], *, scheme: str | None = None, host: str | None = None
    ) -> str:
        """The challenge of an operation that needs further scopes: all of them at once, with those of every request."""
        scopes = dict.fromkeys((*self._scopes, *needed))
        return challenge(
            metadata_url=self._metadata_url(headers, scheme, host), scopes=scopes, error="insufficient_scope"
        )

    def metadata(self, headers: Headers, name: str, *, scheme: str | None = None, host: str | None = None) -> bytes:
        """The protected resource's metadata (RFC 9728, section 2); *name* is for people."""
        assert self._resource is not None  # noqa: S101 - else there are no metadata_paths
        told: dict[str, object] = {
            "resource": self._resource.identifier(host or headers.get(b"host") or "", scheme),
            "authorization_servers": [self._issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": name,
        }
        if self._scopes:
            # Only what every request needs: "the minimal set of scopes necessary for basic functionality"; what a tool
            # needs besides, its challenge says.
            told["scopes_supported"] = list(self._scopes)
        return msgspec.json.encode(told)

    async def _verify(self, token: str) -> Principal | None:
        for verifier in self._verifiers:
            principal = await verifier.verify(token)
            if principal is not None:
                return principal
        return None

    def _with_implied(self, principal: Principal) -> Principal:
        more = frozenset[str]().union(*(self._implied.get(scope, frozenset()) for scope in principal.scopes))
        if more <= principal.scopes:
            return principal
        return msgspec.structs.replace(principal, scopes=principal.scopes | more)

    def _metadata_url(self, headers: Headers, scheme: str | None, host: str | None) -> str | None:
        if self._resource is None:
            return None
        return self._resource.metadata_url(self._resource.identifier(host or headers.get(b"host") or "", scheme))
