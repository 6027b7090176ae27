"""The protected resource: what tokens must have been issued for, and where clients read about it (RFC 9728)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from mcpd.errors import SettingError
from mcpd.protocol.headers import LOOPBACK

if TYPE_CHECKING:
    from mcpd.settings import Settings

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
_PORTS: Final = {"http": 80, "https": 443}
# "All URIs consist of [...] a very limited set of characters" (RFC 3986, section 2). The library would leave out line
# ends, and make a K of the sign for Kelvin: what an issuer has told apart would be the same here.
_VISIBLE: Final = re.compile(r"[\x21-\x7e]*")


def canonical(uri: str) -> str:
    """The form in which two identifiers of a resource are compared.

    Scheme and host in lower case, no default port, no slash at the end ("implementations SHOULD accept uppercase scheme
    and host components", 2026-07-28, basic/authorization). What is no http(s) URL stands for itself.
    """
    parts = _split(uri)
    if parts is None or parts.scheme not in _PORTS or not parts.hostname or parts.fragment or "@" in parts.netloc:
        return uri
    query = f"?{parts.query}" if parts.query else ""
    return _origin(parts) + parts.path.rstrip("/") + query


class Resource:
    """The server as a protected resource."""

    def __init__(self, settings: Settings) -> None:
        """Raises SettingError for a public URL that is none, or is missing where others than this machine may ask."""
        self._path = settings.path.rstrip("/")
        self._scheme = "https" if settings.tls_certfile else "http"
        self._url: str | None = None
        if settings.public_url:
            self._url = public_url(settings.public_url)
            self.identifiers = frozenset({self._url})
            public_path = urlsplit(self._url).path
        elif settings.on_loopback:
            # Which names a client uses is not known, but there are not many. The port is ours, not what a Host field
            # says: else a token for another server of this machine would do.
            self.identifiers = frozenset(
                canonical(f"{self._scheme}://{name}:{settings.port}{self._path}") for name in LOOPBACK
            )
            public_path = self._path
        else:
            raise SettingError(
                "authorization needs public_url, the URL that clients use for the MCP endpoint, for tokens must have "
                "been issued for it: --public-url https://mcp.example.com/mcp"
            )
        paths = {WELL_KNOWN, WELL_KNOWN + self._path, WELL_KNOWN + public_path}
        self.paths = frozenset(paths | {path + "/" for path in paths})
        """Where its metadata is: at the root, and for the path inside and outside a proxy."""

    def identifier(self, host: str, scheme: str | None) -> str:
        """The canonical URI for a client that uses *host*, and *scheme* if a trusted proxy says so."""
        return self._url or canonical(f"{scheme or self._scheme}://{host}{self._path}")

    def metadata_url(self, identifier: str) -> str:
        """Where the metadata of the resource is: between host and path (RFC 9728, section 3.1)."""
        parts = urlsplit(identifier)
        return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path}"


def public_url(url: str) -> str:
    """The canonical form of what ``public_url`` is set to.

    Raises:
      SettingError: it is no URL of an endpoint.
    """
    parts = _split(url)
    if parts is None or parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment:
        raise SettingError(f"public_url is an http(s) URL without query and fragment, not {url!r}")
    if parts.username is not None:
        raise SettingError("public_url must not carry credentials")
    return canonical(url)


def _split(uri: str) -> SplitResult | None:
    if _VISIBLE.fullmatch(uri) is None:
        return None
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return None
    return parts


def _origin(parts: SplitResult) -> str:
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    port = "" if parts.port in {None, _PORTS[parts.scheme]} else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}"
