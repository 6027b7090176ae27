"""The direct front's parser: each input whole, byte by byte, and with another request behind it."""

import pytest

from mcpd.fronts.direct.malformed import MalformedError
from mcpd.fronts.direct.parser import MAX_FIELDS, MAX_HEAD, MAX_TARGET, Request, RequestParser
from tests.fronts.reading import Read, disagreement, ours

NEXT = b"GET /next HTTP/1.1\r\nHost: b\r\n\r\n"
THE_NEXT = Read("GET", "/next", {"host": "b"}, b"", close=False)

REQUESTS = {
    "get": (b"GET /mcp HTTP/1.1\r\nHost: a\r\n\r\n", Read("GET", "/mcp", {"host": "a"}, b"", close=False)),
    "fields": (
        b"GET / HTTP/1.1\r\nHOST:a\r\nX-One: \t 1 \t\r\nX-Two:\r\nX-Latin: \xe4\r\nX-one: 2\r\n\r\n",
        Read("GET", "/", {"host": "a", "x-one": "1, 2", "x-two": "", "x-latin": "\xe4"}, b"", close=False),
    ),
    "length": (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        Read("POST", "/", {"host": "a", "content-length": "5"}, b"hello", close=False),
    ),
    "length 0": (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 000\r\n\r\n",
        Read("POST", "/", {"host": "a", "content-length": "000"}, b"", close=False),
    ),
    "a body like a head": (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 22\r\n\r\nGET / HTTP/1.1\r\nX:\r\n\r\n",
        Read("POST", "/", {"host": "a", "content-length": "22"}, b"GET / HTTP/1.1\r\nX:\r\n\r\n"[:22], close=False),
    ),
    "chunks": (
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked \r\n\r\n"
            b'5\r\nhello\r\n00A;x="y"\r\n, world\r\n!\r\n0\r\n\r\n'
        ),
        Read("POST", "/", {"host": "a", "transfer-encoding": "chunked"}, b"hello, world\r\n!", close=False),
    ),
    "no chunks": (
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Read("POST", "/", {"host": "a", "transfer-encoding": "chunked"}, b"", close=False),
    ),
    "trailers": (
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;a\r\nx\r\n0;b\r\nHost: evil\r\nX:\r\n\r\n",
        Read("POST", "/", {"host": "a", "transfer-encoding": "chunked"}, b"x", close=False),
    ),
    "query": (
        b"GET /a%20b/%C3%A4?c=/d#e HTTP/1.1\r\nHost: a\r\n\r\n",
        Read("GET", "/a b/ä", {"host": "a"}, b"", close=False),
    ),
    "asterisk": (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", Read("OPTIONS", "*", {"host": "a"}, b"", close=False)),
    "absolute": (
        b"GET http://real:80/mcp?x HTTP/1.1\r\nHost: other\r\n\r\n",
        Read("GET", "/mcp", {"host": "real:80"}, b"", close=False),
    ),
    "absolute without a path": (
        b"GET https://real?x HTTP/1.1\r\nHost: other\r\n\r\n",
        Read("GET", "/", {"host": "real"}, b"", close=False),
    ),
    "keep-alive": (
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
        Read("GET", "/", {"host": "a", "connection": "keep-alive"}, b"", close=False),
    ),
    "upgrade": (
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
            b"Content-Length: 3\r\n\r\nabc"
        ),
        Read(
            "POST",
            "/",
            {"host": "a", "connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "content-length": "3"},
            b"abc",
            close=False,
        ),
    ),
    "upgrade in chunks": (
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"
        ),
        Read(
            "POST",
            "/",
            {"host": "a", "connection": "upgrade", "upgrade": "x", "transfer-encoding": "chunked"},
            b"a",
            close=False,
        ),
    ),
}
LAST_REQUESTS = {
    "close": (
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: foo , CLOSE\r\n\r\n",
        Read("GET", "/", {"host": "a", "connection": "foo , CLOSE"}, b"", close=True),
    ),
    "close in the second field": (
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n",
        Read("GET", "/", {"host": "a", "connection": "keep-alive, close"}, b"", close=True),
    ),
    "HTTP/1.0": (
        b"POST / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
        Read("POST", "/", {"connection": "keep-alive", "content-length": "2"}, b"ok", close=True),
    ),
}


