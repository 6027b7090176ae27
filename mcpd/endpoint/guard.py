"""Who may talk to the endpoint at all: Host, Origin and CORS, before anything else is looked at.

"Servers MUST validate the Origin header on all incoming connections to prevent DNS rebinding attacks"
(basic/transports, "Security Warning").
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

from mcpd.errors import INVALID_REQUEST, ProtocolError
from mcpd.protocol.headers import LOOPBACK, host_name, origin_host

if TYPE_CHECKING:
    from collections.abc import Collection

    from mcpd.endpoint.exchange import HeaderList
    from mcpd.protocol.headers import Headers

logger: Final = logging.getLogger("mcpd.guard")

_ALLOWED_HEADERS: Final = (
    "authorization",
    "content-type",
    "accept",
    "mcp-session-id",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
    "last-event-id",
    "traceparent",
    "tracestate",
    "baggage",
)
_PARAMETER: Final = re.compile(r"mcp-param-[!#$%&'*+.^_`|~0-9a-z-]{1,128}")
_ANY: Final = "*"


def refusal(status: int, message: str) -> ProtocolError:
    """Why a request may not come in, and with which HTTP status."""
    return ProtocolError(INVALID_REQUEST, message, http_status=status)


class Guard:
    """The rules for Host and Origin."""

    def __init__(self, *, loopback: bool, hosts: Collection[str] = (), origins: Collection[str] = ()) -> None:
        """
        Args:
          loopback: whether the server listens on a loopback address only: then no other Host is ours, unless it is
          listed.
          hosts: names (or ``name:port``) that Host may have; each also allows the origins ``https://name`` and ``http://name``.
            ``*`` allows any.
          origins: further origins as browsers write them. ``*`` allows any.
        """  # noqa: D205, D212 - the class says it
        self._check_host = (loopback or bool(hosts)) and _ANY not in hosts
        self._any_origin = _ANY in origins
        self._local = LOOPBACK if loopback else frozenset[str]()
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    def check_host(self, headers: Headers, forwarded: str | None = None) -> None:
        """Whether the request is for us; also by the Host that a trusted proxy was asked for, *forwarded*.

        Raises:
          ProtocolError: it is not.
        """
        if headers.repeated(b"host"):
            raise refusal(400, "The Host header stands more than once")
        host = headers.get(b"host")
        if host is None:
            raise refusal(400, "The Host header is missing")
        if not self._check_host:
            return
        for name in (host,) if forwarded is None else (host, forwarded):
            if not self._known(name):
                logger.warning("Refused Host %r: allow it with --allowed-host (MCPD_ALLOWED_HOST)", name[:200])
                raise refusal(421, "This server does not answer for that host")

    def check(self, headers: Headers, forwarded: str | None = None) -> HeaderList:
        """The CORS fields that every response to this request has.

        Raises:
          ProtocolError: the request may not come in.
        """
        self.check_host(headers, forwarded)
        origin = headers.get(b"origin")
        if origin is None:
            return []
        if headers.repeated(b"origin") or not self._trusted(origin):
            logger.warning("Refused Origin %r: allow it with --allowed-origin (MCPD_ALLOWED_ORIGIN)", origin[:200])
            raise refusal(403, "This origin is not allowed")
        return [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", b"Mcp-Session-Id, WWW-Authenticate, Retry-After"),
            (b"vary", b"Origin"),
        ]

    def preflight(self, headers: Headers) -> HeaderList:
        """The further fields of the answer to a CORS preflight."""
        asked = (headers.get(b"access-control-request-headers") or "").lower().split(",")
        mirrored = [name for name in map(str.strip, asked[:100]) if _PARAMETER.fullmatch(name)]
        return [
            (b"access-control-allow-methods", b"GET, POST, DELETE"),
            (b"access-control-allow-headers", ", ".join([*_ALLOWED_HEADERS, *mirrored]).encode()),
            (b"access-control-max-age", b"86400"),
        ]

    def _known(self, host: str) -> bool:
        found = host_name(host)
        if found is None:
            return False
        name, port = found
        return name in self._local or name in self._hosts or f"{name}:{port}" in self._hosts

    def _trusted(self, origin: str) -> bool:
        if self._any_origin or origin.lower() in self._origins:
            return True
        found = origin_host(origin)
        if found is None:
            return False
        _, name, port = found
        return name in self._local or name in self._hosts or f"{name}:{port}" in self._hosts
