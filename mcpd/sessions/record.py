"""What a store keeps of a session, as compact MessagePack."""

# No `from __future__ import annotations`: msgspec reads these annotations at run time.
from typing import Final

import msgspec
from msgspec import Struct

from mcpd.protocol.types import ClientCapabilities, Implementation, LoggingLevel


class SessionRecord(Struct, array_like=True):
    """The session's negotiated terms and what its client has set since. Fields are only ever added at the end."""

    revision: str
    capabilities: ClientCapabilities
    client_info: Implementation
    initialized: bool = False
    log_level: LoggingLevel | None = None
    subscriptions: list[str] = []
    state: dict[str, bytes] = {}
    """`SessionState` values as JSON, by key."""
    tasks: list[str] = []
    """Ids of the session's tasks, the oldest first."""


_decoder: Final = msgspec.msgpack.Decoder(SessionRecord)
_encoder: Final = msgspec.msgpack.Encoder()
encode_record: Final = _encoder.encode


def decode_record(data: bytes) -> SessionRecord | None:
    """The record, or None for bytes that are none: a session we cannot read is one we do not know."""
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError:
        return None
