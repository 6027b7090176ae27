"""What clients carry for us and bring back: sealed states, cursors, event ids, URIs; and what a store keeps for us."""

import base64
import json
from typing import Any, Final

import msgspec
import trio

from mcpd import Server
from mcpd.errors import INVALID_PARAMS, ProtocolError
from mcpd.protocol import sse
from mcpd.protocol.jsonrpc import one_line
from mcpd.protocol.revisions import LEGACY, MODERN
from mcpd.server.dispatch import Dispatcher
from mcpd.server.seal import Sealer, State, _cipher, binding
from mcpd.server.uri_template import UriTemplate, UriTemplateError
from mcpd.sessions.record import decode_record, encode_record
from mcpd.sessions.signals import decode_signal, encode_signal
from mcpd_stores.memory import MemoryStore
from tests.fuzz.target import target
from tests.harness.responses import SseReader

_KEY: Final = "a key that is known to the fuzzer"
_sealer: Final = Sealer([_KEY], now=lambda: 1000.0)
((_KEY_ID, _SECRET),) = _sealer._keys.items()
_BOUND: Final = binding(("issuer", "subject"), "tools/call", {"name": "x", "arguments": {"a": 1}})
_PLAIN: Final = msgspec.msgpack.encode(State(2000.0, {"k d": b'{"action":"accept"}'}, {"once": b"1"}))


def _sealed(plain: bytes) -> bytes:
    """Sealed as `Sealer` does it, but always with the same nonce, so that a run can be repeated."""
    nonce = b"twelve bytes"
    text: bytes = _KEY_ID + nonce + _cipher(_SECRET).encrypt(nonce, plain, _BOUND)
    return base64.urlsafe_b64encode(text)


_SEALED: Final = _sealed(_PLAIN)


@target(
    seeds=[_SEALED, _SEALED[:-4], _SEALED.rstrip(b"="), b""],
    tokens=[b"=", b"A", b"-", b"_", b"+", b"/", b"\n", b"\xff"],
)
def state(data: bytes) -> None:
    """A requestState that is not exactly what was sealed is refused, always with the same words."""
    text = data.decode("latin-1")
    opened = _opened(text)
    assert (opened is not None) == (data == _SEALED)
    if opened is not None:
        assert msgspec.msgpack.encode(opened) == _PLAIN


@target(
    seeds=[_PLAIN, msgspec.msgpack.encode([2000.0]), b"\x90", b"\xdd\xff\xff\xff\xff"], tokens=[b"\x91" * 2000, b"\xc1"]
)
def sealed_state(data: bytes) -> None:
    """Also what another version of mcpd has sealed, with our key, is a state or refused."""
    opened = _opened(_sealed(data).decode())
    assert opened is None or isinstance(opened, State)


def _opened(text: str) -> State | None:
    try:
        return _sealer.open(text, _BOUND)
    except ProtocolError as exc:
        assert (exc.code, exc.message) == (INVALID_PARAMS, "Invalid requestState: call again without it")
        return None


# ----- Cursors


def _offer() -> Any:
    server = Server("pages", version="1")
    for number in range(250):
        server.tool(lambda: None, name=f"tool{number}")
    return Dispatcher(server).offer


_tools: Final = _offer().tools
_CURSORS: Final[list[str]] = []
while (_page := json.loads(bytes(_tools.page(_CURSORS[-1] if _CURSORS else None, MODERN["2026-07-28"])))).get(
    "nextCursor"
):
    _CURSORS.append(_page["nextCursor"])


@target(
    seeds=[each.encode() for each in [*_CURSORS, "dG9vbHM6OTk5OTk5"]], tokens=[b"=", b"\n", b"dG9vbHM6", b"A" * 6000]
)
def cursor(data: bytes) -> None:
    """A cursor is one that was given, one that could have been, or an error."""
    text = data.decode("latin-1")
    for revision in (MODERN["2026-07-28"], LEGACY["2025-11-25"]):
        try:
            page = json.loads(bytes(_tools.page(text, revision)))
        except ProtocolError as exc:
            assert exc.code == INVALID_PARAMS
            assert text not in _CURSORS
        else:
            assert base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).startswith(b"tools:")
            assert len(page["tools"]) < 250


# ----- Streams


