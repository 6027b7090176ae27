"""What trusted proxies say of a request: from whom it is, and how its client wrote our address.

Nobody else is believed: whoever connects directly can write any field (RFC 7239, section 8.1).
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Final, NamedTuple

from mcpd.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mcpd.endpoint.exchange import Exchange
    from mcpd.protocol.headers import Headers

logger: Final = logging.getLogger("mcpd.proxies")
UNIX: Final = "unix"
"""What stands for peers on a Unix socket, which have no address."""
_PAIR: Final = re.compile(r'\s*([A-Za-z]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s;,"]*))\s*')
_MAX: Final = 50
"""Proxies in a row that are looked at."""


@lru_cache(maxsize=1024)
def owner_of(address: str | None) -> str:
    """Who a client is that has nothing but its address.

    Of an IPv6 address only the /64 counts: that is the least that one customer gets (RFC 6177), with 2**64 addresses
    in it. An IPv4 address in IPv6's clothes is itself. Peers on a Unix socket have no address and are one client,
    unless a trusted proxy says whose their requests are.
    """
    if address is None:
        return UNIX
    if ":" not in address:
        return address
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    mapped = getattr(parsed, "ipv4_mapped", None)
    return str(mapped) if mapped is not None else str(ip_network((int(parsed), 64), strict=False))


class Seen(NamedTuple):
    """An exchange as its client sees it."""

    client: str | None
    """The address it came from; None on a Unix socket."""
    host: str | None = None
    """What its client has for Host, if a trusted proxy says so."""
    scheme: str | None = None
    """``http`` or ``https``, likewise."""


class Proxies:
    """The proxies that are believed."""

    def __init__(self, networks: Iterable[str]) -> None:
        """Args: *networks*: addresses or networks as ``10.0.0.0/8``, ``unix`` for all peers on a Unix socket.

        Raises:
          SettingError: one of them is no network.
        """
        self._networks: list[IPv4Network | IPv6Network] = []
        self._unix = False
        for network in networks:
            if network == UNIX:
                self._unix = True
                continue
            try:
                self._networks.append(ip_network(network, strict=False))
            except ValueError:
                raise SettingError(
                    f"trusted_proxy is an address or a network such as 10.0.0.0/8, or 'unix', not {network!r}"
                ) from None

    def seen(self, exchange: Exchange) -> Seen:
        """The exchange as its client sees it; without a trusted proxy, as we do."""
        peer = exchange.client or None
        if not (self._networks or self._unix) or not self._trusts(peer):
            return Seen(peer)
        headers = exchange.headers
        plain, standard = self._plain(headers, peer), self._standard(headers, peer)
        if plain is None or standard is None:
            return plain or standard or Seen(peer)
        if plain != standard:
            # A proxy writes one kind and lets the other through: which of them is the client's own is not known.
            logger.warning("Forwarded and X-Forwarded-* contradict each other: neither is believed")
            return Seen(peer)
        return plain

    def _trusts(self, address: str | None) -> bool:
        if address is None:
            return self._unix
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        mapped = getattr(parsed, "ipv4_mapped", None)
        return any((mapped or parsed) in network for network in self._networks)

    def _plain(self, headers: Headers, peer: str | None) -> Seen | None:
        """X-Forwarded-For, -Host and -Proto."""
        chain, host, scheme = (headers.get(b"x-forwarded-" + name) for name in (b"for", b"host", b"proto"))
        if chain is None and host is None and scheme is None:
            return None
        clients = [] if chain is None else [_address(each.strip()) for each in chain.split(",")[-_MAX:]]
        return Seen(self._first_stranger(clients, peer), _last(host), _scheme(_last(scheme)))

    def _standard(self, headers: Headers, peer: str | None) -> Seen | None:
        """Forwarded (RFC 7239)."""
        value = headers.get(b"forwarded")
        if value is None:
            return None
        elements = _elements(value)
        if elements is None:
            logger.warning("Forwarded is malformed, and not believed")
            return Seen(peer)
        clients = [_address(element.get("for", "")) for element in elements]
        nearest = elements[-1]
        return Seen(self._first_stranger(clients, peer), nearest.get("host"), _scheme(nearest.get("proto")))

    def _first_stranger(self, clients: list[str | None], peer: str | None) -> str | None:
        """The nearest address that is no trusted proxy: what stands before it, it may have made up."""
        found = peer
        for client in reversed(clients):
            if client is None:
                return found
            found = client
            if not self._trusts(client):
                return found
        return found


def _elements(value: str) -> list[dict[str, str]] | None:
    """The elements of a Forwarded field, the nearest proxy's last; None when it is malformed."""
    elements: list[dict[str, str]] = [{}]
    position = 0
    while True:
        match = _PAIR.match(value, position)
        if match is None:
            return None
        quoted = match[2]
        elements[-1][match[1].lower()] = match[3] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        position = match.end()
        if position == len(value):
            return elements[-_MAX:]
        if value[position] == ",":
            elements.append({})
        elif value[position] != ";":
            return None
        position += 1


def _address(text: str) -> str | None:
    """The address of ``192.0.2.1``, ``192.0.2.1:4711`` or ``[2001:db8::1]:4711``; None for what is no address."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ip_address(text))
    except ValueError:
        return None


def _last(value: str | None) -> str | None:
    """What the nearest proxy has added."""
    return None if value is None else value.rpartition(",")[2].strip()


def _scheme(value: str | None) -> str | None:
    lowered = None if value is None else value.lower()
    return lowered if lowered in {"http", "https"} else None
