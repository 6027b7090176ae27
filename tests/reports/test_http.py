"""HTTP in the field: headers that clients and proxies send, and pages that should not have been let in."""

import logging

import pytest
import trio

from tests.harness import META, encode_request, process, rpc
from tests.reports.rig import Rig
from tests.reports.storage import in_memory

INITIALIZE = rpc(
    "initialize",
    {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "web", "version": "1"}},
    id=1,
)
JSON, SSE = "application/json", "text/event-stream"


ACCEPT = {
    "absent": ([("Accept", None)], JSON),
    "anything": ([("Accept", "*/*")], JSON),
    "a family": ([("Accept", "application/*")], JSON),
    "the other family": ([("Accept", "text/*;q=0.5")], SSE),
    "another case": ([("Accept", "Application/JSON")], JSON),
    "two fields": ([("Accept", "application/json"), ("Accept", "text/event-stream")], JSON),
    "both": ([("Accept", "application/json, text/event-stream")], JSON),
    "both, the other way round": ([("Accept", "text/event-stream,application/json")], JSON),
    "with spaces and quality": ([("Accept", "text/html ; q=0.1 , application/json ; q=0.9")], JSON),
    "JSON alone": ([("Accept", "application/json")], JSON),
    "a stream alone": ([("Accept", "text/event-stream")], SSE),
    "a browser": ([("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")], JSON),
}


@pytest.mark.parametrize("what", ACCEPT)
async def test_r48_accept_is_read_generously(clock, rig: Rig, front: str, what: str):
    """406 for clients that accept everything, or one of the two forms, shut hosted proxies and health tools out."""
    fields, content_type = ACCEPT[what]
    async with rig.serving(front=front) as http:
        response = await http.request("POST", headers=fields, json=INITIALIZE)
        assert response.status == 200
        assert response.headers["content-type"] == content_type
        session = await http.initialize()
        response = await session.call("echo", {"text": "x"}, headers=fields)
        assert response.headers["content-type"] == content_type
        assert response.text == "x"


@pytest.mark.parametrize("accept", ["text/html", "image/*", "application/json;q=0", "text/plain, text/html", ""])
async def test_r48_what_cannot_be_answered_is_406(clock, rig: Rig, front: str, accept: str):
    """And what excludes both forms is refused, in JSON all the same."""
    async with rig.serving(front=front) as http:
        response = await http.request("POST", headers={"Accept": accept}, json=INITIALIZE)
        assert response.status == 406
        assert "application/json" in response.json["error"]["message"]


async def test_r48_json_alone_gets_json_after_a_long_wait(clock, rig: Rig, front: str):
    """A client that takes no stream is sent none, however long the call takes."""
    async with rig.serving(front=front, stream_after=0.1) as http:
        session = await http.initialize()
        response = await session.call("steps", {"count": 30}, progress=1, headers={"Accept": "application/json"})
        assert response.headers["content-type"] == JSON
        assert response.text == "30 steps"


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON",
        'application/json;charset="UTF-8"',
        "application/json ; charset=UTF-8",
        "application/json; charset=utf8",
        "application/json; profile=x; charset=utf-8",
    ],
)
async def test_r49_json_by_any_name(clock, rig: Rig, front: str, content_type: str):
    """Java and .NET clients name a character set, and were refused for it."""
    async with rig.serving(front=front) as http:
        response = await http.request("POST", headers={"Content-Type": content_type}, json=INITIALIZE)
        assert response.status == 200


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        None,
        "application/json; charset=utf-16",
        "application/jsonp",
        "",
        "application/x-www-form-urlencoded",
    ],
)
async def test_r49_anything_else_is_415(clock, rig: Rig, front: str, content_type):
    """What is no JSON is refused: a web form can send text/plain to any server without asking first."""
    async with rig.serving(front=front) as http:
        response = await http.request("POST", headers={"Content-Type": content_type}, json=INITIALIZE)
        assert response.status == 415
        assert "application/json" in response.json["error"]["message"]
        assert await http.count() == 0


