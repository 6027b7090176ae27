"""``requestState``: what a modern call wants to know again when it is retried, sealed against its own client.

The client carries it, so it is attacker-controlled (2026-07-28, basic/patterns/mrtr, "Server Requirements"). It is
encrypted and authenticated (ChaCha20-Poly1305, RFC 8439), and bound to who asked, to the method, the name and the
arguments, and to a time.
"""

# No `from __future__ import annotations`: msgspec reads these annotations at run time.
import base64
import binascii
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from mcpd.errors import INVALID_PARAMS, ProtocolError

_VERSION: Final = b"mcpd.state.1"
_KEY_ID: Final = 4
_NONCE: Final = 12
MIN_KEY: Final = 16
"""Characters a key of the operator must have."""


class State(msgspec.Struct, array_like=True):
    """What travels."""

    expires: float
    """Wall-clock time; replicas agree on no other."""
    answers: dict[str, bytes] = {}
    """Results of questions answered in earlier rounds, as JSON, by key and a digest of what was asked."""
    done: dict[str, bytes] = {}
    """What `Context.once` has made, as JSON, by key."""
    asked: dict[str, str] = {}
    """Digests of the last round's questions, by key; those without a key of their own have it in their name."""


class Sealer:
    """Seals and opens states with a ring of keys: the first one seals, all of them open."""

    def __init__(self, keys: Sequence[str] = (), *, ttl: float = 3600.0, now: Callable[[], float] = time.time) -> None:
        """
        Args:
          keys: secrets, the newest first; without any, one of this process, which no other replica can open.
          ttl: seconds within which a call must be retried.
          now: the wall clock.

        Raises:
          ValueError: a key is too short to be a secret.
        """  # noqa: D205, D212 - the class says it
        for key in keys:
            if len(key) < MIN_KEY:
                raise ValueError(
                    f"A state key needs at least {MIN_KEY} characters; make one with `openssl rand -hex 32`"
                )
        secrets = [hashlib.sha256(key.encode()).digest() for key in keys] or [os.urandom(32)]
        self._keys = {hashlib.sha256(b"id" + secret).digest()[:_KEY_ID]: secret for secret in secrets}
        self.shared = bool(keys)
        self._ttl = ttl
        self._now = now

    def seal(self, state: State, binding: bytes) -> str:
        """The state as text; *binding* is what `binding` made of the request."""
        state.expires = self._now() + self._ttl
        key_id, secret = next(iter(self._keys.items()))
        nonce = os.urandom(_NONCE)
        sealed = _cipher(secret).encrypt(nonce, msgspec.msgpack.encode(state), binding)
        return base64.urlsafe_b64encode(key_id + nonce + sealed).decode()

    def open(self, text: str, binding: bytes) -> State:
        """The state that was sealed for a request of the same *binding*.

        Raises:
          ProtocolError: -32602, always the same, whatever is wrong with it.
        """
        try:
            raw = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
            if base64.urlsafe_b64encode(raw).decode() != text:  # there is one way to write it
                raise ValueError
            secret = self._keys[raw[:_KEY_ID]]
            nonce, sealed = raw[_KEY_ID : _KEY_ID + _NONCE], raw[_KEY_ID + _NONCE :]
            state = msgspec.msgpack.decode(_cipher(secret).decrypt(nonce, sealed, binding), type=State)
        except (ValueError, KeyError, RecursionError, binascii.Error, _tampered()):
            raise _refused() from None
        if state.expires < self._now():
            raise _refused()
        return state


def binding(owner: tuple[str, str] | None, method: str, params: dict[str, Any]) -> bytes:
    """What a state is bound to: everything of the request that the retry must repeat, and *owner*, who makes it."""
    same = {key: value for key, value in params.items() if key not in {"_meta", "inputResponses", "requestState"}}
    salient = msgspec.json.encode([owner, method, same], order="deterministic")
    return _VERSION + hashlib.sha256(salient).digest()


def _refused() -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, "Invalid requestState: call again without it")


# The library costs 40 ms and some megabytes to import, and only servers that ask their users something need it.
def _cipher(secret: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305  # noqa: PLC0415

    return ChaCha20Poly1305(secret)


def _tampered() -> type[Exception]:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415

    return InvalidTag
