"""What is not quite HTTP is refused, for whoever stands before us may have read it in another way.

The corpus names the tricks; the random part compares with h11, whose strictness is the measure.
"""

import random

import pytest

from tests.fronts.mutations import SEEDS, mutated
from tests.fronts.reading import disagreement, h11s, ours, torn

GET = b"GET / HTTP/1.1\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

REFUSED = {
    # Two lengths
    "length and chunks": POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "the same length twice": POST + b"Content-Length: 2\r\ncontent-length: 2\r\n\r\nab",
    "a list of lengths": POST + b"Content-Length: 2, 2\r\n\r\nab",
    # Lengths that are none
    "plus": POST + b"Content-Length: +2\r\n\r\nab",
    "minus": POST + b"Content-Length: -1\r\n\r\n",
    "hexadecimal": POST + b"Content-Length: 0x2\r\n\r\nab",
    "underscore": POST + b"Content-Length: 1_0\r\n\r\n0123456789",
    "exponent": POST + b"Content-Length: 1e0\r\n\r\na",
    "empty": POST + b"Content-Length:\r\n\r\n",
    "space within": POST + b"Content-Length: 1 0\r\n\r\n0123456789",
    "other digits": POST + "Content-Length: \u0662\r\n\r\nab".encode(),
    "past 64 bits": POST + b"Content-Length: 18446744073709551618\r\n\r\nab",
    "without end": POST + b"Content-Length: " + b"9" * 1000 + b"\r\n\r\n",
    # Codings
    "another coding": POST + b"Transfer-Encoding: gzip\r\n\r\n",
    "identity": POST + b"Transfer-Encoding: identity\r\n\r\n",
    "coded twice": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "two codings": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two codings, one other": POST + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding with a parameter": POST + b"Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
    "coding with a comma": POST + b"Transfer-Encoding: chunked,\r\n\r\n0\r\n\r\n",
    "like chunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "quoted chunked": POST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "vertical tab": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "no coding": POST + b"Transfer-Encoding:\r\n\r\n",
    "folded coding": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "space before the colon": POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    # Chunks
    "no size": CHUNKED + b"\r\n0\r\n\r\n",
    "size with plus": CHUNKED + b"+1\r\na\r\n0\r\n\r\n",
    "size with minus": CHUNKED + b"-1\r\na\r\n0\r\n\r\n",
    "size with 0x": CHUNKED + b"0x1\r\na\r\n0\r\n\r\n",
    "size with underscore": CHUNKED + b"1_0\r\n0123456789abcdef\r\n0\r\n\r\n",
    "space before the size": CHUNKED + b" 1\r\na\r\n0\r\n\r\n",
    "space behind the size": CHUNKED + b"1 \r\na\r\n0\r\n\r\n",
    "space before the extension": CHUNKED + b"1 ;x\r\na\r\n0\r\n\r\n",
    "size past 64 bits": CHUNKED + b"10000000000000001\r\na\r\n0\r\n\r\n",
    "zeros without end": CHUNKED + b"0" * 30 + b"1\r\na\r\n0\r\n\r\n",
    "bare LF behind the size": CHUNKED + b"1\na\r\n0\r\n\r\n",
    "bare LF in the extension": CHUNKED + b"1;x\ny\r\na\r\n0\r\n\r\n",
    "bare CR in the extension": CHUNKED + b"1;x\ry\r\na\r\n0\r\n\r\n",
    "NUL in the extension": CHUNKED + b"1;\x00\r\na\r\n0\r\n\r\n",
    "chunk too long": CHUNKED + b"1\r\nab\r\n0\r\n\r\n",
    "bare LF behind a chunk": CHUNKED + b"1\r\na\n0\r\n\r\n",
    "bare LF behind the last chunk": CHUNKED + b"0\n\r\n",
    "bare LF at the end": CHUNKED + b"0\r\n\n",
    "length in a trailer": CHUNKED + b"0\r\nContent-Length: 5\r\n\r\n",
    "coding in a trailer": CHUNKED + b"0\r\nX: y\r\ntransfer-encoding: chunked\r\n\r\n",
    "malformed trailer": CHUNKED + b"0\r\nX : y\r\n\r\n",
    "folded trailer": CHUNKED + b"0\r\nX: y\r\n z\r\n\r\n",
    # Lines
    "bare LF behind the request line": b"GET / HTTP/1.1\nHost: a\r\n\r\n",
    "bare LF behind a field": GET + b"Host: a\nX: y\r\n\r\n",
    "bare LF at the end of the head": GET + b"Host: a\r\n\n",
    "only bare LF": b"GET / HTTP/1.1\nHost: a\n\n",
    "bare CR in a field": GET + b"Host: a\rX: y\r\n\r\n",
    "CR CR LF": GET + b"Host: a\r\r\n\r\n",
    "folded field": GET + b"Host: a\r\nX: y\r\n z\r\n\r\n",
    "folded with a tab": GET + b"Host: a\r\nX:\r\n\ty\r\n\r\n",
    "folded first field": GET + b" Host: a\r\n\r\n",
    "empty line before": b"\r\n" + GET + b"Host: a\r\n\r\n",
    "empty line between": POST + b"Content-Length: 1\r\n\r\na\r\n" + GET + b"Host: a\r\n\r\n",
    # Fields
    "no colon": GET + b"Host: a\r\nX\r\n\r\n",
    "no name": GET + b"Host: a\r\n: y\r\n\r\n",
    "space in a name": GET + b"Host: a\r\nX Y: z\r\n\r\n",
    "space behind a name": GET + b"Host : a\r\n\r\n",
    "tab behind a name": GET + b"Host\t: a\r\n\r\n",
    "parenthesis in a name": GET + b"Host: a\r\nX(: y\r\n\r\n",
    "latin-1 in a name": GET + b"Host: a\r\nX\xe4: y\r\n\r\n",
    "NUL in a name": GET + b"Host: a\r\nX\x00: y\r\n\r\n",
    **{
        f"{character!r} in a value": GET + b"Host: a\r\nX: y%bz\r\n\r\n" % character
        for character in (b"\x00", b"\x01", b"\x08", b"\x0b", b"\x0c", b"\x1f", b"\x7f")
    },
    # Host
    "no host": GET + b"\r\n",
    "no host but in the target": b"GET http://a/mcp HTTP/1.1\r\n\r\n",
    "two hosts": GET + b"Host: a\r\nHost: b\r\n\r\n",
    "the same host twice": GET + b"Host: a\r\nhost: a\r\n\r\n",
    # Request lines
    "two spaces": b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
    "two spaces before the version": b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n",
    "tabs": b"GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n",
    "space behind the version": b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
    "space before the method": b" GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "no version": b"GET /\r\nHost: a\r\n\r\n",
    "no target": b"GET HTTP/1.1\r\nHost: a\r\n\r\n",
    "more words": b"GET / / HTTP/1.1\r\nHost: a\r\n\r\n",
    "version in lower case": b"GET / http/1.1\r\nHost: a\r\n\r\n",
    "another protocol": b"GET / ICE/1.1\r\nHost: a\r\n\r\n",
    "RTSP": b"DESCRIBE / RTSP/1.0\r\nHost: a\r\n\r\n",
    "long version": b"GET / HTTP/1.10\r\nHost: a\r\n\r\n",
    "HTTP/0.9": b"GET / HTTP/0.9\r\nHost: a\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "unknown method": b"FETCH / HTTP/1.1\r\nHost: a\r\n\r\n",
    "method in lower case": b"get / HTTP/1.1\r\nHost: a\r\n\r\n",
    "method no token": b"G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
    "control in the target": b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n",
    "tab in the target": b"GET /\t HTTP/1.1\r\nHost: a\r\n\r\n",
    "latin-1 in the target": b"GET /\xe4 HTTP/1.1\r\nHost: a\r\n\r\n",
    "target without a slash": b"GET mcp HTTP/1.1\r\nHost: a\r\n\r\n",
    "target of another scheme": b"GET file:///etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n",
    "tunnel": b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name):
    data = REFUSED[name]
    behind = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
    for pieces in (
        [data],
        [data + behind],
        [data[i : i + 1] for i in range(len(data))],
        torn(data + behind, 20, len(data)),
    ):
        outcome = ours(pieces)
        assert outcome.error
        assert outcome.status in {400, 431, 501, 505}
        assert all(request.path != "/smuggled" for request in outcome.requests)
    assert disagreement(data) is None


def test_reads_whole_requests_as_h11_does():
    for data in SEEDS:
        outcome = ours([data])
        assert (len(outcome.requests), outcome.error) == (1, "")
        assert outcome.requests == h11s(data).requests


@pytest.mark.parametrize("seed", range(4))
def test_is_never_less_strict_than_h11(seed):
    source = random.Random(seed)
    refused = 0
    for _ in range(1000):
        data = mutated(source)
        assert (found := disagreement(data)) is None, f"{data!r}: {found}"
        whole = ours([data])
        in_pieces = ours(torn(data, *(source.randrange(len(data) + 1) for _ in range(3))))
        assert (whole.requests, whole.error == "") == (in_pieces.requests, in_pieces.error == ""), data
        refused += whole.error != ""
    # Else the mutations are too weak, or too strong, to show anything.
    assert 200 < refused < 950