@pytest.mark.parametrize("configured", ["/mcp", "/mcp/", "/", "/a/b"])
async def test_r50_both_forms_of_the_path_are_served(clock, rig: Rig, front: str, configured: str):
    """Redirects from one form to the other lost the Authorization header, or the scheme."""
    bare = configured.rstrip("/")
    paths = [bare + "/"] if bare == "" else [bare, bare + "/"]
    async with rig.serving(front=front, path=configured) as http:
        for path in paths:
            response = await http.request("POST", path, json=INITIALIZE)
            assert response.status == 200
            headers = {"Mcp-Session-Id": response.headers["mcp-session-id"]}
            assert (await http.request("POST", path, headers=headers, json=rpc("ping", id=1))).status == 200
            async with http.open("GET", path, headers=headers) as stream:
                assert stream.status == 200
            assert (await http.request("DELETE", path, headers=headers)).status == 204
        for path in (f"{configured.rstrip('/')}//", "/MCP" if configured != "/" else "/x", f"{bare}/x"):
            response = await http.request("POST", path, json=INITIALIZE)
            assert response.status == 404
            assert configured in response.json["error"]["message"]


ORIGIN = "https://app.example.com"
EXPOSED = {"mcp-session-id", "www-authenticate"}


def names(field: str) -> set[str]:
    return {name.strip().lower() for name in field.split(",")}


async def test_r51_preflight(clock, rig: Rig, front: str):
    """The preflight needed credentials, or forgot the MCP headers and DELETE."""
    async with rig.serving(front=front, allowed_origin=(ORIGIN,)) as http:
        for asked in ("content-type,mcp-session-id", "authorization, mcp-param-region"):
            response = await http.request(
                "OPTIONS",
                headers={
                    "Origin": ORIGIN,
                    "Access-Control-Request-Method": "POST",
                    "Access-Control-Request-Headers": asked,
                    "Accept": None,
                },
            )
            assert response.status == 204
            assert response.body == b""
            assert response.headers["access-control-allow-origin"] == ORIGIN
            assert names(response.headers["access-control-allow-methods"]) >= {"get", "post", "delete"}
            allowed = names(response.headers["access-control-allow-headers"])
            assert allowed >= {
                "authorization",
                "content-type",
                "accept",
                "mcp-session-id",
                "mcp-protocol-version",
                "mcp-method",
                "mcp-name",
                "last-event-id",
            }
            assert names(asked) <= allowed
        refused = await http.request(
            "OPTIONS", headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
        )
        assert refused.status == 403
        assert "access-control-allow-origin" not in refused.headers


async def test_r51_every_reply_can_be_read_by_the_page(clock, rig: Rig, front: str):
    """Only the preflight exposed the session header, so the page could not send it with its next request."""
    web = {"Origin": ORIGIN}
    async with rig.serving(front=front, allowed_origin=(ORIGIN,), max_body=4_096, max_sessions=1) as http:
        opened = await http.request("POST", headers=web, json=INITIALIZE)
        session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]} | web
        replies = {
            200: opened,
            202: await http.request("POST", headers=session, json=rpc("notifications/initialized")),
            404: await http.request("POST", headers=web | {"Mcp-Session-Id": "x"}, json=rpc("ping", id=1)),
            400: await http.request("POST", headers=web, body=b"{"),
            405: await http.request("PUT", headers=web, body=b"{}"),
            406: await http.request("POST", headers=web | {"Accept": "text/html"}, json=INITIALIZE),
            413: await http.request("POST", headers=web, body=b"x" * 5_000),
            415: await http.request("POST", headers=web | {"Content-Type": "text/plain"}, json=INITIALIZE),
        }
        async with http.open("GET", headers=session) as stream:
            replies[200.1] = stream
            replies[503] = await http.request("POST", headers=web, json=INITIALIZE)
        replies[204] = await http.request("DELETE", headers=session)
        for status, reply in replies.items():
            assert reply.status == int(status)
            assert reply.headers["access-control-allow-origin"] == ORIGIN
            assert names(reply.headers["access-control-expose-headers"]) >= EXPOSED
            assert reply.headers["vary"] == "Origin"


