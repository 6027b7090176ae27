"""Who may talk to the endpoint at all, and what a request must look like before anybody reads it."""

import json
from contextlib import suppress
from typing import Any

import pytest
import trio

from mcpd import Settings
from mcpd.errors import SettingError
from tests import wire
from tests.harness import ConnectionLost, modern_request, rpc, serving
from tests.requirements import requirement
from tests.server.everything import everything

LIST = modern_request("tools/list")
INITIALIZE = rpc(
    "initialize",
    {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}},
    id=1,
)


def with_headers(request: dict[str, Any], **more: str | bytes | None) -> dict[str, Any]:
    return request | {"headers": [*request.get("headers", []), *((k.replace("_", "-"), v) for k, v in more.items())]}


def refused(response: Any) -> dict[str, Any]:
    """A refusal is a JSON-RPC error that belongs to no request, and tells nothing of the inside."""
    message = response.json
    assert set(message) == {"jsonrpc", "id", "error"}
    assert message["id"] is None
    wire.check("2025-11-25", None, message)
    assert "Traceback" not in message["error"]["message"]
    return message["error"]


# ----- Path and method


@requirement("D54")
async def test_there_is_one_path_with_or_without_its_last_slash(front, autojump_clock):
    async with serving(everything(), front=front) as http:
        for path in ("/mcp", "/mcp/", "/mcp?x=1"):
            assert (await http.request("POST", path, **LIST)).status == 200
        for path in ("/", "/MCP", "/mcp/x", "/mcpx", "/mcp//", "/x/mcp", "/sse", "/messages"):
            response = await http.request("POST", path, **LIST)
            assert response.status == 404, path
            refused(response)


@requirement("D54")
async def test_the_path_is_the_operators_choice(front, autojump_clock):
    async with serving(everything(), front=front, path="/api/tools/") as http:
        assert (await http.request("POST", "/api/tools", **LIST)).status == 200
        assert (await http.request("POST", "/mcp", **LIST)).status == 404
    async with serving(everything(), front=front, path="/") as http:
        assert (await http.request("POST", "/", **LIST)).status == 200


