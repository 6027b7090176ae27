"""Whole HTTP requests: through the direct front and the endpoint to a real server, which lives for one input."""

import re
from typing import Any, Final

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.fuzz.app import server
from tests.fuzz.target import target
from tests.harness import LEGACY, encode_request, modern_request, rpc, serving

_SHORT: Final[dict[str, float]] = {"header_timeout": 3, "body_timeout": 3, "keep_alive": 3, "write_timeout": 5}
"""Seconds of a mock clock, and yet each of them costs: background tasks wake up meanwhile."""
_SESSION: Final = "the-session-of-the-input"
"""Stands in an input for the ID of a session that is there."""
_STATUS: Final = re.compile(rb"HTTP/1\.1 (\d\d\d)[^\r\n]*\r\n")
_REFUSED_BY_THE_FRONT: Final = {b"501", b"505"}
"""What a front says of a transfer coding or a version of HTTP that it does not know (RFC 9110, 15.6)."""


def _legacy(message: Any, **headers: str | None) -> bytes:
    fields = {"Mcp-Session-Id": _SESSION, "MCP-Protocol-Version": LEGACY}
    return encode_request(
        "POST", headers=fields | {name.replace("_", "-"): value for name, value in headers.items()}, json=message
    )


def _modern(method: str, params: dict[str, Any], **named: Any) -> bytes:
    return encode_request("POST", **modern_request(method, params, **named))


_CLIENT: Final = {
    "protocolVersion": LEGACY,
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "c", "version": "1"},
}
_SEEDS: Final = [
    _legacy(rpc("initialize", _CLIENT, id=0), Mcp_Session_Id=None),
    _legacy(rpc("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": {"progressToken": 1}}, id=1)),
    _legacy(rpc("tools/call", {"name": "ask", "arguments": {}}, id="x")),
    _legacy(
        rpc(
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "A"}},
            id=2,
        )
    ),
    _legacy(rpc("notifications/cancelled", {"requestId": 1, "reason": "r"})),
    _legacy([rpc("ping", id=1), rpc("notifications/initialized")]),
    encode_request("GET", headers={"Mcp-Session-Id": _SESSION, "Accept": "text/event-stream", "Last-Event-ID": "0.1"}),
    encode_request("DELETE", headers={"Mcp-Session-Id": _SESSION}),
    encode_request(
        "OPTIONS", headers={"Origin": "http://localhost:1", "Access-Control-Request-Headers": "mcp-param-a"}
    ),
    _modern("tools/call", {"name": "add", "arguments": {"a": 1}}),
    _modern(
        "tools/call", {"name": "ask", "inputResponses": {}, "requestState": "AAAA"}, capabilities={"elicitation": {}}
    ),
    _modern("resources/read", {"uri": "file://a/b%20c/d?line=1"}),
    _modern("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}}, meta={"progressToken": "t"}),
    _modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}),
    _modern("server/discover", {}),
]


@target(
    seeds=_SEEDS,
    tokens=[
        *(
            b"\r\n",
            b"\r\n\r\n",
            b"\n",
            b"\x00",
            b"\xff",
            b"{",
            b"}",
            b"[",
            b"]",
            b'"',
            b",",
            b":",
            b"null",
            b"1e400",
            b"1" * 30,
        ),
        *(
            b"[" * 500,
            b"\\ud800",
            b'"id":null,',
            b'"a":1,',
            b"=?base64?AA==?=",
            b"Mcp-Method: x\r\n",
            b"Accept: a/b\r\n",
        ),
        *(
            b"Content-Length: 0\r\n",
            b"/sse",
            b"/metrics",
            b"/health",
            b"?",
            b"%00",
            b"Origin: null\r\n",
            b"HEAD",
            b"PUT",
            b"POST",
        ),
    ],
)
def request(data: bytes) -> None:
    """Whatever comes on a connection, it is no error of the server's, and nothing is left of it but sessions."""
    trio.run(_drive, data, clock=MockClock(autojump_threshold=0))


async def _drive(data: bytes) -> None:
    async with serving(server, front="direct", **_SHORT) as http:
        session = await http.initialize(capabilities={"elicitation": {}})
        await wait_all_tasks_blocked()
        before = trio.lowlevel.current_statistics().tasks_living
        said = bytearray()
        connection = http.connect()
        await connection.send_bytes(data.replace(_SESSION.encode(), session.id.encode()))
        await connection.half_close()
        with trio.move_on_after(12):
            while piece := await connection._end.receive_some(65_536):
                said += piece
        await connection.aclose()
        statuses = [status for status in _STATUS.findall(bytes(said)) if status not in _REFUSED_BY_THE_FRONT]
        assert not [status for status in statuses if status >= b"500"], bytes(said)
        assert b"-32603" not in said or b"-32603" in data, bytes(said)
        # Within this time calls have ended, questions have been given up, and all that waits has come to its end.
        await trio.sleep(20)
        await wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == before
        assert not http.endpoint.calls
        assert not http.endpoint.streams
        assert http.endpoint.sessions.busy() == 0
        assert await http.count() <= 2
