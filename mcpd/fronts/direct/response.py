"""The bytes of responses. What does not change from one to the next is made once."""

from __future__ import annotations

import time
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from mcpd.errors import INVALID_REQUEST, ProtocolError
from mcpd.protocol.jsonrpc import encode_error

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
_STATUS: Final = {int(status): b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}
_CLOSE: Final = b"connection: close\r\n"
_NO_BODY: Final = (204, 304)


class _Date:
    # "An origin server with a clock MUST generate a Date header field" (RFC 9110, 6.6.1); it counts whole seconds.
    __slots__ = ("_field", "_second")

    def __init__(self) -> None:
        self._second = 0
        self._field = b""

    def __call__(self) -> bytes:
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._field = b"date: %b\r\n" % formatdate(second, usegmt=True).encode()
        return self._field


_date: Final = _Date()


def whole(
    status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, close: bool, without_body: bool = False
) -> bytes:
    """A response whose length is known.

    Args:
      status: its status.
      headers: fields besides those of the connection: Date, Content-Length and Connection.
      body: its body.
      close: no further response follows on this connection.
      without_body: it answers HEAD: its body is not sent.
    """
    # Nearly all responses begin in one of a few ways.
    head = _usual_head(status, headers[0]) if len(headers) == 1 else _head(status, headers)
    closing = _CLOSE if close else b""
    if status in _NO_BODY or (without_body and not body):
        return b"%b%b%b\r\n" % (head, _date(), closing)
    shown = b"" if without_body else body
    return b"".join((head, _date(), closing, _length(len(body)), shown))


def beginning(status: int, headers: Sequence[tuple[bytes, bytes]], *, close: bool, chunked: bool) -> bytes:
    """The head of a response whose body comes piece by piece: in chunks, or until the connection is closed."""
    framing = b"transfer-encoding: chunked\r\n\r\n" if chunked else b"\r\n"
    return b"%b%b%b%b" % (_head(status, headers), _date(), _CLOSE if close else b"", framing)


def chunk(data: bytes) -> bytes:
    """A piece of it. Empty ones would end it, and are not made."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def refusal(status: int, message: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> bytes:
    """The answer to what is no request, or has no room here: a JSON-RPC error that belongs to no request."""
    body = encode_error(None, ProtocolError(INVALID_REQUEST, message))
    return whole(status, [(b"content-type", b"application/json"), *headers], body, close=True)


def _head(status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    line = _STATUS.get(status) or b"HTTP/1.1 %d \r\n" % status
    return line + b"".join([b"%b: %b\r\n" % field for field in headers])


@lru_cache(maxsize=1024)
def _length(length: int) -> bytes:
    return b"content-length: %d\r\n\r\n" % length


@lru_cache(maxsize=64)
def _usual_head(status: int, field: tuple[bytes, bytes]) -> bytes:
    return _head(status, (field,))
