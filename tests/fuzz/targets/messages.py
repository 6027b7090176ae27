"""JSON-RPC messages and what is in them: what is taken is what anybody else would read, and nothing else is raised."""

import json
from typing import Any, Final

import msgspec

from mcpd.errors import INVALID_REQUEST, PARSE_ERROR, ProtocolError
from mcpd.protocol import envelope, requests
from mcpd.protocol.headers import Headers
from mcpd.protocol.jsonrpc import UNSET, Message, MessageError, decode, decode_batch, encode_error
from tests.fuzz.target import target

SEEDS: Final = [
    b'{"jsonrpc":"2.0","id":1,"method":"ping"}',
    b'{"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": {"name": "x", "arguments": {"a": [1, -0.5e3]}}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"\\u00e9\\ud83d\\ude00"}}',
    b'{"jsonrpc":"2.0","id":7,"result":{"action":"accept","content":{"name":"Ada"}}}',
    b'{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"no","data":[null,true]}}',
    b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"}]',
    (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
        b'"clientInfo":{"name":"c","version":"1"}}}'
    ),
]
TOKENS: Final = [
    *(
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b" ",
        b"\n",
        b"null",
        b"true",
        b"NaN",
        b"Infinity",
        b"-0",
        b"0.0",
    ),
    *(
        b"1e400",
        b"1e-400",
        b"1" * 25,
        b"9223372036854775808",
        b"18446744073709551616",
        b"1.0",
        b"01",
        b"0x1",
        b"[" * 300,
    ),
    *(b"\\ud800", b"\\udc00", b"\\u0000", b"\x00", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xe2\x80\xa8"),
    *(
        b'"id":2,',
        b'"id":null,',
        b'"jsonrpc":"2.0",',
        b'"method":"x",',
        b'"params":{},',
        b'"params":[],',
        b'"result":{},',
    ),
    *(b'"error":{"code":1,"message":"m"},', b'"__proto__":{},', b'"_meta":{"progressToken":1},', b'"i\\u0064":3,'),
]


@target(seeds=SEEDS, tokens=TOKENS)
def message(data: bytes) -> None:
    """A body is one message, a batch or an error; what is read is what Python's own decoder reads."""
    try:
        batch = decode_batch(data)
        found: list[Message | MessageError] = [decode(data)] if batch is None else batch
    except MessageError as exc:
        _check_refusal(exc)
        assert not _is_message(data), f"refused: {exc.message}"
        return
    plain = _strictly(data)
    for each, read in zip(found, [plain] if batch is None else plain, strict=True):
        if isinstance(each, MessageError):
            _check_refusal(each)
            assert isinstance(read, list) or not _is_message(json.dumps(read).encode()), f"refused: {each.message}"
            continue
        assert isinstance(read, dict)
        for name, ours in (("id", each.id), ("method", each.method)):
            # True is 1 to Python, and to nobody else.
            assert (ours is UNSET and name not in read) or (ours == read[name] and type(ours) is type(read[name]))
        assert msgspec.json.decode(each.params) == read.get("params", {})
        assert each.is_response == ("result" in read or "error" in read) or each.method is not UNSET


_FIELDS: Final = b"MCP-Protocol-Version: 2026-07-28\nMcp-Method: tools/call\nMcp-Name: add\n"
_META: Final = (
    b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},'
    b'"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"progressToken":"t"}'
)
_MIRRORED: Final = [(("region",), "Region", "string"), (("deep", "n"), "N", "integer"), (("on",), "On", "boolean")]
_KINDS: Final = [
    *(requests.InitializeParams, requests.CallToolParams, requests.ReadResourceParams, requests.GetPromptParams),
    *(requests.ListParams, requests.UriParams, requests.SetLevelParams, requests.CompleteParams),
    *(requests.CancelledParams, requests.ListenParams),
]