@requirement("D71")
@pytest.mark.parametrize("method", ["PUT", "PATCH", "HEAD", "TRACE", "PROPFIND"])
async def test_other_methods_are_not_allowed_and_told_which_are(method, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        response = await http.request(method, headers={})
        assert response.status == 405
        assert set(response.headers["allow"].replace(",", " ").split()) >= {"POST", "GET", "DELETE"}


# ----- Host and Origin


@requirement("D57", "D62")
@pytest.mark.parametrize(
    "host",
    [
        "evil.com",
        "evil.com:8000",
        "localhost.evil.com",
        "127.0.0.1.evil.com",
        "127.0.0.2",
        "0.0.0.0",
        "[::2]",
        "",
        "@",
        "x" * 1000,
    ],
)
async def test_bound_to_loopback_it_answers_for_no_other_host(host, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        for method, request in (("POST", LIST), ("POST", {"json": INITIALIZE}), ("GET", {}), ("DELETE", {})):
            response = await http.request(method, **with_headers(request, Host=host))
            assert response.status in {400, 421}, host
            assert "evil" not in response.body.decode()
        assert await http.count() == 0


@requirement("D57")
@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:9999", "[::1]:80"])
async def test_any_name_of_loopback_will_do(host, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        assert (await http.request("POST", **with_headers(LIST, Host=host))).status == 200


@requirement("D57")
async def test_hosts_can_be_allowed_and_then_no_others_are(front, autojump_clock):
    async with serving(
        everything(), front=front, host="0.0.0.0", allowed_host=("mcp.example.com", "other.example.com:444")
    ) as http:
        for host, status in {
            "mcp.example.com": 200,
            "MCP.example.com:8443": 200,
            "other.example.com:444": 200,
            "other.example.com": 421,
            "localhost": 421,
        }.items():
            assert (await http.request("POST", **with_headers(LIST, Host=host))).status == status, host
    async with serving(everything(), front=front, allowed_host=("*",)) as http:
        assert (await http.request("POST", **with_headers(LIST, Host="anything.example"))).status == 200


async def test_a_body_of_two_lengths_is_refused_and_nothing_behind_it_is_read(front, autojump_clock):
    # A proxy that goes by Content-Length takes what is behind the last chunk for a part of the body.
    head = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    smuggled = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    body = b"0\r\n\r\n" + smuggled
    async with serving(everything(), front=front) as http, http.connect() as connection:
        lengths = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n" % len(body)
        await connection.send_bytes(head + lengths + body, "POST")
        # Hypercorn may end the connection before the refusal is out; what counts is that nothing else comes.
        with suppress(ConnectionLost):
            response = await connection.response()
            assert response.status == 400
            refused(response)
        assert not connection.reusable


@pytest.mark.parametrize("framing", [b"Content-Length: 1000", b"Transfer-Encoding: chunked"], ids=["length", "chunks"])
async def test_a_body_that_only_trickles_in_is_not_waited_for(framing, front, autojump_clock):
    head = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    piece = b" " if b"Length" in framing else b"1\r\n \r\n"
    async with serving(everything(), front=front, body_timeout=30.0) as http, http.connect() as connection:
        await connection.send_bytes(head + framing + b"\r\n\r\n", "POST")
        for _ in range(7):
            await trio.sleep(4.0)
            await connection.send_bytes(piece)
        assert (await connection.response(within=5.0)).status == 408
        await connection.wait_closed()


async def test_a_host_that_is_missing_or_stands_twice_is_refused(front, autojump_clock):
    async with serving(everything(), front=front) as http:
        assert (await http.request("POST", **with_headers(LIST, Host=None))).status == 400
        twice = {**LIST, "headers": [*LIST["headers"], ("Host", "localhost"), ("Host", "localhost")]}
        assert (await http.request("POST", **twice)).status == 400


BAD_ORIGINS = [
    "https://evil.com",
    "http://evil.com:8000",
    "http://localhost.evil.com",
    "http://evil.com/localhost",
    "null",
    "",
    "localhost",
    "file://",
    "http://localhost, http://evil.com",
    "http://localhost http://evil.com",
]


@requirement("D55", "D56", "D62")
@pytest.mark.parametrize("origin", BAD_ORIGINS)
async def test_a_foreign_origin_is_refused_on_every_method(origin, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        session = await http.initialize()
        for method, request in (
            ("POST", LIST),
            ("POST", {"json": INITIALIZE}),
            ("POST", {"json": rpc("tools/list", id=1), "headers": session.headers()}),
            ("GET", {"headers": session.headers({"Accept": "text/event-stream"})}),
            ("DELETE", {"headers": session.headers()}),
            ("OPTIONS", {}),
        ):
            response = await http.request(method, **with_headers(request, Origin=origin))
            assert response.status == 403, (method, origin)
            refused(response)
            assert "access-control-allow-origin" not in response.headers
        assert await http.count() == 1, "a refused request made or ended a session"
        assert (await session.post("ping")).result == {}


@requirement("D55")
async def test_an_origin_that_stands_twice_is_refused(front, autojump_clock):
    async with serving(everything(), front=front) as http:
        twice = {**LIST, "headers": [*LIST["headers"], ("Origin", "http://localhost"), ("Origin", "http://evil.com")]}
        assert (await http.request("POST", **twice)).status == 403


@requirement("D55")
async def test_no_origin_and_ones_own_are_fine_and_browsers_are_told_so(front, autojump_clock):
    async with serving(everything(), front=front, allowed_origin=("https://app.example.com",)) as http:
        plain = await http.request("POST", **LIST)
        assert plain.status == 200
        assert "access-control-allow-origin" not in plain.headers
        for origin in ("http://localhost:6274", "http://127.0.0.1", "https://[::1]:1", "https://app.example.com"):
            response = await http.request("POST", **with_headers(LIST, Origin=origin))
            assert response.status == 200
            assert response.headers["access-control-allow-origin"] == origin
            assert "origin" in response.headers["vary"].lower()
            assert "mcp-session-id" in response.headers["access-control-expose-headers"].lower()
            refusal = await http.request("POST", **with_headers({"json": []}, Origin=origin))
            assert refusal.status == 400
            assert refusal.headers["access-control-allow-origin"] == origin, "a script could not read why"
        assert (await http.request("POST", **with_headers(LIST, Origin="https://app.example.com:444"))).status == 403


@requirement("D55")
async def test_a_preflight_is_answered(front, autojump_clock):
    asked = "content-type, mcp-protocol-version, mcp-param-region, x-evil, mcp-param-\u00e9".encode("latin-1")
    async with serving(everything(), front=front) as http:
        response = await http.request(
            "OPTIONS",
            headers={
                "Origin": "http://localhost:1",
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": asked,
            },
        )
        assert response.status == 204
        allowed = set(response.headers["access-control-allow-headers"].lower().replace(" ", "").split(","))
        assert {
            "content-type",
            "mcp-protocol-version",
            "mcp-session-id",
            "last-event-id",
            "mcp-param-region",
        } <= allowed
        assert not {"x-evil", "*"} & allowed
        assert "POST" in response.headers["access-control-allow-methods"]


@requirement("D58")
def test_only_loopback_is_listened_on_unless_the_operator_says_else():
    assert Settings().host == "127.0.0.1"


# ----- What is posted

NOT_JSON_TYPES = [
    None,
    "",
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "application/jsonx",
]


@requirement("D65", "D62")
@pytest.mark.parametrize("content_type", NOT_JSON_TYPES)
async def test_another_content_type_is_refused(content_type, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        for request in (LIST, {"json": INITIALIZE}):
            response = await http.request("POST", **with_headers(request, Content_Type=content_type))
            assert response.status == 415
            refused(response)
        assert await http.count() == 0


@requirement("D65")
@pytest.mark.parametrize(
    "content_type", ["application/json; charset=utf-8", "Application/JSON", "application/json;x=y"]
)
async def test_json_has_many_ways_to_say_so(content_type, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        assert (await http.request("POST", **with_headers(LIST, Content_Type=content_type))).status == 200


@requirement("D64", "D62")
@pytest.mark.parametrize("accept", ["text/html", "", "application/json;q=0", "image/*"])
async def test_who_takes_neither_json_nor_a_stream_gets_neither(accept, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        for request in (LIST, {"json": INITIALIZE}):
            response = await http.request("POST", **with_headers(request, Accept=accept))
            assert response.status == 406
            refused(response)
        assert await http.count() == 0


@requirement("D63", "D64")
@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("application/json, text/event-stream", "application/json"),
        ("application/*", "application/json"),
        ("text/event-stream", "text/event-stream"),
        ("text/*", "text/event-stream"),
        ("application/json;q=0, */*", "text/event-stream"),
    ],
)
async def test_the_answer_has_a_form_that_the_client_takes(accept, content_type, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        for request, revision, method in (
            (LIST, "2026-07-28", "tools/list"),
            ({"json": INITIALIZE}, "2025-11-25", "initialize"),
        ):
            response = await http.request("POST", **with_headers(request, Accept=accept))
            assert response.status == 200
            assert response.headers["content-type"] == content_type
            wire.check(revision, method, response.answer)


@requirement("D66", "D62", "A9")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b"NaN", -32700),
        (b"null", -32600),
        (b"7", -32600),
        (b'"x"', -32600),
        (b"{}", -32600),
        (b"[]", -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"id":1,"method":"ping"}', -32700),
        (b"[" * 100_000, -32700),
        (b'{"jsonrpc":"2.0","id":' + b"9" * 5_000 + b',"method":"ping"}', -32700),
    ],
    ids=lambda value: repr(value[:40]) if isinstance(value, bytes) else str(value),
)
async def test_a_body_that_is_no_message_is_refused(body, code, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        session = await http.initialize()
        for headers in ({}, dict(LIST["headers"]), dict(session.headers())):
            response = await http.request("POST", body=body, headers=headers)
            assert response.status == 400
            assert refused(response)["code"] == code


@requirement("A6", "A1")
async def test_a_message_that_is_wrong_is_answered_with_its_id_if_it_has_one(front, autojump_clock):
    async with serving(everything(), front=front) as http:
        response = await http.request("POST", json={"jsonrpc": "2.0", "id": "me", "method": 7})
        assert (response.status, response.json["id"], response.json["error"]["code"]) == (400, "me", -32600)


@requirement("D67", "D62")
async def test_a_body_that_is_too_long_is_refused_before_it_is_read(front, autojump_clock):
    async with serving(everything(), front=front, max_body=1_000) as http:
        response = await http.request("POST", body=b" " * 1_001)
        assert response.status == 413
        assert "max-body" in refused(response)["message"]
        # Who says how long it is need not send it.
        response = await http.request("POST", headers={"Content-Type": "application/json", "Content-Length": "9" * 12})
        assert response.status == 413
        # And who does not say it is stopped.
        async with http.connect() as connection:
            await connection.send_bytes(
                b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n" + b"320\r\n" + b" " * 800 + b"\r\n320\r\n" + b" " * 800 + b"\r\n",
                "POST",
            )
            assert (await connection.response()).status == 413


@requirement("D67")
async def test_a_head_that_is_too_long_is_refused(front, autojump_clock):
    async with serving(everything(), front=front) as http:
        response = await http.request("POST", **with_headers(LIST, X_Long="x" * 200_000))
        assert response.status in {400, 431}


@requirement("D67")
def test_bounds_that_can_never_work_are_refused():
    for wrong in ({"max_body": 0}, {"max_sessions": 0}, {"session_idle": 0.0}, {"heartbeat": -1.0}, {"path": "mcp"}):
        with pytest.raises(SettingError, match=next(iter(wrong))):
            Settings(**wrong)  # type: ignore[arg-type]


@requirement("D60")
async def test_there_is_one_message_in_a_post(front, autojump_clock):
    message = LIST["json"]
    async with serving(everything(), front=front) as http:
        session = await http.initialize()
        for headers in (LIST["headers"], session.headers()):
            for body in ([message], [message, message], [message, {"jsonrpc": "2.0", "method": "notifications/x"}]):
                response = await http.request("POST", json=body, headers=headers)
                assert response.status == 400
                assert refused(response)["code"] == -32600
            two = json.dumps(message).encode() * 2
            assert (await http.request("POST", body=two, headers=headers)).status == 400


# ----- Liveness


async def test_health_and_readiness_need_no_host_and_no_body(front, autojump_clock):
    async with serving(everything(), front=front) as http:
        for path in ("/health", "/ready"):
            response = await http.request("GET", path, headers={"Host": "10.0.0.1:8000"})
            assert response.status == 200
            assert response.json == {"status": "ok"}
            assert (await http.request("HEAD", path)).status == 200
            assert (await http.request("POST", path, body=b"")).status == 405
