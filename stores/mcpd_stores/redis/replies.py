"""Redis's errors: what they mean, and what to do about them."""

from __future__ import annotations

import re
from typing import Final

from redis import exceptions

from mcpd.errors import StoreError

_PERMISSIONS: Final = (
    "the Redis user may not do what mcpd needs; allow it: "
    "ACL SETUSER <user> ~{<prefix>}:* resetchannels &{<prefix>}:* "
    "+@read +@write +@scripting +@pubsub +@connection +time"
)
_CREDENTIALS: Final = "wrong user name or password; set them in the URL: redis://user:password@host"

_MEANINGS: Final = {
    "NOAUTH": _CREDENTIALS,
    "WRONGPASS": _CREDENTIALS,
    "NOPERM": _PERMISSIONS,
    "READONLY": "this Redis is a read-only replica; give the URL of its primary, or of Sentinel (redis+sentinel://)",
    "OOM": "Redis's memory is full; raise its maxmemory or lower --max-sessions",
    "LOADING": "Redis is still loading its data; try again soon",
    "MISCONF": "Redis refuses writes because it cannot save to disk; look into its log",
    "NOREPLICAS": "Redis refuses writes for want of replicas (min-replicas-to-write)",
    "MASTERDOWN": "this Redis is a replica that has lost its primary; give the URL of a primary, or of Sentinel",
    "CLUSTERDOWN": "the cluster does not serve this slot now",
    "TRYAGAIN": "the cluster is moving this slot; try again soon",
    "MOVED": "this Redis is part of a cluster; use redis+cluster:// in the URL",
    "BUSY": "Redis is busy with somebody's script",
    "unknown command": "mcpd needs Redis 6.2 or later",
}
# At the start, or after the "-" with which a script passes on what a command inside it said.
_CODE: Final = re.compile("(?:^|-|ERR )(" + "|".join(_MEANINGS) + r")\b")
# How Redis 7 says NOPERM when it is a script that may not.
_SCRIPT_NOPERM: Final = re.compile("user executing the script can't|No permissions to access a key")


class ReplyError(Exception):
    """An error that Redis answered with; not raised, but handed about like any other reply."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        found = _CODE.search(text)
        self.code: Final = "NOPERM" if _SCRIPT_NOPERM.search(text) else found[1] if found else text.partition(" ")[0]


def explain(error: ReplyError) -> StoreError:
    """What a command's error means, for the operator."""
    meaning = _MEANINGS.get(error.code)
    return StoreError(f"Redis answered {error}" if meaning is None else f"Redis answered {error}: {meaning}")


def explain_connecting(exc: Exception, name: str) -> StoreError:
    """Why there is no connection to the Redis called *name*."""
    text = str(exc) or type(exc).__name__
    if isinstance(exc, exceptions.AuthenticationError) or "AUTH" in text.partition(" ")[0]:
        meaning: str | None = _CREDENTIALS
    else:
        meaning = _MEANINGS.get(ReplyError(text).code)
    reason = text if meaning is None else f"{text}: {meaning}"
    if meaning is None and isinstance(exc, OSError | exceptions.ConnectionError | exceptions.TimeoutError):
        reason = f"{text} (is it running, and reachable from here?)"
    return StoreError(f"Cannot connect to {name}: {reason}")