HOSTS = {
    "mcp.example.com": 200,
    "mcp.example.com:443": 200,
    "MCP.Example.Com": 200,
    "localhost:8000": 200,
    "[::1]:8000": 200,
    "127.0.0.1": 200,
    "other.example.com": 421,
    "mcp.example.com.evil.example": 421,
    "evil.example:443": 421,
    "mcp.example.com@evil.example": 421,
}


@pytest.mark.parametrize("host", HOSTS)
async def test_r53_a_public_name_is_allowed_once(clock, caplog, rig: Rig, front: str, host: str):
    """Behind a proxy every request was refused, and nothing said which setting would help."""
    caplog.set_level(logging.WARNING, "mcpd")
    async with rig.serving(front=front, allowed_host=("mcp.example.com",)) as http:
        response = await http.request("POST", headers={"Host": host}, json=INITIALIZE)
        assert response.status == HOSTS[host]
        if response.status != 200:
            assert host in caplog.text
            assert "--allowed-host" in caplog.text
            assert "MCPD_ALLOWED_HOST" in caplog.text


ORIGINS = {
    "https://mcp.example.com": 200,
    "http://mcp.example.com": 200,
    "https://mcp.example.com:8443": 200,
    "https://evil.example": 403,
    "https://mcp.example.com.evil.example": 403,
    "https://mcp.example.com@evil.example": 403,
}


@pytest.mark.parametrize("origin", ORIGINS)
async def test_r53_its_pages_are_allowed_with_it(clock, caplog, rig: Rig, front: str, origin: str):
    """The host was listed, and an empty list of origins refused every page of it."""
    caplog.set_level(logging.WARNING, "mcpd")
    async with rig.serving(front=front, allowed_host=("mcp.example.com",)) as http:
        response = await http.request("POST", headers={"Host": "mcp.example.com", "Origin": origin}, json=INITIALIZE)
        assert response.status == ORIGINS[origin]
        if response.status != 200:
            assert origin in caplog.text
            assert "--allowed-origin" in caplog.text


@pytest.mark.parametrize(
    ("options", "env"),
    [
        (["--allowed-host", "mcp.example.com", "--max-body", "1KiB", "--keep-alive", "90s"], {}),
        ([], {"MCPD_ALLOWED_HOST": "mcp.example.com", "MCPD_MAX_BODY": "1024", "MCPD_KEEP_ALIVE": "90s"}),
    ],
    ids=["flags", "environment"],
)
def test_r53_r56_r74_settings_from_outside(options, env):
    """Hosts, the size of a body and the keep-alive time were fixed, or could only be set in code."""
    with process(None, *options, env=env) as served:

        def ask(**request) -> bytes:
            with served.socket() as sock:
                sock.sendall(encode_request("POST", **request))
                return sock.recv(65_536)

        assert ask(headers={"Host": "mcp.example.com"}, json=INITIALIZE).startswith(b"HTTP/1.1 200 ")
        assert ask(headers={"Host": "other.example.com"}, json=INITIALIZE).startswith(b"HTTP/1.1 421 ")
        assert ask(body=b" " * 1_025).startswith(b"HTTP/1.1 413 ")
        assert not ask(body=b" " * 1_024).startswith(b"HTTP/1.1 413 ")
        assert "MCPD_ALLOWED_HOST" in served.stderr


REBINDING = {
    "another host": ({"Host": "evil.example"}, 421),
    "another host with our port": ({"Host": "evil.example:8000"}, 421),
    "a page": ({"Origin": "http://evil.example"}, 403),
    "a page on another port of ours": ({"Origin": "http://localhost:3000"}, 200),
    "no page": ({}, 200),
    "null": ({"Origin": "null"}, 403),
    "a file": ({"Origin": "file://"}, 403),
    "an extension": ({"Origin": "chrome-extension://abcdef"}, 403),
    "nothing": ({"Origin": ""}, 403),
    "two pages": ([("Origin", "http://localhost"), ("Origin", "http://evil.example")], 403),
    "no host": ({"Host": None}, 400),
    "two hosts": ([("Host", "localhost"), ("Host", "localhost")], 400),
    "two hosts, one of them evil": ([("Host", "localhost"), ("Host", "evil.example")], 400),
    "an empty host": ({"Host": ""}, 421),
}


