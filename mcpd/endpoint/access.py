"""Who may come in over HTTP: proxies, Host and Origin, and authorization if there is any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from mcpd.auth.resource import public_url
from mcpd.endpoint.exchange import JSON, Admitted
from mcpd.endpoint.guard import Guard, refusal
from mcpd.endpoint.proxies import Proxies, owner_of
from mcpd.protocol.headers import accepted, is_json
from mcpd.protocol.revisions import LEGACY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcpd.auth.authorization import Authorization
    from mcpd.endpoint.exchange import Exchange, HeaderList
    from mcpd.endpoint.proxies import Seen
    from mcpd.settings import Settings

_ANYBODY: Final[HeaderList] = [(b"access-control-allow-origin", b"*")]


class Checked(NamedTuple):
    """What the header fields of an exchange say, once it has passed Host and Origin."""

    client: str | None
    """The peer they came from."""
    seen: Seen
    """The exchange as its client sees it."""
    owner: str
    """On whose account it goes without authorization: its client's address."""
    cors: HeaderList
    """Fields that every response to it has."""
    json_fields: HeaderList
    """Fields of a response in JSON."""
    sends_json: bool
    """Whether the body is JSON in UTF-8."""
    json: bool
    """Whether the client accepts JSON."""
    sse: bool
    """Whether it accepts a stream."""
    version: str | None
    """``MCP-Protocol-Version``."""
    session_id: str | None
    """``Mcp-Session-Id``."""
    legacy: bool
    """Whether they are as all requests of a legacy session should have them: an ID, once, and no unknown version."""


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
        """Whether the exchange may be looked at. What its fields say is their memo from now on.

        Raises:
          ProtocolError: it may not: proxies, Host or Origin.
        """
        headers, client = exchange.headers, exchange.client
        seen = self.proxies.seen(exchange)
        cors = self.guard.check(headers, seen.host)
        version, session_id = headers.get(b"mcp-protocol-version"), headers.get(b"mcp-session-id")
        found = headers.memo = Checked(
            client,
            seen,
            owner_of(seen.client),
            cors,
            [JSON, *cors],
            is_json(headers.get(b"content-type")),
            *accepted(headers.get(b"accept")),
            version,
            session_id,
            session_id is not None
            and (version is None or version in LEGACY)
            and not headers.repeated(b"mcp-session-id"),
        )
        return found

    async def admit(self, exchange: Exchange, checked: Checked) -> Admitted:
        """Let in who is asking: with a valid access token, or anybody where there is no authorization.

        Raises:
          AccessError: nobody who may come in.
        """
        if self.authorization is None:
            return Admitted(exchange, checked, None, checked.owner)
        seen = checked.seen
        principal = await self.authorization.check(exchange.headers, scheme=seen.scheme, host=seen.host)
        return Admitted(exchange, checked, principal, principal.identity)

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
        await exchange.respond(200, [JSON, *_ANYBODY], b"" if exchange.method == "HEAD" else body)
