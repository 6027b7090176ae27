"""How things are called in Redis."""

from __future__ import annotations

import binascii
import hashlib
import re
from typing import Final

_KIND: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")


class Names:
    """The names of one application's keys and channels. The braces put them all into one slot of a cluster."""

    __slots__ = ("_stem",)

    def __init__(self, prefix: str) -> None:
        """Args: *prefix*: what sets the application apart from others in the same Redis."""
        self._stem = f"{{{prefix}}}:"

    def index(self, kind: str) -> str:
        """The index of the records of a kind; ``:`` and a member follow for a record.

        Raises:
          ValueError: *kind* is not a short name in lower case, or one of ours.
        """
        if _KIND.fullmatch(kind) is None or kind in {"events", "bus"}:
            raise ValueError(f"{kind!r} is no kind of records; it takes a short name in lower case")
        return self._stem + kind

    @property
    def events(self) -> str:
        """The beginning of the event logs' names, and of the channels that tell of their events."""
        return self._stem + "events:"

    def channel(self, topic: str) -> str:
        """The channel of a topic of the bus."""
        return f"{self._stem}bus:{topic}"


def member(key: str) -> str:
    """A key as Redis gets to see it: 128 bits of a hash, 22 characters.

    Who can list Redis's keys learns no session ID from them. The IDs are random, so there is nothing to salt.
    """
    digest = hashlib.blake2b(key.encode(), digest_size=16).digest()
    return binascii.b2a_base64(digest, newline=False)[:22].decode("ascii")
