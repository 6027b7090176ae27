"""What a store keeps of a session, as compact MessagePack."""

# No `from __future__ import annotations`: msgspec reads these annotations at run time.
import secrets
from collections.abc import Collection
from typing import Final

import msgspec
from msgspec import Struct

from mcpd.errors import INVALID_PARAMS, ProtocolError
from mcpd.protocol.jsonrpc import RequestId, encode
from mcpd.protocol.types import ClientCapabilities, Implementation, LoggingLevel

MAX_TASKS: Final = 100
MAX_SUBSCRIPTIONS: Final = 1_000
"""Resources that one session, or one ``subscriptions/listen``, may hear of."""
MAX_BYTES: Final = 65_536
"""Bytes that the record of a session may take."""
MAX_CANCELLATIONS: Final = 16
_LONGEST_MARK: Final = 256


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
    cancelled: list[bytes] = []
    """The latest cancellations that came in where the call does not run; see `cancelled_call`."""


def add_task(record: SessionRecord, task_id: str, gone: Collection[str]) -> bool:
    """The task is one of the session's, and those *gone* are no more; False, and nothing is changed, at the cap."""
    kept = [each for each in record.tasks if each not in gone]
    if len(kept) >= MAX_TASKS:
        return False
    record.tasks = [*kept, task_id]
    return True


def add_cancellation(record: SessionRecord, request_id: RequestId) -> None:
    """The client has cancelled a call, which may be running on a replica that cannot be told now."""
    mark = encode([request_id, secrets.token_urlsafe(6)])  # as JSON, whose integers know no bound
    if len(mark) <= _LONGEST_MARK:
        record.cancelled = [*record.cancelled[1 - MAX_CANCELLATIONS :], mark]


def cancelled_call(mark: bytes) -> RequestId:
    """Which call a cancellation is about. Clients use ids again, so each has something of its own besides."""
    return msgspec.json.decode(mark, type=tuple[int | str, str])[0]


_decoder: Final = msgspec.msgpack.Decoder(SessionRecord)
_encoder: Final = msgspec.msgpack.Encoder()
encode_record: Final = _encoder.encode


def new_record(
    revision: str, capabilities: ClientCapabilities, client_info: Implementation, *, max_bytes: int = MAX_BYTES
) -> bytes:
    """The record of a session that begins.

    Raises:
      ProtocolError: -32602 when the client tells more of itself than a record may hold.
    """
    try:
        record = encode_record(SessionRecord(revision, capabilities, client_info))
    except OverflowError:
        message = "clientInfo or capabilities hold an integer of more than 64 bits"
        raise ProtocolError(INVALID_PARAMS, message, http_status=400) from None
    if len(record) > max_bytes:
        message = f"clientInfo and capabilities take {len(record)} bytes, of at most {max_bytes}"
        raise ProtocolError(INVALID_PARAMS, message, http_status=400)
    return record


def changed_record(record: SessionRecord, *, max_bytes: int = MAX_BYTES) -> bytes:
    """The record as it is to be kept.

    Raises:
      ValueError: it would be larger than *max_bytes*.
    """
    data = encode_record(record)
    if len(data) > max_bytes:
        raise ValueError(f"The session's state would take {len(data)} bytes, of at most {max_bytes}")
    return data


def decode_record(data: bytes) -> SessionRecord | None:
    """The record, or None for bytes that are none: a session we cannot read is one we do not know."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return None