@target(
    seeds=[
        _FIELDS + b'\n{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add",' + _META + b"}}",
        _FIELDS + b"Mcp-Param-Region: =?base64?w6k=?=\nMcp-Param-N: 42\nMcp-Param-On: true\n\n"
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"region":"\xc3\xa9",'
        b'"deep":{"n":42.0},"on":true},' + _META + b"}}",
        b'MCP-Protocol-Version: 2026-07-28\n\n{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x",'
        + _META
        + b"}}",
    ],
    tokens=[
        *(
            b"\n",
            b": ",
            b"\n\n",
            b"Mcp-Name: add\n",
            b"Mcp-Param-N: 4_2\n",
            b"=?base64?",
            b"?=",
            b"=?base64??=",
            b"MDE=",
        ),
        *(b"io.modelcontextprotocol/logLevel", b'"debug"', b"progressToken", b'"deep":{},', b'"arguments":[]', b"1e15"),
        *TOKENS,
    ],
)
def modern_request(data: bytes) -> None:
    """Whatever headers and body say, a modern request is taken or refused with an error that can be sent."""
    head, _, body = data.partition(b"\n\n")
    lines = [line.partition(b":") for line in head.split(b"\n")]
    headers = Headers([(name.strip().lower(), value.strip()) for name, _, value in lines])
    try:
        read = decode(body)
    except MessageError:
        return
    for kind in _KINDS:
        _refuses_well(requests.decode_params, kind, read.params)
    meta = _refuses_well(requests.read_meta, read.params)
    if meta is None or not envelope.is_modern(meta, headers.get(b"mcp-protocol-version")):
        return
    said = headers.get(b"mcp-protocol-version")
    _refuses_well(envelope.read_envelope, meta, header=said, over_http=True)
    if read.method is UNSET:
        return
    _refuses_well(envelope.check_headers, headers, read.method, read.params)
    call = _refuses_well(requests.decode_params, requests.CallToolParams, read.params)
    if call is not None:
        _refuses_well(envelope.check_parameters, headers, _MIRRORED, call.arguments)


def _refuses_well(check: Any, *arguments: Any, **named: Any) -> Any:
    """What *check* says; None when it refuses, which must be with an error for the client."""
    try:
        return check(*arguments, **named)
    except ProtocolError as exc:
        sent = json.loads(encode_error(1, exc))
        assert sent["error"]["code"] == exc.code
        assert exc.http_status in {None, 400}
        return None


def _check_refusal(exc: MessageError) -> None:
    assert exc.code in {PARSE_ERROR, INVALID_REQUEST}
    sent = json.loads(encode_error(exc.id, exc))
    assert sent["id"] == exc.id
    assert type(exc.id) in {int, str, type(None)}


# ----- What others read


def _strictly(data: bytes) -> Any:
    """The same by Python's decoder; an error for what is no JSON, or not the same to everybody."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs), "a key stands twice"
        return dict(pairs)

    def constant(name: str) -> Any:
        raise AssertionError(f"{name} is no JSON")

    plain = json.loads(data.decode(), object_pairs_hook=members, parse_constant=constant)
    json.dumps(plain, ensure_ascii=False, allow_nan=False).encode()  # no lone surrogate, no number that does not fit
    return plain


def _is_message(data: bytes) -> bool:
    """Whether it is one message, or a batch, beyond all doubt: small, and right in every member."""
    if len(data) > 1000:
        return False
    try:
        plain = _strictly(data)
    except (AssertionError, ValueError, RecursionError):
        return False
    if isinstance(plain, list):
        return bool(plain)
    if not isinstance(plain, dict) or plain.get("jsonrpc") != "2.0" or not isinstance(plain.get("params", {}), dict):
        return False
    if "id" in plain and type(plain["id"]) not in {int, str}:
        return False
    if "method" in plain:
        # A request with the members of a response is nobody's; mcpd looks only whether they are well-formed.
        return isinstance(plain["method"], str) and "error" not in plain
    error = plain.get("error")
    if ("result" in plain) == ("error" in plain) or "id" not in plain:
        return False
    return "result" in plain or (
        isinstance(error, dict) and type(error.get("code")) is int and isinstance(error.get("message"), str)
    )
