"""Requests that are not quite right: what a fuzzer feeds to the parsers."""

import random
from typing import Final

_BODY: Final = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
SEEDS: Final = [
    b"GET /mcp HTTP/1.1\r\nHost: localhost:8000\r\nAccept: text/event-stream\r\nMcp-Session-Id: abc\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY),
    b"POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n012345678\r\n0\r\nExpires: 0\r\nX:y\r\n\r\n",
    b"DELETE /mcp?x=%20y HTTP/1.1\r\nhost:a\r\nConnection: keep-alive, close\r\nX-Empty:\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\n\r\n",
    b"GET http://example.com/mcp HTTP/1.1\r\nHost: other\r\n\r\n",
    b"HEAD /health HTTP/1.0\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc",
    b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nwait",
]
"""Whole requests of all kinds."""

_TOKENS: Final = [
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b"\r\n\r\n",
        b"\n\n",
        b"\r\r\n",
        b" ",
        b"\t",
        b"  ",
        b"\x00",
        b"\x0b",
        b"\x0c",
        b"\x7f",
        b"\x80",
        b"\xff",
    ),
    *(
        b":",
        b",",
        b";",
        b"=",
        b'"',
        b"0",
        b"00",
        b"+",
        b"-",
        b"0x",
        b"_",
        b"1e1",
        b"f",
        b"\r\n ",
        b"\r\n\t",
        b" \r\n",
        b"\t\r\n",
    ),
    *(
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"HTTP/1.1",
        b"HTTP/1.0",
        b"HTTP/2.0",
        b"http/1.1",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ),
    *(
        b"Host: b\r\n",
        b"Host : b\r\n",
        b" Host: b\r\n",
        b"Host:\r\n",
        b"\r\nX\r\n",
        b": x\r\n",
        b"X: \x01\r\n",
        b"(: x\r\n",
    ),
    *(b"Content-Length: 0\r\n", b"Content-Length: 5\r\n", b"Content-Length: +5\r\n", b"Content-Length: 5, 5\r\n"),
    *(
        b"Content-Length: 99999999999999999999\r\n",
        b"Content-Length:\r\n",
        b"content-length: 3 \r\n",
        b"Content-Length: 0x5\r\n",
    ),
    *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding: gzip, chunked\r\n"),
    *(b"transfer-encoding:chunked\r\n", b"Transfer-Encoding : chunked\r\n", b"Transfer-Encoding: chunked,\r\n"),
    *(b"Transfer-Encoding: \x0bchunked\r\n", b"Transfer-Encoding:\r\n chunked\r\n", b"Transfer-Encoding: xchunked\r\n"),
    *(
        b"Connection: close\r\n",
        b"Connection: upgrade\r\nUpgrade: x\r\n",
        b"Upgrade: h2c\r\n",
        b"Expect: 100-continue\r\n",
    ),
    *(
        b"0\r\n\r\n",
        b"0\r\n",
        b"1\r\nx\r\n",
        b"ffffffffffffffffff\r\n",
        b"2;\r\n",
        b"2 \r\n",
        b"2;a\nb\r\n",
        b"0;x\r\n\r\n",
        b"-1\r\n",
    ),
]


def mutated(random: random.Random) -> bytes:
    """One or several requests behind each other, mostly with something wrong in them."""
    data = bytearray(b"".join(random.choice(SEEDS) for _ in range(random.choice((1, 1, 1, 2, 3)))))
    for _ in range(random.choice((0, 1, 1, 1, 2, 3, 5))):
        _mutate(data, random)
    return bytes(data)


def _mutate(data: bytearray, random: random.Random) -> None:
    position = random.randrange(len(data) + 1)
    length = random.choice((1, 1, 1, 2, 4, 16))
    kind = random.randrange(8)
    if kind == 0:
        data[position : position + 1] = bytes([random.randrange(256)])
    elif kind == 1:
        del data[position : position + length]
    elif kind == 2:
        data[position:position] = data[position : position + length]
    elif kind == 3:
        data[position:position] = random.choice(_TOKENS)
    elif kind == 4:
        data[position : position + length] = random.choice(_TOKENS)
    else:
        # A line of its own among the fields is where most of what matters happens.
        lines = data.split(b"\r\n")
        line = random.randrange(len(lines))
        if kind == 5:
            lines[line : line + 1] = [lines[line], random.choice(_TOKENS).removesuffix(b"\r\n")]
        elif kind == 6:
            lines[line : line + 1] = [lines[line], lines[random.randrange(len(lines))]]
        else:
            lines[line] += random.choice(_TOKENS)
        data[:] = b"\r\n".join(lines)