def one_by_one(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


@pytest.mark.parametrize("name", REQUESTS)
def test_reads_a_request(name):
    data, expected = REQUESTS[name]
    for pieces in [data], one_by_one(data):
        assert ours(pieces) == ([expected], "", 0)
    # What follows is another request, whether it comes with the first one or not.
    for pieces in [data + NEXT], one_by_one(data + NEXT), [data, NEXT], [data + NEXT[:1], NEXT[1:]]:
        assert ours(pieces) == ([expected, THE_NEXT], "", 0)
    assert ours([data * 3 + NEXT]).requests == [expected, expected, expected, THE_NEXT]
    # What is not whole is no request yet, and no error.
    for end in range(len(data)):
        assert ours([data[:end]]) == ([], "", 0)


@pytest.mark.parametrize("name", LAST_REQUESTS)
def test_reads_a_last_request(name):
    data, expected = LAST_REQUESTS[name]
    for pieces in [data], one_by_one(data), [data + NEXT]:
        assert ours(pieces) == ([expected], "", 0)


def test_gives_the_body_as_it_comes():
    parser = RequestParser()
    parser.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nab")
    request = parser.next_request()
    assert request is not None
    assert (request.length, request.chunked, parser.remaining, parser.complete) == (6, False, 6, False)
    assert parser.read_body() == b"ab"
    assert parser.read_body() == b""
    parser.feed(b"cd")
    assert (parser.read_body(), parser.remaining, parser.complete) == (b"cd", 2, False)
    parser.feed(b"efGET")
    assert (parser.read_body(), parser.remaining, parser.complete) == (b"ef", 0, True)
    assert parser.unread
    assert parser.next_request() is None


def test_tells_what_a_client_expects():
    def request(data: bytes) -> Request:
        parser = RequestParser()
        parser.feed(data)
        found = parser.next_request()
        assert found is not None
        return found

    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n"
    assert request(head + b"Expect: 100-Continue\r\n\r\n").expects_continue
    assert not request(head + b"\r\n").expects_continue
    # "A server that receives a 100-continue expectation in an HTTP/1.0 request MUST ignore that expectation" (RFC 9110,
    # 10.1.1).
    old = request(b"POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n")
    assert not old.expects_continue
    assert old.http10


def head(length: int) -> bytes:
    """A head of so many bytes."""
    start = b"GET / HTTP/1.1\r\nHost: a\r\nX: "
    return start + b"x" * (length - len(start) - 4) + b"\r\n\r\n"


LIMITS = {
    "head": (head(MAX_HEAD), head(MAX_HEAD + 1), 431),
    "target": (
        b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n" % (b"x" * (MAX_TARGET - 1)),
        b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n" % (b"x" * MAX_TARGET),
        414,
    ),
    "fields": (
        b"GET / HTTP/1.1\r\nHost: a\r\n%b\r\n" % (b"X: y\r\n" * (MAX_FIELDS - 1)),
        b"GET / HTTP/1.1\r\nHost: a\r\n%b\r\n" % (b"X: y\r\n" * MAX_FIELDS),
        431,
    ),
}


@pytest.mark.parametrize("name", LIMITS)
def test_keeps_within_limits(name):
    allowed, refused, status = LIMITS[name]
    half = len(allowed) // 2
    for pieces in [allowed], [allowed[:half], allowed[half:]]:
        assert len(ours(pieces).requests) == 1
    for pieces in [refused], [refused[:half], refused[half:]], [refused[:-1], refused[-1:]]:
        assert ours(pieces).status == status


@pytest.mark.parametrize(
    ("beginning", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01", 400),  # TLS
        (b"\r", 400),
        (b"get", 400),
        (b"GET / HTTP/1.1\nHost: a\n", 400),
        (b"GET /" + b"x" * (MAX_TARGET + 64), 414),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * MAX_HEAD, 431),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 4096, 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: y\r\n" * 3000, 400),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1;%b\r\nx\r\n" % (b"x" * 900) * 100,
            400,
        ),
    ],
)
def test_does_not_wait_for_the_rest_of_what_is_hopeless(beginning, status):
    assert ours([beginning]).status == status
    assert ours(one_by_one(beginning)).status == status


def test_has_no_more_to_say_after_an_error():
    parser = RequestParser()
    parser.feed(b"GET / HTTP/1.1\r\nHost : a\r\n\r\n")
    with pytest.raises(MalformedError):
        parser.next_request()


def test_reads_a_long_pipeline_in_linear_time():
    # 2,000 requests in one read: each copies its own bytes only.
    assert len(ours([NEXT * 2000]).requests) == 2000


LIKE = b"POST /mcp HTTP/1.1\r\nHost: a\r\nX: y\r\nContent-Length: %b\r\nY: z\r\n\r\n%b"


@pytest.mark.parametrize(
    "length", [b"0", b"3", b"00003", b"12", b"1" * 18, b"1" * 19, b"", b" 3", b"3 ", b"+3", b"3,3", b"3\r\n 3", b"0x3"]
)
@pytest.mark.parametrize("name", [b"Content-Length", b"content-length", b"Content-length", b"CONTENT-LENGTH"])
def test_a_head_like_the_last_one_is_read_like_the_first(name, length):
    first = (LIKE % (b"5", b"hello")).replace(b"Content-Length", name)
    second = (LIKE % (length, b"abcdefghijkl")).replace(b"Content-Length", name)
    alone = ours([second])
    after = ours([first + second])
    assert after.requests[0].body == b"hello"
    assert (after.requests[1:], after.error, after.status) == alone
    assert ours(one_by_one(first + second)) == after
    assert disagreement(first + second) is None


@pytest.mark.parametrize(
    "other",
    [
        LIKE.replace(b"X: y", b"X: Content-Length: 9"),
        LIKE.replace(b"Y: z", b"Content-Length: 3"),
        LIKE.replace(b"Y: z", b"Transfer-Encoding: chunked"),
        LIKE.replace(b"Y: z", b"Y: z\r\nX: w"),
        LIKE.replace(b"Y: z", b"Connection: close"),
        LIKE.replace(b"HTTP/1.1", b"HTTP/1.0"),
        LIKE.replace(b"POST", b"PUT"),
    ],
)
def test_what_is_not_like_the_last_one_is_read_anew(other):
    first = LIKE % (b"5", b"hello")
    for second in other % (b"3", b"abc"), other % (b"0", b"0\r\n\r\n"):
        alone = ours([second])
        after = ours([first + second])
        assert (after.requests[1:], after.error, after.status) == alone
        assert ours([second + first]).requests[: len(alone.requests)] == alone.requests
        assert disagreement(first + second) is None
        assert disagreement(second + first) is None
