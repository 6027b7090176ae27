"""The public keys of an issuer: fetched when needed, kept for a while, and asked for anew when one is unknown."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import jwt
import trio
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from mcpd.auth.discovery import discover
from mcpd.errors import VerifierError

if TYPE_CHECKING:
    from mcpd.auth.fetch import Fetcher

logger: Final = logging.getLogger("mcpd.auth")

ALGORITHMS: Final[dict[str, tuple[str, frozenset[str]]]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", frozenset[str]())),
    "ES256": ("EC", frozenset({"P-256"})),
    "ES384": ("EC", frozenset({"P-384"})),
    "ES512": ("EC", frozenset({"P-521"})),
    "EdDSA": ("OKP", frozenset({"Ed25519", "Ed448"})),
    "Ed25519": ("OKP", frozenset({"Ed25519"})),  # its name since RFC 9864
}
"""What may sign a token, with its type of key and its curves. No HMAC, for a public key is no secret; never none."""
FRESH: Final = 3600.0
"""Seconds after which keys are fetched again: how long one that was withdrawn goes on to count."""
KEPT: Final = 6 * 3600.0
"""Seconds that keys still count when they cannot be fetched again."""
AGAIN: Final = 10.0
"""Seconds between two attempts to fetch, however many tokens name unknown keys."""
MIN_RSA_BITS: Final = 2048
_MAX_KEYS: Final = 100


class Key(NamedTuple):
    """A public key."""

    id: str | None
    type: str
    curve: str | None
    algorithm: str | None
    """The one it is for; None for any that it fits."""
    public: Any

    def fits(self, algorithm: str) -> bool:
        """Whether it may verify a signature of this algorithm."""
        kind, curves = ALGORITHMS[algorithm]
        return self.type == kind and self.algorithm in {None, algorithm} and (not curves or self.curve in curves)


class Keys:
    """The keys of one issuer."""

    def __init__(self, issuer: str, fetcher: Fetcher) -> None:
        """Args: *issuer*: whose; *fetcher*: gets them, and is open."""
        self._issuer = issuer
        self._fetcher = fetcher
        self._keys: list[Key] = []
        self._fetched: float | None = None
        self._tried: float | None = None
        self._failure: str | None = None
        self._lock = trio.Lock()

    async def find(self, key_id: str | None, algorithm: str) -> list[Key]:
        """The keys that may have signed a token; none when the issuer has no such key.

        Raises:
          VerifierError: that cannot be found out just now.
        """
        await trio.lowlevel.checkpoint()
        found = self._known(key_id, algorithm)
        if found and self._age() < FRESH:
            return found
        if found and self._age() < KEPT and self._lock.statistics().locked:
            return found  # they are being fetched for another token
        async with self._lock:
            # Whoever waited here may find that it has been done.
            found = self._known(key_id, algorithm)
            if not (found and self._age() < FRESH) and self._may_try():
                await self._fetch()
                found = self._known(key_id, algorithm)
        if found and self._age() < KEPT:
            return found
        if self._failure is not None:
            raise VerifierError(self._failure)
        return []

    def _known(self, key_id: str | None, algorithm: str) -> list[Key]:
        return [key for key in self._keys if (key_id is None or key.id == key_id) and key.fits(algorithm)]

    def _age(self) -> float:
        return float("inf") if self._fetched is None else trio.current_time() - self._fetched

    def _may_try(self) -> bool:
        return self._tried is None or trio.current_time() - self._tried >= AGAIN

    async def _fetch(self) -> None:
        # Counted from here, so that an attempt that takes long, or is cancelled, is one as well.
        self._tried = trio.current_time()
        self._failure = "the keys of the issuer have not been fetched yet"
        try:
            # The metadata too: its `jwks_uri` may have moved.
            metadata = await discover(self._fetcher, self._issuer)
            url = metadata.get("jwks_uri")
            if not isinstance(url, str):
                raise VerifierError(f"The metadata of {self._issuer} has no jwks_uri")
            fetched = await self._fetcher.get(url)
            if fetched is None or not isinstance(fetched.get("keys"), list):
                raise VerifierError(f"{url} is no JWK set")
        except VerifierError as exc:
            self._failure = str(exc)
            logger.warning("The keys that verify tokens cannot be fetched: %s", exc)
            return
        self._keys = read_keys(cast("list[Any]", fetched["keys"]))
        self._fetched = trio.current_time()
        self._failure = None
        logger.info("%s has %d keys for tokens", self._issuer, len(self._keys))


def read_keys(given: list[Any]) -> list[Key]:
    """Those of a JWK set's keys that can verify a token; others are left out.

    "Implementations SHOULD ignore JWKs within a JWK Set that use kty values that are not understood by them, that are
    missing required members, or for which values are out of the supported ranges" (RFC 7517, section 5).
    """
    keys = (_read_key(cast("dict[str, Any]", each)) for each in given[:_MAX_KEYS] if isinstance(each, dict))
    return [key for key in keys if key is not None]


def _read_key(data: dict[str, Any]) -> Key | None:
    kind, curve, algorithm, key_id = (_text(data.get(name)) for name in ("kty", "crv", "alg", "kid"))
    operations = data.get("key_ops", ["verify"])
    if kind not in {"RSA", "EC", "OKP"} or data.get("use", "sig") != "sig":
        return None
    if not isinstance(operations, list) or "verify" not in operations or algorithm not in {None, *ALGORITHMS}:
        return None
    if "d" in data:
        logger.warning("A key of the issuer is not used: its private part is public")
        return None
    try:
        # Its algorithm is our business: the library does not know all names.
        public = jwt.PyJWK({name: value for name, value in data.items() if name != "alg"}).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if isinstance(public, RSAPublicKey) and public.key_size < MIN_RSA_BITS:
        logger.warning("A key of the issuer is not used: RSA with %d bits is too weak", public.key_size)
        return None
    return Key(key_id, kind, curve, algorithm, public)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
