"""What one owner may have of the records of a store."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from mcpd.ports import Share
from mcpd.protocol.jsonrpc import encode

if TYPE_CHECKING:
    from mcpd.server.principal import Owner


def share_of(owner: Owner, capacity: int | None) -> Share | None:
    """What *owner* may have of the records of some kind; None for nobody's, and where there is no bound.

    A store gets to see a hash of who it is.
    """
    if not owner or capacity is None:
        return None
    digest = hashlib.blake2b(encode(owner), digest_size=9).digest()
    return Share(base64.urlsafe_b64encode(digest).decode("ascii"), capacity)
