"""Requests out of bytes: strict, bounded, and without I/O.

llhttp reads the fields of a head, and refuses most of what is not HTTP. Where a head and its body end is decided here,
so that nothing behind a request is looked at before its turn, and a request line is read here, where llhttp would allow
several spaces and other protocols. What h11 refuses is refused (the tests compare the two), and more: no line ends with
a bare LF, no line is folded, no length stands twice (RFC 9112, 2.2, 5.2, 6.3 and 11.2).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import unquote

import httptools

from mcpd.endpoint.exchange import MAX_HEAD
from mcpd.fronts.direct.chunked import ChunkedBody
from mcpd.fronts.direct.malformed import MalformedError
from mcpd.protocol.headers import Headers

MAX_TARGET: Final = 8 * 1024
"""Bytes of a request target."""
MAX_FIELDS: Final = 128

_LINE: Final = re.compile(rb"([A-Z][A-Z-]*+) ([\x21-\x7e]++) HTTP/1\.([01])\r\n")
_OTHER_VERSION: Final = re.compile(rb"[A-Z][A-Z-]*+ [\x21-\x7e]++ HTTP/[0-9]\.[0-9]\r\n")
_BARE_LF: Final = re.compile(rb"(?<!\r)\n")
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]+)([^#]*)", re.IGNORECASE)
_PATH_END: Final = re.compile("[?#]")
# What frames a request or says whose it is must not be said twice.
_ONCE: Final = (b"host", b"content-length", b"transfer-encoding")
_BLANK_LINE: Final = b"\r\n\r\n"
_SPACE: Final = b" \t"
_LENGTH: Final = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ([0-9]{1,18})\r\n")
_MAX_KNOWN: Final = 2048
"""Bytes of a head that is remembered: ten thousand connections may each remember one."""


class Request:
    """The head of a request. What few requests have is left at its default."""

    http10 = False
    """The client knows no chunks."""
    close = False
    """The client wants no further request on this connection."""
    length = 0
    """Bytes of the body, unless it comes in chunks."""
    chunked = False
    expects_continue = False
    """The client waits for leave to send the body."""

    def __init__(self, method: str, path: str, headers: Headers) -> None:
        """Args: *method*: in upper case; *path*: percent-decoded, without the query; *headers*: all fields."""
        self.method = method
        self.path = path
        self.headers = headers


class RequestParser:
    """Reads one connection's requests, one after the other.

    After `feed`, `next_request` gives the next head as soon as it is whole. Then `read_body` gives what has come of its
    body until `complete`, and only then the next head may be asked for. After an error there is no more to be read.
    """

    __slots__ = (
        "_chunks",
        "_counts",
        "_data",
        "_fields",
        "_known",
        "_llhttp",
        "_path",
        "_position",
        "_remaining",
        "_searched",
        "_target",
        "complete",
        "unread",
    )

    def __init__(self) -> None:
        self._data = b""
        self._position: int = 0
        """Before it all has been read."""
        self._searched: int = 0
        """Before it there is no end of a head."""
        self._fields = _Fields()
        self._llhttp: httptools.HttpRequestParser | None = None
        self._counts = False
        """Whether llhttp has read the last head, and counts its body along to know where the next head begins."""
        self._known: _Known | None = None
        self._target = b""
        """The last one, for the next is mostly the same."""
        self._path = ""
        self._remaining = 0
        self._chunks: ChunkedBody | None = None
        self.complete = True
        """Whether the last request has come whole."""
        self.unread = False
        """Whether there are bytes that no request, or body, has been made of yet."""

    @property
    def remaining(self) -> int | None:
        """How many bytes the body lacks; None when it comes in chunks."""
        return self._remaining if self._chunks is None else None

    def feed(self, data: bytes) -> None:
        """Take what has been received."""
        if self._position == len(self._data):
            self._data, self._searched = data, 0
        else:
            self._data = self._data[self._position :] + data
            self._searched = max(0, self._searched - self._position)
        self._position = 0
        self.unread = True

    def rest(self) -> None:
        """Hold as little as possible until more comes, which may be long."""
        if self.complete and not self.unread:
            self._llhttp = self._known = None
            self._fields.found.clear()

    def next_request(self) -> Request | None:
        """The next request, once its head is whole.

        Raises:
          MalformedError: what came is no request.
        """
        data, start = self._data, self._position
        known = self._known
        if known is not None:
            if not data.startswith(known.head, start):
                known = self._of_other_length(known, data, start)
            if known is not None:
                request = known.request
                self._position = end = start + len(known.head)
                self._counts = False
                self._remaining = request.length
                self.complete = False
                self.unread = end < len(data)
                return request
        end = data.find(_BLANK_LINE, max(start, self._searched)) + len(_BLANK_LINE)
        if end < len(_BLANK_LINE):
            if start < len(data):
                _check_beginning(data, start, self._searched)
            self._searched = max(start, len(data) - len(_BLANK_LINE) + 1)
            return None
        if end - start > MAX_HEAD:
            raise MalformedError(431, f"The header is longer than {MAX_HEAD} bytes")
        line = _LINE.match(data, start)
        if line is None:
            if _OTHER_VERSION.match(data, start) is not None:
                raise MalformedError(505, "Use HTTP/1.1")
            raise MalformedError(400, "The request line is malformed")
        method, target, minor = line.groups()
        if len(target) > MAX_TARGET:
            raise MalformedError(414, f"The request target is longer than {MAX_TARGET} bytes")
        head = data[start:end]
        self._position = end
        fields, pairs = self._read_fields(head)
        # "A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1 request message that lacks a Host
        # header field" (RFC 9112, 3.2).
        if b"host" not in fields and minor == b"1":
            raise MalformedError(400, "The Host header is missing")
        if target == self._target:
            path = self._path
        else:
            path, authority = path_of(target)
            if authority is None:
                self._target, self._path = target, path
            else:
                # "an origin server MUST ignore the received Host header field" (RFC 9112, 3.2.2)
                fields[b"host"] = authority
                pairs = pairs and [(name, authority if name == b"host" else value) for name, value in pairs]
        request = Request(method.decode(), path, Headers.unique(fields) if pairs is None else Headers(pairs))
        if minor == b"0":
            request.http10 = request.close = True
        self._interpret(request, fields, pairs)
        if len(head) <= _MAX_KNOWN and pairs is None:
            self._remember(head, request)
        self.complete = self._remaining == 0 and self._chunks is None
        self._drop_used()
        return request

    def whole_body(self) -> bytes | None:
        """The body, if all of it has come and nothing behind it, as is usual; else None: see `read_body`."""
        data, start, remaining = self._data, self._position, self._remaining
        if not remaining or self._counts or start + remaining != len(data):
            return None
        self._data, self._position, self._searched, self._remaining = b"", 0, 0, 0
        self.complete, self.unread = True, False
        return data[start:]

    def read_body(self) -> bytes:
        """What has come of the body since the last time; b"" when there is nothing new.

        Raises:
          MalformedError: the chunks are none.
        """
        if self._chunks is not None:
            body, self._position = self._chunks.decode(self._data, self._position)
            if self._chunks.complete:
                self._chunks = None
                self.complete = True
            self._drop_used()
            return body
        if not self._remaining:
            return b""
        piece = self._data[self._position : self._position + self._remaining]
        self._position += len(piece)
        self._remaining -= len(piece)
        self.complete = not self._remaining
        if self._counts and self._llhttp is not None:
            self._llhttp.feed_data(piece)
        self._drop_used()
        return piece

    def _drop_used(self) -> None:
        # The next request may be long in coming, and ten thousand connections may wait with what was read last.
        self.unread = self._position < len(self._data)
        if not self.unread:
            self._data, self._position, self._searched = b"", 0, 0

    def _read_fields(self, head: bytes) -> tuple[dict[bytes, bytes], list[tuple[bytes, bytes]] | None]:
        """The fields by name; and all of them in their order, if one was there more than once."""
        if self._llhttp is None:
            self._llhttp = httptools.HttpRequestParser(self._fields)
        found = self._fields.found
        found.clear()
        self._counts = True
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
        fields = {name.lower(): value for name, value in found.items()}
        # Two line breaks are those of the request line and at the end.
        count = head.count(b"\r\n") - 2
        if count > MAX_FIELDS:
            raise MalformedError(431, f"The header has more than {MAX_FIELDS} fields")
        if len(fields) == count:
            return fields, None
        # It is well-formed, so this is all there is to know.
        lines = (line.partition(b":") for line in head[: -len(_BLANK_LINE)].split(b"\r\n")[1:])
        pairs = [(name.lower(), value.strip(_SPACE)) for name, _, value in lines]
        for name in _ONCE:
            if sum(name == other for other, _ in pairs) > 1:
                raise MalformedError(400, f"The field {name.decode()} stands more than once")
        return dict(pairs), pairs

    def _remember(self, head: bytes, request: Request) -> None:
        """Know the next head if it differs in nothing but the digits of its Content-Length, as most clients' heads do.

        They stand in a line of their own, and the fields around them are those of a head that was read in full: no
        other field can speak of the body. Only digits may differ, so what is known is as well-formed as this one.
        """
        if request.method != "POST" or request.close or request.chunked or request.expects_continue:
            self._known = None
            return
        match = _LENGTH.search(head)
        if match is None or not request.length:
            return
        self._known = _Known(head, match.start(1), match.end(1), request)

    def _of_other_length(self, known: _Known, data: bytes, start: int) -> _Known | None:
        """The head there, if nothing but its length is another than that of the head known, which it then replaces."""
        before = known.head[: known.digits]
        if not data.startswith(before, start):
            return None
        at = start + known.digits
        end = data.find(b"\r\n", at, at + 20)
        length, after = data[at:end], known.head[known.behind :]
        if end < 0 or not length.isdigit() or not int(length) or not data.startswith(after, end):
            return None
        last = known.request
        request = Request(last.method, last.path, last.headers.replaced(b"content-length", length))
        request.length = int(length)
        self._known = _Known(before + length + after, known.digits, known.digits + len(length), request)
        return self._known

    def _interpret(self, request: Request, fields: dict[bytes, bytes], pairs: list[tuple[bytes, bytes]] | None) -> None:
        """What the fields say of the body and of the connection."""
        length = fields.get(b"content-length")
        coding = fields.get(b"transfer-encoding")
        if coding is not None:
            if length is not None:
                raise MalformedError(400, "Content-Length and Transfer-Encoding exclude each other")
            if request.http10:
                raise MalformedError(400, "HTTP/1.0 knows no Transfer-Encoding")
            if coding.rstrip(_SPACE).lower() != b"chunked":
                raise MalformedError(501, "The only Transfer-Encoding known here is chunked")
            request.chunked = True
            self._chunks = ChunkedBody()
            self._llhttp = None
        elif length is not None:
            request.length = self._remaining = _length(length.rstrip(_SPACE))
        connection = fields.get(b"connection")
        if connection is not None and (connection != b"keep-alive" or pairs is not None):
            values = [connection] if pairs is None else [value for name, value in pairs if name == b"connection"]
            request.close = request.close or _says_close(values)
        expect = fields.get(b"expect")
        if expect is not None and expect.rstrip(_SPACE).lower() == b"100-continue" and not request.http10:
            request.expects_continue = True


class _Known(NamedTuple):
    """A head that the next one is likely to equal, but for its length."""

    head: bytes
    """All of it, as it was received."""
    digits: int
    """Where the digits of its length begin in it."""
    behind: int
    """Where they end."""
    request: Request
    """What it says."""


class _Fields:
    # What llhttp calls; apart from the parser, which would else be part of a cycle. It calls a method of the dict, so
    # that it costs no Python frame for each field; one that is repeated is missed here, and found by counting.
    __slots__ = ("found", "on_header")

    def __init__(self) -> None:
        self.found: dict[bytes, bytes] = {}
        self.on_header = self.found.__setitem__


def _check_beginning(data: bytes, start: int, searched: int) -> None:
    # A head that is not whole yet may be hopeless already; who waits for the rest would wait until the time is up.
    if not b"A" <= data[start : start + 1] <= b"Z":
        raise MalformedError(400, "This is no HTTP request")
    if len(data) - start > MAX_TARGET and b"\r\n" not in data[start : start + MAX_TARGET + 64]:
        raise MalformedError(414, f"The request target is longer than {MAX_TARGET} bytes")
    if len(data) - start > MAX_HEAD:
        raise MalformedError(431, f"The header is longer than {MAX_HEAD} bytes")
    # Only what is new: a head may come byte by byte.
    if _BARE_LF.search(data, max(start, searched)) is not None:
        raise MalformedError(400, "Lines must end with CR LF")


def _length(value: bytes) -> int:
    if not value.isdigit() or len(value) > 18:
        raise MalformedError(400, "Content-Length is malformed")
    return int(value)


def _says_close(values: list[bytes]) -> bool:
    return any(b"close" in (option.strip(_SPACE) for option in value.lower().split(b",")) for value in values)


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
