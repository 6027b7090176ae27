"""What the URL says: where Redis is, how to get in, and the few things that can be set.

    redis://[user[:password]@]host[:port][/db]              rediss:// for TLS
    unix:///path/of/socket                                  or redis+unix://
    redis+sentinel://[user[:password]@]host[:port],.../service[/db]     rediss+sentinel:// for TLS
    redis+cluster://[user[:password]@]host[:port],...                   rediss+cluster:// for TLS

A user name or password is percent-encoded where it has characters that a URL gives a meaning to. Options follow ``?``:

    prefix       how every key begins, in braces (mcpd)
    timeout      seconds that a command may take before it fails (0.8)
    db, username, password, client_name
    sentinel_username, sentinel_password
    event_bytes  how many bytes of events a session keeps for clients that resume a stream (1048576)
    event_keep   for how many seconds they outlive their session, if they come after its end (300)
    ssl_ca_certs, ssl_ca_path, ssl_certfile, ssl_keyfile, ssl_cert_reqs (required), ssl_check_hostname (true)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from mcpd.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

_PREFIX: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class Address:
    """One URL, taken apart. *login* and *tls* are arguments of redis-py's connections."""

    name: str
    """The URL without credentials and options."""
    kind: str
    """``direct``, ``unix``, ``sentinel`` or ``cluster``."""
    hosts: tuple[tuple[str, int], ...]
    path: str = ""
    """The socket's path, or Sentinel's name of the service."""
    prefix: str = "mcpd"
    timeout: float = 0.8
    event_bytes: int = 1024 * 1024
    event_keep: float = 300.0
    login: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    sentinel_login: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    tls: dict[str, Any] | None = field(default=None, repr=False)


def parse(url: str) -> Address:
    """Take a store URL apart.

    Raises:
      StoreError: it makes no sense; the text says why and never shows a password.
    """
    if "://" not in url:
        # `--store redis`: the one on this machine.
        url = f"{url.rstrip(':')}://"
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    kind = _KINDS.get(scheme)
    if kind is None:
        raise StoreError(f"The Redis store has no scheme {scheme!r}; it has {', '.join(_KINDS)}")
    if parts.fragment:
        raise StoreError("The Redis URL has a '#' in it; in a password it is written %23")
    userinfo, _, netloc = parts.netloc.rpartition("@")
    user, _, password = userinfo.partition(":")
    options = _options(parts.query)
    login: dict[str, Any] = {
        "username": unquote(user) or None,
        "password": unquote(password) or None,
        "client_name": "mcpd",
        **{name: options.pop(name) for name in ("username", "password", "client_name") if name in options},
    }
    sentinel_login = {
        name: options.pop(f"sentinel_{name}") for name in ("username", "password") if f"sentinel_{name}" in options
    }
    tls = {name: options.pop(name) for name in list(options) if name.startswith("ssl_")}
    if scheme.startswith("rediss"):
        tls.setdefault("ssl_cert_reqs", "required")
        tls.setdefault("ssl_check_hostname", tls["ssl_cert_reqs"] == "required")
    elif tls:
        raise StoreError(f"{next(iter(tls))!r} is for TLS: use rediss:// instead of redis:// in the URL")
    path = unquote(parts.path)
    database = options.pop("db", None)
    hosts: tuple[tuple[str, int], ...] = ()
    if kind == "unix":
        shown = path
        if netloc or not path:
            raise StoreError("A socket's URL has its absolute path after two slashes: unix:///run/redis/redis.sock")
    else:
        hosts = tuple(_host(host, kind) for host in (netloc or "127.0.0.1").split(","))
        shown = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts) + path
        path, in_path = _path(path, kind)
        if database is None:
            database = in_path
        if len(hosts) > 1 and kind == "direct":
            raise StoreError("One Redis has one host; several are for redis+sentinel:// and redis+cluster://")
        if kind == "cluster" and database:
            raise StoreError("A cluster has only database 0")
    return Address(
        name=f"{scheme}://{shown}",
        kind=kind,
        hosts=hosts,
        path=path,
        login={**login, "db": database or 0},
        sentinel_login=sentinel_login,
        tls=tls if scheme.startswith("rediss") else None,
        **options,
    )


def _host(text: str, kind: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, "26379" if kind == "sentinel" else "6379"
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise StoreError(f"The Redis URL has {port[:20]!r} for a port; a port is a number from 1 to 65535")
    return unquote(host.removeprefix("[").removesuffix("]")) or "127.0.0.1", int(port)


def _path(path: str, kind: str) -> tuple[str, int | None]:
    words = [word for word in path.split("/") if word]
    service = ""
    if kind == "sentinel":
        if not words:
            raise StoreError("A Sentinel URL names the service it watches: redis+sentinel://host:26379/mymaster")
        service = words.pop(0)
    if not words:
        return service, None
    if len(words) > 1:
        raise StoreError(f"The Redis URL has {path!r} for a path; it takes one number, the database")
    return service, _number("db", int)(words[0])


def _options(query: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        read = _OPTIONS.get(name)
        if read is None:
            raise StoreError(f"The Redis URL has no option {name!r}; known are {', '.join(_OPTIONS)}")
        found[name] = read(value)
    return found


def _number(name: str, of: type[int | float], least: float = 0) -> Callable[[str], Any]:
    def read(value: str) -> int | float:
        try:
            number = of(value)
        except ValueError:
            number = of(-1)
        if not least <= number < 1e12:
            raise StoreError(f"The Redis URL has {name}={value[:40]!r}; it takes a number from {least:g}")
        return number

    return read


def _flag(name: str) -> Callable[[str], bool]:
    def read(value: str) -> bool:
        if value.lower() not in _TRUE | _FALSE:
            raise StoreError(f"The Redis URL has {name}={value[:40]!r}; it takes true or false")
        return value.lower() in _TRUE

    return read


def _prefix(value: str) -> str:
    if _PREFIX.fullmatch(value) is None:
        raise StoreError(f"The Redis URL has prefix={value[:80]!r}; it takes up to 64 of A-Z a-z 0-9 _ . : -")
    return value


def _requirement(value: str) -> str:
    if value not in {"none", "optional", "required"}:
        raise StoreError(f"The Redis URL has ssl_cert_reqs={value[:40]!r}; it takes required, optional or none")
    return value


_KINDS: Final = {
    "redis": "direct",
    "rediss": "direct",
    "unix": "unix",
    "redis+unix": "unix",
    "redis+sentinel": "sentinel",
    "rediss+sentinel": "sentinel",
    "redis+cluster": "cluster",
    "rediss+cluster": "cluster",
}
_OPTIONS: Final[dict[str, Callable[[str], Any]]] = {
    "prefix": _prefix,
    "timeout": _number("timeout", float, 0.01),
    "db": _number("db", int),
    "username": str,
    "password": str,
    "client_name": str,
    "sentinel_username": str,
    "sentinel_password": str,
    "event_bytes": _number("event_bytes", int, 1024),
    "event_keep": _number("event_keep", float, 1),
    "ssl_ca_certs": str,
    "ssl_ca_path": str,
    "ssl_certfile": str,
    "ssl_keyfile": str,
    "ssl_cert_reqs": _requirement,
    "ssl_check_hostname": _flag("ssl_check_hostname"),
}
