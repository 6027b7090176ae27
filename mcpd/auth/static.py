"""Bearer tokens from a file, for set-ups too small for an authorization server."""

from __future__ import annotations

import hashlib
import hmac
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from mcpd.auth.challenge import is_token
from mcpd.errors import SettingError
from mcpd.server.principal import Principal, scopes_needed

if TYPE_CHECKING:
    from collections.abc import Iterable

ISSUER: Final = "static"
"""What a principal of such a token has for an issuer."""
MIN_TOKEN: Final = 32
"""Characters a token must have."""
_HASHED: Final = "sha256:"
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class StaticTokens:
    """A fixed list of tokens, of which only the hashes are kept. It implements `mcpd.auth.verifier.TokenVerifier`."""

    def __init__(self, entries: Iterable[tuple[str, Principal]]) -> None:
        """Args: *entries*: the SHA-256 of each token in hexadecimal, and whose it is."""
        self._entries = [(bytes.fromhex(digest), principal) for digest, principal in entries]

    async def verify(self, token: str) -> Principal | None:
        """Whose the token is."""
        await trio.lowlevel.checkpoint()
        digest = hashlib.sha256(token.encode()).digest()
        found: Principal | None = None
        for known, principal in self._entries:
            # All of them, so that the time tells nothing.
            if hmac.compare_digest(known, digest):
                found = principal
        return found


def read_tokens(path: str) -> StaticTokens:
    """The tokens of a file: on each line a subject, its token, and the scopes it holds, with spaces between.

    ``#`` begins a comment. In place of a token there may be ``sha256:`` and its hash, so that the file is no secret. A
    subject may have several tokens, each on a line of its own, to change from one to the other.

    Raises:
      SettingError: the file cannot be read, is empty, or a line is wrong.
    """
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeError) as exc:
        raise SettingError(f"auth_tokens: {path} cannot be read: {getattr(exc, 'strerror', None) or exc}") from None
    entries: dict[str, Principal] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if words:
            digest, principal = _entry(words, f"auth_tokens: {path}, line {number}")
            if digest in entries:
                raise SettingError(f"auth_tokens: {path}, line {number}: the same token stands twice")
            entries[digest] = principal
    if not entries:
        raise SettingError(f"auth_tokens: {path} has no token; write a line 'subject token scopes...'")
    return StaticTokens(entries.items())


def _entry(words: list[str], where: str) -> tuple[str, Principal]:
    # The messages must not repeat a token.
    if len(words) == 1:
        raise SettingError(f"{where}: write a subject, its token, and its scopes if any")
    subject, token, *scopes = words
    if token.startswith(_HASHED):
        digest = token.removeprefix(_HASHED).lower()
        if _DIGEST.fullmatch(digest) is None:
            raise SettingError(f"{where}: after 'sha256:' there are 64 hexadecimal digits")
    elif len(token) < MIN_TOKEN:
        raise SettingError(
            f"{where}: a token needs at least {MIN_TOKEN} characters; make one with `openssl rand -hex 32`"
        )
    elif not is_token(token):
        raise SettingError(f"{where}: a token is of A-Z, a-z, 0-9 and '-._~+/', with '=' only at its end")
    else:
        digest = hashlib.sha256(token.encode()).hexdigest()
    try:
        granted = frozenset(scopes_needed(scopes))
    except ValueError as exc:
        raise SettingError(f"{where}: {exc}") from None
    return digest, Principal(ISSUER, subject, scopes=granted)
