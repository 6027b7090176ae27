"""From an issuer to its metadata (RFC 8414; OpenID Connect Discovery 1.0)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mcpd.errors import VerifierError

if TYPE_CHECKING:
    from mcpd.auth.fetch import Fetcher


def metadata_urls(issuer: str) -> list[str]:
    """Where an issuer's metadata may be, in the order in which clients look as well.

    "Any terminating '/' MUST be removed before inserting '/.well-known/' and the well-known URI path suffix between the
    host component and the path component" (RFC 8414, section 3.1); OpenID Connect appends it.
    """
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    found = [
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}/.well-known/openid-configuration{path}",
    ]
    if path:
        found.append(f"{origin}{path}/.well-known/openid-configuration")
    return found


async def discover(fetcher: Fetcher, issuer: str) -> dict[str, Any]:
    """The issuer's metadata.

    Raises:
      VerifierError: there is none, or it is somebody else's.
    """
    for url in metadata_urls(issuer):
        metadata = await fetcher.get(url)
        if metadata is not None:
            # "The issuer value returned MUST be identical to the authorization server's issuer identifier value into
            # which the well-known URI string was inserted" (RFC 8414, section 3.3).
            if metadata.get("issuer") != issuer:
                raise VerifierError(f"{url} is of issuer {metadata.get('issuer')!r:.200}, not {issuer!r} (auth_issuer)")
            return metadata
    raise VerifierError(f"{issuer} has no metadata (RFC 8414, OpenID Connect Discovery)")