@pytest.mark.parametrize("what", REBINDING)
async def test_r54_dns_rebinding(clock, rig: Rig, front: str, what: str):
    """A web page could talk to a local server by giving its own name our address."""
    headers, status = REBINDING[what]
    async with rig.serving(front=front) as http:
        response = await http.request("POST", headers=headers, json=INITIALIZE)
        assert response.status == status
        assert await http.count() == (1 if status == 200 else 0)


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}], ids=["host", "origin"]
)
async def test_r54_strangers_are_turned_away_first(clock, rig: Rig, front: str, headers):
    """The check comes before the body is read and before a session is looked up."""
    async with rig.serving(front=front) as http:
        session = await http.initialize()
        response = await http.request("DELETE", headers=session.headers(headers))
        assert response.status in {403, 421}
        assert await http.count() == 1
        async with http.connect() as connection:
            head = encode_request("POST", headers=[*headers.items(), ("Content-Length", "100")], body=b"")
            await connection.send_bytes(head, "POST")
            assert (await connection.response(within=1)).status in {403, 421}


def padded(size: int) -> bytes:
    """An initialize request of *size* bytes."""
    frame = encode_request("POST", json=INITIALIZE).partition(b"\r\n\r\n")[2]
    return frame[:-1] + b" " * (size - len(frame)) + b"}"


async def test_r56_the_limit_is_exact_and_named(clock, rig: Rig, front: str):
    """Bodies over a fixed limit were told that they cannot be parsed."""
    async with rig.serving(front=front, max_body=100_000) as http:
        assert (await http.request("POST", body=padded(100_000))).status == 200
        response = await http.request("POST", body=padded(100_001))
        assert response.status == 413
        assert "100000" in response.json["error"]["message"]
        assert "--max-body" in response.json["error"]["message"]
        assert "MCPD_MAX_BODY" in response.json["error"]["message"]
        chunked = [("Transfer-Encoding", "chunked"), ("Content-Length", None)]
        for size, status in ((100_000, 200), (100_001, 413)):
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (size, padded(size))
            assert (await http.request("POST", headers=chunked, body=body)).status == status
        assert await http.count() == 2


async def test_r56_a_body_too_large_is_not_waited_for(clock, rig: Rig, front: str):
    """Content-Length says enough: the answer comes before the body does."""
    async with rig.serving(front=front) as http, http.connect() as connection:
        head = encode_request("POST", headers={"Content-Length": str(1 << 40)}, body=b"")
        await connection.send_bytes(head, "POST")
        response = await connection.response(within=1)
        assert response.status == 413
        assert "error" in response.json


@pytest.mark.parametrize("how", ["in one write", "byte by byte"])
async def test_r57_large_headers_pass_whole_or_in_pieces(clock, rig: Rig, front: str, how: str):
    """Tokens of 8 KB passed or failed by chance, as the network cut them."""
    fields = {"Authorization": "Bearer " + "t" * 8_192, "Cookie": "c" * 4_096}
    request = encode_request("POST", headers=fields, json=INITIALIZE)
    async with rig.serving(front=front) as http, http.connect() as connection:
        step = len(request) if how == "in one write" else 1
        for start in range(0, len(request), step):
            await connection.send_bytes(request[start : start + step])
        await connection.send_bytes(b"", "POST")
        assert (await connection.response()).status == 200


@pytest.mark.parametrize(
    "how", ["one field in one write", "one field in pieces", "many fields in one write", "many in pieces"]
)
async def test_r57_too_large_headers_fail_whole_or_in_pieces(clock, caplog, rig: Rig, front: str, how: str):
    """The limit held only when a read ended within the head, and nothing was logged."""
    caplog.set_level(logging.INFO, "mcpd")
    if how.startswith("one field"):
        fields = [("X-Large", "x" * 80_000)]
    else:
        fields = [(f"X-{number}", "x" * 100) for number in range(800)]
    request = encode_request("POST", headers=fields, json=INITIALIZE)
    async with rig.serving(front=front) as http, http.connect() as connection:
        step = len(request) if how.endswith("in one write") else 1_000
        connection_ended = False
        for start in range(0, len(request), step):
            try:
                await connection.send_bytes(request[start : start + step])
            except Exception:  # noqa: BLE001 - it need not read on
                connection_ended = True
                break
            await trio.lowlevel.checkpoint()
        if not connection_ended:
            await connection.send_bytes(b"")
        connection._methods.append("POST")
        assert (await connection.response()).status in {400, 431}
        assert await http.count() == 0
        if front == "direct" or how.endswith("one write"):
            # What comes in pieces h11 refuses by itself, and says nothing.
            assert "header" in caplog.text, "nothing was logged"


