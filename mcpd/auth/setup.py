"""From the settings to who may come in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpd.auth.authorization import Authorization
from mcpd.auth.resource import Resource
from mcpd.auth.static import read_tokens
from mcpd.errors import SettingError
from mcpd.server.principal import scopes_needed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mcpd.auth.verifier import TokenVerifier
    from mcpd.settings import Settings


def new_authorization(settings: Settings, verifier: TokenVerifier | None = None) -> Authorization | None:
    """What the settings ask for, with *verifier* in place of the built-in ones; None where everybody may come in.

    Raises:
      SettingError: settings that contradict each other, or need a package that is not installed.
    """
    issuer = settings.auth_issuer or None
    verifiers: list[TokenVerifier] = []
    resource: Resource | None = None
    if settings.auth_tokens:
        verifiers.append(read_tokens(settings.auth_tokens))
    if issuer is not None:
        resource = Resource(settings)
    if verifier is not None:
        verifiers.append(verifier)
    elif issuer is not None and resource is not None:
        verifiers.append(_asking(settings, issuer, settings.auth_audience or resource.identifiers))
    if not verifiers:
        for name in ("auth_audience", "auth_scope", "auth_implies", "auth_introspection_url"):
            if getattr(settings, name):
                raise SettingError(f"{name} needs auth_issuer, the authorization server that issues the tokens")
        return None
    try:
        scopes = scopes_needed(settings.auth_scope)
    except ValueError as exc:
        raise SettingError(f"auth_scope: {exc}") from None
    return Authorization(
        verifiers, scopes=scopes, implied=_implied(settings.auth_implies), issuer=issuer, resource=resource
    )


def _asking(settings: Settings, issuer: str, audiences: Iterable[str]) -> TokenVerifier:
    """The verifier that asks the authorization server: for its keys, or about each token."""
    try:
        from mcpd.auth.fetch import is_secure  # noqa: PLC0415 - only who authorizes needs the libraries
        from mcpd.auth.introspection import IntrospectionVerifier  # noqa: PLC0415
        from mcpd.auth.signed import JwtVerifier  # noqa: PLC0415
    except ImportError as exc:
        raise SettingError(f"auth_issuer needs the extra 'auth': pip install 'trio-mcpd[auth]' ({exc})") from None
    for name, url in (("auth_issuer", issuer), ("auth_introspection_url", settings.auth_introspection_url)):
        if url and not is_secure(url):
            raise SettingError(f"{name} must be an https URL, or http on this machine, not {url!r}")
    if not settings.auth_introspection_url:
        return JwtVerifier(issuer, audiences)
    return IntrospectionVerifier(
        settings.auth_introspection_url,
        issuer,
        audiences,
        client_id=settings.auth_introspection_client_id,
        client_secret=settings.auth_introspection_client_secret,
    )


def _implied(pairs: Iterable[str]) -> dict[str, frozenset[str]]:
    """For each scope all that it implies, through others as well."""
    direct: dict[str, set[str]] = {}
    for pair in pairs:
        broad, equals, narrow = pair.partition("=")
        try:
            scopes_needed([broad, narrow])
        except ValueError:
            equals = ""
        if not equals:
            raise SettingError(f"auth_implies: write 'broad=narrow', each one a scope, not {pair!r}")
        direct.setdefault(broad, set()).add(narrow)
    closed: dict[str, frozenset[str]] = {}
    for scope in direct:
        reached: set[str] = set()
        ahead = [scope]
        while ahead:
            for narrow in direct.get(ahead.pop(), ()):
                if narrow not in reached:
                    reached.add(narrow)
                    ahead.append(narrow)
        closed[scope] = frozenset(reached)
    return closed
