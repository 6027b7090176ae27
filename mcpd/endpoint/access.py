"""Who may come in over HTTP: proxies, Host and Origin, and authorization if there is any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from mcpd.auth.resource import public_url
from mcpd.endpoint.guard import Guard, refusal
from mcpd.endpoint.proxies import Proxies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcpd.auth.authorization import Authorization
    from mcpd.endpoint.exchange import Exchange, HeaderList
    from mcpd.endpoint.proxies import Seen
    from mcpd.server.principal import Principal
    from mcpd.settings import Settings

_JSON: Final = (b"content-type", b"application/json")
_ANYBODY: Final[HeaderList] = [(b"access-control-allow-origin", b"*")]


class Checked(NamedTuple):
    """An exchange that has passed Host and Origin."""

    seen: Seen
    """As its client sees it."""
    cors: HeaderList
    """Fields that every response to it has."""


class Access:
    """The checks of an endpoint, in their order."""

    def __init__(self, settings: Settings, authorization: Authorization | None, name: str) -> None:
        """
        Args:
          settings: hosts, origins and proxies.
          authorization: None lets everybody in.
          name: of the server, for people.
        """  # noqa: D205, D212 - the class says it
        hosts = settings.allowed_host
        if settings.public_url and (hosts or settings.on_loopback):
            # By that name a proxy asks for us; where any will do, this one need not be said.
            hosts = (*hosts, urlsplit(public_url(settings.public_url)).netloc)
        self.guard = Guard(loopback=settings.on_loopback, hosts=hosts, origins=settings.allowed_origin)
        self.proxies = Proxies(settings.trusted_proxy)
        self.authorization = authorization
        self._name = name

    def check(self, exchange: Exchange) -> Checked:
        """Whether the exchange may be looked at.

        Raises:
          ProtocolError: it may not: proxies, Host or Origin.
        """
        seen = self.proxies.seen(exchange)
        return Checked(seen, self.guard.check(exchange.headers, seen.host))

    async def admit(self, exchange: Exchange, seen: Seen) -> Principal | None:
        """Who is asking; None where everybody may.

        Raises:
          AccessError: nobody who may come in.
        """
        if self.authorization is None:
            return None
        return await self.authorization.check(exchange.headers, scheme=seen.scheme, host=seen.host)

    def challenge(self, exchange: Exchange, needed: Sequence[str]) -> HeaderList:
        """What tells a client to ask its user for further scopes."""
        if self.authorization is None:
            return []
        seen = self.proxies.seen(exchange)
        told = self.authorization.insufficient(exchange.headers, needed, scheme=seen.scheme, host=seen.host)
        return [(b"www-authenticate", told.encode())]

    # ----- The protected resource's metadata

    def describes(self, path: str) -> bool:
        """Whether the metadata is at *path*."""
        return self.authorization is not None and path in self.authorization.metadata_paths

    async def describe(self, exchange: Exchange) -> None:
        """Answer with the metadata: without authorization, and to every origin, for clients in browsers need it first.

        Raises:
          ProtocolError: Host is not ours, or the method is another one.
        """
        assert self.authorization is not None  # noqa: S101 - see describes
        seen = self.proxies.seen(exchange)
        self.guard.check_host(exchange.headers, seen.host)
        if exchange.method == "OPTIONS":
            await exchange.respond(204, [*self.guard.preflight(exchange.headers), *_ANYBODY])
            return
        if exchange.method not in {"GET", "HEAD"}:
            raise refusal(405, "Use GET")
        body = self.authorization.metadata(exchange.headers, self._name, scheme=seen.scheme, host=seen.host)
        await exchange.respond(200, [_JSON, *_ANYBODY], b"" if exchange.method == "HEAD" else body)