@target(
    seeds=[b'{"a":"\xe2\x80\xa8\xc2\x85\\n"}', b'{\n"a":\r\n1}', b'"id: 1\\ndata: x"'],
    tokens=[b"\n", b"\r", b"\n\n", b"\xe2\x80\xa9", b"\xc2\x85", b"data: ", b"\x00", b'"', b"\\", b":"],
)
def event(data: bytes) -> None:
    """Any JSON, however it was written, comes out of a stream as it went in."""
    try:
        plain = json.loads(data.decode())  # of bytes it would take surrogates
        line = one_line(bytes(msgspec.json.decode(data, type=msgspec.Raw)))
    except (ValueError, RecursionError):
        return
    reader = SseReader()
    reader.feed(sse.priming("0.1", retry=1.5) + sse.HEARTBEAT + sse.message(line, "abc-_.12") + sse.message(line))
    reader.end()
    first, second, third = reader.events
    assert (first.id, first.data, first.retry) == ("0.1", "", 1500)
    assert (second.id, third.id, reader.comments) == ("abc-_.12", None, 1)
    assert json.dumps(second.json) == json.dumps(third.json) == json.dumps(plain)
    # Every line end that any client knows of is one of ours.
    assert len((sse.message(line)).decode().splitlines()) == 3


@target(
    seeds=[b"s.1", b"s.2", b"s.3", b"t.4", b"0.5", b"s.+1", b"s.\xb2", b"."],
    tokens=[b".", b"0", b"\xb9", b"_", b" ", b"-"],
)
def event_id(data: bytes) -> None:
    """A Last-Event-ID that was not given to this stream of this session leads nowhere."""
    stream, _, after = data.decode("latin-1").rpartition(".")

    async def resume() -> None:
        log = MemoryStore().events
        for session, name in (("one", "s"), ("one", "s"), ("two", "s"), ("one", "t"), ("one", "0")):
            await log.append(session, name, session.encode())
        found = await log.read("one", stream, after=after)
        rest = {"s.1": 1, "s.2": 0, "t.4": 0, "0.5": 0}.get(f"{stream}.{after}")
        assert (None if found is None else len(found[0])) == rest
        assert found is None or all(each.data == b"one" for each in found[0])

    trio.run(resume)


# ----- URIs

_URI_TOKENS: Final = [
    *(
        b"{",
        b"}",
        b"{x}",
        b"{+x}",
        b"{#y}",
        b"{.z}",
        b"{/p*}",
        b"{;x}",
        b"{?q,r}",
        b"{&s}",
        b"*",
        b":3",
        b",",
        b"%",
        b"%2F",
    ),
    *(b"%2e", b"..", b"/../", b"\\", b"?", b"#", b"&", b"=", b"\x00", b"%00", b"%C3", b"\xc3\xa9", b"://", b"\n", b" "),
]


@target(
    seeds=[
        b"note://{name}\nnote://a%20b",
        b"file:///{+path}\nfile:///a/b.txt",
        b"x:/{a,b}/{c}{?q,r}\nx:/1,2/3?r=4&q=5",
        b"repo://{owner}{/path*}{#part}\nrepo://me/a/b#c",
        "x://caf\u00e9/{x}{.y}{;z}\nx://caf%C3%A9/1.2;z=3".encode(),
    ],
    tokens=_URI_TOKENS,
)
def uri_template(data: bytes) -> None:
    """What a template finds in a URI makes the same URI again, is safe as a name, and is found again."""
    try:
        text, _, uri = data.decode().partition("\n")
        template = UriTemplate(text)
    except (UnicodeDecodeError, UriTemplateError):
        return
    values = template.match(uri)
    if values is None:
        return
    assert set(values) <= set(template.variables)
    for value in values.values():
        assert "\0" not in value or "?" in text or "&" in text
    again = template.expand(values)
    assert template.match(again) == values, f"{uri!r} gives {values}, which give {again!r}"


# ----- What a store keeps

_RECORD: Final = encode_record(
    msgspec.convert(
        ["2025-11-25", {"elicitation": {}}, {"name": "c", "version": "1"}, True, "info", ["note://1"], {"k": b"1"}, []],
        Any,
    )
)


@target(
    seeds=[_RECORD, msgspec.msgpack.encode(["sender", "cancel", "key", b"1"]), b"\x98", b"\xc1"],
    tokens=[b"\x91" * 2000, b"\xa0", b"\xc0", b"\xde\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc7\x08\x01"],
)
def record(data: bytes) -> None:
    """Bytes that another version, or another program, has left in a store: a record, or none."""
    found = decode_record(data)
    assert found is None or decode_record(encode_record(found)) == found
    try:
        signal = decode_signal(data)
    except msgspec.MsgspecError:
        return
    assert decode_signal(encode_signal(signal)) == signal
