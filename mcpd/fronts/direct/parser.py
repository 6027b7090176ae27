"""Requests out of bytes: strict, bounded, and without I/O.

llhttp reads the fields of a head, and refuses most of what is not HTTP. Where a head and its body end is decided here,
so that nothing behind a request is looked at before its turn, and a request line is read here, where llhttp would allow
several spaces and other protocols. What h11 refuses is refused (the tests compare the two), and more: no line ends with
a bare LF, no line is folded, no length stands twice (RFC 9112, 2.2, 5.2, 6.3 and 11.2).
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

import httptools

from mcpd.fronts.direct.chunked import ChunkedBody
from mcpd.fronts.direct.malformed import MalformedError
from mcpd.protocol.headers import Headers

MAX_HEAD: Final = 64 * 1024
"""Bytes of a request line and all fields."""
MAX_TARGET: Final = 8 * 1024
"""Bytes of a request target."""
MAX_FIELDS: Final = 128

_LINE: Final = re.compile(rb"([A-Z][A-Z-]*+) ([\x21-\x7e]++) HTTP/([0-9])\.([0-9])\r\n")
_BARE_LF: Final = re.compile(rb"(?<!\r)\n")
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]+)([^#]*)", re.IGNORECASE)
_PATH_END: Final = re.compile("[?#]")
# What frames a request or says whose it is must not be said twice.
_ONCE: Final = (b"host", b"content-length", b"transfer-encoding")
_BLANK_LINE: Final = b"\r\n\r\n"


class Request:
    """The head of a request."""

    __slots__ = ("chunked", "close", "expects_continue", "headers", "http10", "length", "method", "path")

    def __init__(
        self,
        method: str,
        path: str,
        headers: Headers,
        *,
        http10: bool,
        close: bool,
        length: int,
        chunked: bool,
        expects_continue: bool,
    ) -> None:
        self.method = method
        self.path = path
        """Percent-decoded, without the query."""
        self.headers = headers
        self.http10 = http10
        """The client knows no chunks."""
        self.close = close
        """The client wants no further request on this connection."""
        self.length = length
        """Bytes of the body; 0 when it comes in chunks."""
        self.chunked = chunked
        self.expects_continue = expects_continue
        """The client waits for leave to send the body."""


class RequestParser:
    """Reads one connection's requests, one after the other.

    After `feed`, `next_request` gives the next head as soon as it is whole. Then `read_body` gives what has come of its
    body until `complete`, and only then the next head may be asked for. After an error there is no more to be read.
    """

    __slots__ = ("_chunks", "_data", "_fields", "_llhttp", "_position", "_remaining", "_searched")

    def __init__(self) -> None:
        self._data = b""
        self._position: int = 0
        """Before it all has been read."""
        self._searched: int = 0
        """Before it there is no end of a head."""
        self._fields = _Fields()
        self._llhttp: httptools.HttpRequestParser | None = None
        self._remaining = 0
        self._chunks: ChunkedBody | None = None

    @property
    def complete(self) -> bool:
        """Whether the last request has come whole."""
        return self._remaining == 0 and self._chunks is None

    @property
    def remaining(self) -> int | None:
        """How many bytes the body lacks; None when it comes in chunks."""
        return self._remaining if self._chunks is None else None

    @property
    def unread(self) -> bool:
        """Whether there are bytes that no request has been made of yet."""
        return self._position < len(self._data)

    def feed(self, data: bytes) -> None:
        """Take what has been received."""
        if self._position == len(self._data):
            self._data = data
        else:
            self._data = self._data[self._position :] + data
        self._searched = max(0, self._searched - self._position)
        self._position = 0

    def next_request(self) -> Request | None:
        """The next request, once its head is whole.

        Raises:
          MalformedError: what came is no request.
        """
        data, start = self._data, self._position
        end = data.find(_BLANK_LINE, max(start, self._searched)) + len(_BLANK_LINE)
        if end < len(_BLANK_LINE):
            if start < len(data):
                _check_beginning(data, start)
            self._searched = max(start, len(data) - len(_BLANK_LINE) + 1)
            return None
        if end - start > MAX_HEAD:
            raise MalformedError(431, f"The header is longer than {MAX_HEAD} bytes")
        line = _LINE.match(data, start)
        if line is None:
            raise MalformedError(400, "The request line is malformed")
        method, target, major, minor = line.groups()
        if major != b"1" or minor not in b"01":
            raise MalformedError(505, "Use HTTP/1.1")
        if len(target) > MAX_TARGET:
            raise MalformedError(414, f"The request target is longer than {MAX_TARGET} bytes")
        self._read_fields(data[start:end])
        self._position = end
        return self._request(method, target, http10=minor == b"0")

    def read_body(self) -> bytes:
        """What has come of the body since the last time; b"" when there is nothing new.

        Raises:
          MalformedError: the chunks are none.
        """
        if self._chunks is not None:
            body, self._position = self._chunks.decode(self._data, self._position)
            if self._chunks.complete:
                self._chunks = None
            return body
        if self._remaining == 0:
            return b""
        end = self._position + self._remaining
        piece = self._data[self._position : end]
        self._position += len(piece)
        self._remaining -= len(piece)
        if self._llhttp is not None:
            # It counts along, to know where the next head begins.
            self._llhttp.feed_data(piece)
        return piece

    def _read_fields(self, head: bytes) -> None:
        if self._llhttp is None:
            self._llhttp = httptools.HttpRequestParser(self._fields)
        self._fields.pairs = []
        try:
            self._llhttp.feed_data(head)
        except httptools.HttpParserUpgrade:
            # We upgrade to nothing, so it is a request like others (RFC 9110, 7.8); llhttp takes what follows for the
            # other protocol. Java's client asks for h2c with every request.
            self._llhttp = None
        except httptools.HttpParserInvalidMethodError:
            raise MalformedError(501, "The method is not known here") from None
        except httptools.HttpParserError as exc:
            raise MalformedError(400, f"The header is malformed: {exc}") from None

    def _request(self, method: bytes, target: bytes, *, http10: bool) -> Request:
        pairs = self._fields.pairs
        if len(pairs) > MAX_FIELDS:
            raise MalformedError(431, f"The header has more than {MAX_FIELDS} fields")
        fields = dict(pairs)
        repeated = len(fields) < len(pairs)
        if repeated:
            names = [name for name, _ in pairs]
            for name in _ONCE:
                if names.count(name) > 1:
                    raise MalformedError(400, f"The field {name.decode()} stands more than once")
        # "A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1 request message that lacks a Host
        # header field" (RFC 9112, 3.2).
        if b"host" not in fields and not http10:
            raise MalformedError(400, "The Host header is missing")
        chunked = b"transfer-encoding" in fields
        if chunked:
            self._check_coding(fields, http10=http10)
            self._chunks = ChunkedBody()
            self._llhttp = None
        else:
            self._remaining = _length(fields.get(b"content-length"))
        path, authority = path_of(target)
        if authority is not None:
            # "an origin server MUST ignore the received Host header field" (RFC 9112, 3.2.2)
            pairs = [pair for pair in pairs if pair[0] != b"host"] + [(b"host", authority)]
        connection = fields.get(b"connection")
        expect = fields.get(b"expect")
        return Request(
            method.decode(),
            path,
            Headers(pairs),
            http10=http10,
            close=http10
            or (connection is not None and (connection != b"keep-alive" or repeated) and _says_close(pairs)),
            length=self._remaining,
            chunked=chunked,
            expects_continue=expect is not None and expect.lower() == b"100-continue" and not http10,
        )

    def _check_coding(self, fields: dict[bytes, bytes], *, http10: bool) -> None:
        if b"content-length" in fields:
            raise MalformedError(400, "Content-Length and Transfer-Encoding exclude each other")
        if http10:
            raise MalformedError(400, "HTTP/1.0 knows no Transfer-Encoding")
        if fields[b"transfer-encoding"].lower() != b"chunked":
            raise MalformedError(501, "The only Transfer-Encoding known here is chunked")


class _Fields:
    # What llhttp calls; apart from the parser, which would else be part of a cycle.
    __slots__ = ("pairs",)

    def __init__(self) -> None:
        self.pairs: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.pairs.append((name.lower(), value.rstrip(b" \t")))


def _check_beginning(data: bytes, start: int) -> None:
    # A head that is not whole yet may be hopeless already; who waits for the rest would wait until the time is up.
    if not b"A" <= data[start : start + 1] <= b"Z":
        raise MalformedError(400, "This is no HTTP request")
    if len(data) - start > MAX_TARGET and b"\r\n" not in data[start : start + MAX_TARGET + 64]:
        raise MalformedError(414, f"The request target is longer than {MAX_TARGET} bytes")
    if len(data) - start > MAX_HEAD:
        raise MalformedError(431, f"The header is longer than {MAX_HEAD} bytes")
    if _BARE_LF.search(data, start) is not None:
        raise MalformedError(400, "Lines must end with CR LF")


def _length(value: bytes | None) -> int:
    if value is None:
        return 0
    if not value.isdigit() or len(value) > 18:
        raise MalformedError(400, "Content-Length is malformed")
    return int(value)


def _says_close(pairs: list[tuple[bytes, bytes]]) -> bool:
    return any(
        name == b"connection" and b"close" in (option.strip(b" \t") for option in value.lower().split(b","))
        for name, value in pairs
    )


def path_of(target: bytes) -> tuple[str, bytes | None]:
    """The path of a request target, and the authority if it names one (RFC 9112, 3.2).

    Raises:
      MalformedError: it is none that an origin server knows.
    """
    authority = None
    if not target.startswith(b"/") and target != b"*":
        match = _ABSOLUTE.fullmatch(target)
        if match is None:
            raise MalformedError(400, "The request target is malformed")
        authority, target = match[1], match[2] if match[2].startswith(b"/") else b"/" + match[2]
    path = target.decode("ascii")
    if "?" in path or "#" in path:
        path = _PATH_END.split(path, maxsplit=1)[0]
    return unquote(path) if "%" in path else path, authority