BATCH = [rpc("tools/call", {"name": "echo", "arguments": {"text": "x"}}, id=number) for number in (1, 2)]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25", "modern"])
async def test_r58_a_batch_is_refused_and_nothing_run(clock, rig: Rig, front: str, version: str):
    """A batch got no answer at all, or was run past the checks that each call of it should have had."""
    async with rig.serving(front=front) as http:
        if version == "modern":
            params = {
                "_meta": {META + "protocolVersion": "2026-07-28", META + "clientCapabilities": {}},
                "name": "echo",
                "arguments": {"text": "x"},
            }
            response = await http.request(
                "POST",
                headers={"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "echo"},
                json=[rpc("tools/call", params, id=1)],
            )
        else:
            response = await (await http.initialize(version)).send(BATCH)
        assert response.status == 400
        if version == "modern":
            assert response.json["error"]["code"] in {-32600, -32020}
        else:
            assert response.json["error"]["code"] == -32600
        assert rig.ran == []


async def test_r58_a_batch_of_2025_03_26_is_run(clock, rig: Rig, front: str):
    """The one revision that has batches was refused them."""
    async with rig.serving(front=front) as http:
        session = await http.initialize("2025-03-26")
        response = await session.send([*BATCH, rpc("notifications/cancelled", {"requestId": 99})])
        assert response.status == 200
        answers = response.json
        assert {answer["id"]: answer["result"]["content"][0]["text"] for answer in answers} == {1: "x", 2: "x"}
        assert (await session.send([rpc("notifications/cancelled", {"requestId": 99})])).status == 202
        assert rig.ran == ["x", "x"]


@pytest.mark.parametrize("body", [b"[]", b"[1]", b'"x"', b"1", b"null", b"true", b"[[]]", b"[null]", b"{}"])
@pytest.mark.parametrize("with_session", [False, True])
async def test_r58_what_is_no_message_is_refused(clock, rig: Rig, front: str, body: bytes, with_session: bool):
    """Never silence: what is JSON but no message is an invalid request."""
    async with rig.serving(front=front) as http:
        headers = (await http.initialize("2025-03-26")).headers() if with_session else []
        response = await http.request("POST", headers=headers, body=body)
        if with_session and body[:1] == b"[" and body != b"[]":
            # A batch of 2025-03-26: "the response from the server is an array of one" (JSON-RPC 2.0, section 7).
            assert response.status == 200
            (error,) = response.json
        else:
            assert response.status == 400
            error = response.json
        assert error["error"]["code"] == -32600
        assert error["id"] is None


@in_memory
@pytest.mark.parametrize("size", [1_000, 60_000, 300_000, 3_000_000])
@pytest.mark.parametrize("sent", [0.0, 0.5, 1.0])
async def test_a_connection_goes_on_after_a_refusal_or_the_refusal_says_that_it_does_not(
    clock, rig: Rig, front: str, size: int, sent: float
):
    """What followed a refusal on its connection was lost: it was closed, since the refused body was not there yet."""
    refused = encode_request("POST", headers={"Origin": "https://evil.example"}, body=b"x" * size)
    head = len(refused) - size
    async with rig.serving(front=front) as http, http.connect() as connection:
        await connection.send_bytes(refused[: head + round(size * sent)], "POST")
        response = await connection.response(within=10)
        assert response.status == 403
        if response.headers.get("connection") == "close":
            assert sent < 1.0 or size > 60_000
            await connection.wait_closed(within=10)
        else:
            await connection.send_bytes(refused[head + round(size * sent) :])
            assert (await connection.request("GET", "/health")).status == 200
