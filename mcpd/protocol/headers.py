"""HTTP header fields as MCP needs them: a small multi-map, and the rules for Accept, Content-Type, Host and Origin."""

from __future__ import annotations

import base64
import binascii
import re
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SENTINEL: Final = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)
# "[...] 255 octets or less" (RFC 1035, section 2.3.4)
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]{1,255}\]|[A-Za-z0-9._-]{1,255})(?::([0-9]{1,5}))?")
_ORIGIN: Final = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Headers:
    """Header fields by lower-case name. Values are text, without the white space around them (RFC 9110, 5.5)."""

    __slots__ = ("_fields", "_repeated", "memo")

    def __init__(self, fields: Iterable[tuple[bytes, bytes]]) -> None:
        """Args: *fields*: names in lower case, and values, in the order received."""
        self._fields: dict[bytes, bytes] = {}
        self._repeated: set[bytes] | None = None
        self.memo: Any = None
        """For whoever judges the fields: what it found. Clients send the same ones again and again, and where a front
        notices, it gives the judge the same object."""
        for name, value in fields:
            if name in self._fields:
                self._repeated = self._repeated or set()
                self._repeated.add(name)
                self._fields[name] += b", " + value
            else:
                self._fields[name] = value

    @classmethod
    def unique(cls, fields: dict[bytes, bytes]) -> Headers:
        """Of fields none of which was there more than once; the dict is taken over."""
        headers = cls(())
        headers._fields = fields
        return headers

    def replaced(self, name: bytes, value: bytes) -> Headers:
        """The same fields, none of which is repeated, but for this one, on which no memo depends."""
        headers = Headers.unique(self._fields | {name: value})
        headers.memo = self.memo
        return headers

    def get(self, name: bytes) -> str | None:
        """The value, several of one name joined by a comma (RFC 9110, 5.3), or None."""
        value = self._fields.get(name)
        return None if value is None else value.decode("latin-1").strip(" \t")

    @property
    def any_repeated(self) -> bool:
        """Whether any field was there more than once."""
        return self._repeated is not None

    def repeated(self, name: bytes) -> bool:
        """Whether the field was there more than once."""
        return self._repeated is not None and name in self._repeated

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Names and values as text."""
        for name, value in self._fields.items():
            yield name.decode("latin-1"), value.decode("latin-1").strip(" \t")


# What clients send in these fields are a few constants; whoever sends others only makes them slower for himself. Not
# many are kept, for each may be as long as a head.
@lru_cache(maxsize=32)
def accepted(accept: str | None) -> tuple[bool, bool]:
    """Whether an Accept field allows application/json, and text/event-stream.

    Media ranges count, and no field allows everything (RFC 9110, 12.5.1). A quality of 0 refuses.
    """
    if accept is None:
        return True, True
    found = [False, False]
    rank = [-1, -1]
    for part in accept.split(","):
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        refused = any(p.replace(" ", "") in {"q=0", "q=0.0", "q=0.00", "q=0.000"} for p in parameters)
        for index, (full, family) in enumerate(
            (("application/json", "application/*"), ("text/event-stream", "text/*"))
        ):
            specific = 2 if media == full else 1 if media == family else 0 if media == "*/*" else -1
            # The most specific range that matches decides.
            if specific > rank[index]:
                rank[index], found[index] = specific, not refused
    return found[0], found[1]


@lru_cache(maxsize=32)
def is_json(content_type: str | None) -> bool:
    """Whether a Content-Type field says JSON in UTF-8. Other parameters are nobody's business."""
    if content_type is None:
        return False
    media, *parameters = (piece.strip().lower() for piece in content_type.split(";"))
    if media != "application/json":
        return False
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in {"utf-8", "utf8", "us-ascii"}:
            return False
    return True


@lru_cache(maxsize=32)
def host_name(host: str) -> tuple[str, str | None] | None:
    """Name (lower case, brackets kept) and port of a Host field; None when it is no host."""
    match = _HOST.fullmatch(host)
    return None if match is None else (match[1].lower(), match[2])


def is_loopback(host: str) -> bool:
    """Whether a host or an address, without a port, is this machine's own and nobody else's."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def origin_host(origin: str) -> tuple[str, str, str | None] | None:
    """Scheme, host and port of an Origin field; None for ``null``, files and what is no http(s) origin."""
    match = _ORIGIN.fullmatch(origin.lower())
    return None if match is None else (match[1], match[2], match[3])


def unwrap(value: str) -> str | None:
    """The text of a header value that may stand in a base64 sentinel; None when the base64 is not canonical.

    ``=?base64?...?=`` carries UTF-8 text that a header could not; what lacks prefix or suffix is a literal
    (2026-07-28, basic/transports/streamable-http, "Value encoding").
    """
    match = _SENTINEL.fullmatch(value)
    if match is None:
        return value
    try:
        raw = base64.b64decode(match[1].encode("ascii"), validate=True)
        if base64.b64encode(raw).decode() != match[1]:
            return None
        return raw.decode()
    except (binascii.Error, UnicodeError):
        return None
