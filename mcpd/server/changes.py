"""What can change of a server, as its clients are told."""

# No `from __future__ import annotations`: msgspec reads these annotations at run time.
from typing import Literal

import msgspec

from mcpd.protocol.jsonrpc import encode_notification


class Change(msgspec.Struct, frozen=True, array_like=True):
    """A list that changed, or a resource or task that was updated: *uri* is its URI or id."""

    kind: Literal["tools", "prompts", "resources", "resource", "task"]
    uri: str = ""

    def notification(self, meta: dict[str, object] | None = None) -> bytes:
        """The JSON-RPC notification that tells of it, with *meta* as its ``_meta``."""
        params: dict[str, object] = {} if meta is None else {"_meta": meta}
        if self.kind == "resource":
            return encode_notification("notifications/resources/updated", {"uri": self.uri} | params)
        return encode_notification(f"notifications/{self.kind}/list_changed", params or None)
