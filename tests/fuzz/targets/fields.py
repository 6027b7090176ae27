"""Header fields, and requests as the direct front reads them."""

import base64
import json
from ipaddress import ip_address, ip_network
from types import SimpleNamespace
from typing import Any, Final, cast
from urllib.parse import urlsplit

from mcpd.endpoint.guard import Guard
from mcpd.endpoint.proxies import Proxies
from mcpd.errors import ProtocolError
from mcpd.protocol.headers import Headers, accepted, is_json, is_loopback, unwrap
from tests.fronts.mutations import SEEDS
from tests.fronts.reading import disagreement
from tests.fuzz.target import target
from tests.harness import header_text

_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1", "example.com", "other.example", "app.example"})
_guard: Final = Guard(
    loopback=True, hosts=("example.com", "other.example:8443"), origins=("https://app.example", "https://[::1]")
)
_TRUSTED: Final = ip_network("10.0.0.0/8")
_proxies: Final = Proxies([str(_TRUSTED), "2001:db8::/32", "unix"])


@target(
    seeds=[
        b"application/json, text/event-stream",
        b"text/*;q=0.5, */*; q=0, application/json;q=0.000;x",
        b'Application/JSON ; charset="UTF-8"; profile=x',
    ],
    tokens=[b",", b";", b"=", b"q=0", b"q=0.0001", b"*/*", b"text/*", b"charset=latin1", b'"', b" ", b"\t"],
)
def media(data: bytes) -> None:
    """Accept and Content-Type: case and white space around separators mean nothing."""
    text = data.decode("latin-1").strip(" \t")
    spaced = text.swapcase().replace(",", " ,\t").replace(";", " ; ")
    if spaced.lower() == text.lower().replace(",", " ,\t").replace(";", " ; "):  # not so for a few letters of Latin-1
        assert accepted(spaced) == accepted(text)
        assert is_json(spaced) == is_json(text)
    if is_json(text):
        assert accepted(text.partition(";")[0])[0]


@target(
    seeds=[
        b"localhost:8000\nhttp://localhost:6274",
        b"[::1]:8000\nhttps://app.example",
        b"EXAMPLE.com\nhttps://Example.com:8443",
        b"other.example:8443\nhttps://other.example:8443",
        b"127.0.0.1\nnull",
    ],
    tokens=[
        *(
            b"://",
            b":",
            b"@",
            b"/",
            b"#",
            b"?",
            b"\\",
            b"%00",
            b"%2e",
            b".",
            b",",
            b" ",
            b"\t",
            b"\r",
            b"\x00",
            b"\xff",
        ),
        *(b"evil.example", b"localhost", b"http", b"[", b"]", b"::ffff:127.0.0.1", b"0", b":80", b"file", b"*"),
    ],
)
def guard(data: bytes) -> None:
    """Who passes is one of those who may, as everybody else reads Host and Origin."""
    host, _, origin = data.partition(b"\n")
    headers = Headers([(b"host", host), (b"origin", origin)])
    try:
        cors = dict(_guard.check(headers))
    except ProtocolError as exc:
        assert exc.http_status in {400, 403, 421}
        json.dumps(exc.message)
        return
    assert urlsplit("//" + host.decode("latin-1").strip(" \t")).hostname in _NAMES
    split = urlsplit(origin.decode("latin-1").strip(" \t"))
    assert split.hostname in _NAMES
    assert split.scheme in {"http", "https"}
    assert (split.username, split.path, split.query, split.fragment) == (None, "", "", "")
    allowed = cors[b"access-control-allow-origin"]
    assert allowed == origin.strip(b" \t")
    assert not set(allowed) & set(b"\r\n\0 ,")
    is_loopback(host.decode("latin-1"))


@target(
    seeds=[b"mcp-param-region, Mcp-Param-A.b, content-type", b"x" * 200, b"mcp-param-,mcp-param-\xe9"],
    tokens=[b"mcp-param-", b",", b"\r\n", b"\x00", b":", b"\xff", b" "],
)
def preflight(data: bytes) -> None:
    """What a preflight asks for is mirrored only as names of fields."""
    fields = dict(_guard.preflight(Headers([(b"access-control-request-headers", data)])))
    names = fields[b"access-control-allow-headers"].decode("ascii").split(", ")
    assert all(name and set(name) <= set("!#$%&'*+.^_`|~0123456789abcdefghijklmnopqrstuvwxyz-") for name in names)


@target(
    seeds=[b"=?base64?aGVsbG8=?=", b"plain", b"=?base64?w6k=?=", b"=?base64??=", "né\n".encode()],
    tokens=[b"=?base64?", b"?=", b"=", b"==", b"\n", b"A", b"_", b"-", b"\xff", b"/w=="],
)
def sentinel(data: bytes) -> None:
    """A header value in a base64 sentinel: whatever goes in comes out, and there is one way to write it."""
    value = data.decode("latin-1")
    text = unwrap(value)
    if value.startswith("=?base64?") and value.endswith("?=") and len(value) >= 11:
        if text is not None:
            assert f"=?base64?{base64.b64encode(text.encode()).decode()}?=" == value
    else:
        assert text == value
    try:
        any_text = data.decode()
    except UnicodeDecodeError:
        return
    assert unwrap(header_text(any_text)) == any_text


@target(
    seeds=[
        b'10.0.0.1\nfor=192.0.2.1;host="a.example:8443";proto=https, for="[2001:db8::1]:4711"\n\n\n',
        b"10.0.0.1\n\n192.0.2.1, 10.1.2.3\na.example\nhttps",
        b"192.0.2.9\nfor=127.0.0.1\n127.0.0.1\nb\nhttp",
    ],
    tokens=[
        b"for=",
        b"host=",
        b"proto=",
        b'"',
        b"\\",
        b",",
        b";",
        b"=",
        b"[",
        b"]",
        b"unknown",
        b"_x",
        b"\n",
        b"::",
        b" ",
    ],
)
def forwarded(data: bytes) -> None:
    """What proxies say: a client is an address, a scheme is one of two, and a stranger is believed nothing."""
    peer, standard, *plain = data.split(b"\n")[:5] if data.count(b"\n") else (data, b"")
    names = (b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto")
    fields = [(b"forwarded", standard), *zip(names, plain, strict=False)]
    address = peer.decode("latin-1")
    exchange: Any = SimpleNamespace(client=address, headers=Headers([field for field in fields if field[1]]))
    seen = _proxies.seen(cast("Any", exchange))
    assert seen.scheme in {None, "http", "https"}
    if seen.client not in {None, address}:
        ip_address(str(seen.client))
        # Without an address it came by a Unix socket, which is trusted here.
        assert not address or ip_address(address) in _TRUSTED or ip_address(address).version == 6


@target(
    seeds=SEEDS, tokens=[b"\r\n", b"\n", b" ", b"\t", b"0", b"chunked", b"Content-Length: 3\r\n", b"\x00", b":", b","]
)
def http(data: bytes) -> None:
    """The direct front's parser takes nothing that h11 refuses, and understands by it what h11 does."""
    found = disagreement(data)
    assert found is None, found
