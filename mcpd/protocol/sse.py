"""Server-sent events as bytes (HTML standard, section 9.2).

Lines end with LF alone. U+2028, U+2029 and U+0085 are line ends to many a client's parser, so they are
written as JSON escapes, which is possible because every event's data is one line of JSON.
"""

from __future__ import annotations

from typing import Final

HEARTBEAT: Final = b":\n\n"
"""A comment: bytes that keep a connection open and mean nothing."""


def message(data: bytes, event_id: str | None = None) -> bytes:
    """An event that carries one JSON-RPC message."""
    if not data.isascii():
        data = (
            data.replace(b"\xe2\x80\xa8", b"\\u2028")
            .replace(b"\xe2\x80\xa9", b"\\u2029")
            .replace(b"\xc2\x85", b"\\u0085")
        )
    if event_id is None:
        return b"event: message\ndata: " + data + b"\n\n"
    return b"event: message\nid: " + event_id.encode() + b"\ndata: " + data + b"\n\n"


def priming(event_id: str, *, retry: float | None = None) -> bytes:
    """The first event of a stream that can be resumed: an id, no data, and how many seconds to wait before resuming.

    "The server SHOULD immediately send an SSE event consisting of an event ID and an empty data field"
    (2025-11-25, basic/transports).
    """
    head = b"id: " + event_id.encode() + b"\n"
    if retry is not None:
        head += b"retry: %d\n" % round(retry * 1000)
    return head + b"data: \n\n"
