"""Authorization as clients see it: who comes in, and what the others are told."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Self

import pytest
from trio.testing import MockClock

from mcpd import Context, Principal, Server, VerifierError
from mcpd.fronts.http import new_endpoint
from mcpd.settings import Settings
from tests.auth.authorization_server import AuthorizationServer, new_key
from tests.auth.users import ADA, BOB, ISSUER, METADATA, RESOURCE, bearer, guarded, log_in
from tests.harness import Response, rpc, serving
from tests.requirements import requirement

INITIALIZE = rpc(
    "initialize",
    {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
    id=1,
)
ORIGIN = "http://localhost:5173"


@pytest.fixture
def server() -> Server:
    server = Server("guarded", title="A guarded server")

    @server.tool
    async def whoami(ctx: Context) -> str:
        principal = ctx.principal
        assert principal is not None
        return f"{principal.issuer} {principal.subject} {' '.join(sorted(principal.scopes))}"

    @server.tool
    async def headers(ctx: Context) -> str:
        return " ".join(sorted(ctx.headers))

    @server.tool(scopes=["files:write", "files:read"])
    async def change() -> str:
        return "changed"

    @server.tool(scopes=["files:write"], task="optional")
    async def work() -> str:
        return "worked"

    @server.resource("secret://one", scopes=["files:read"])
    async def secret() -> str:
        return "secret"

    @server.resource("secret://all/{name}", scopes=["files:read"])
    async def secrets(name: str) -> str:
        return name

    @server.prompt(scopes=["prompts"])
    async def ask(topic: str) -> str:
        return topic

    @server.completion("ask", "topic")
    async def topics(value: str) -> list[str]:
        return ["secret topic"]

    return server


def challenge(response: Response) -> dict[str, str]:
    """The parameters of a Bearer challenge."""
    scheme, _, parameters = response.headers["www-authenticate"].partition(" ")
    assert scheme == "Bearer"
    found = {}
    for each in filter(None, parameters.split(", ")):
        name, _, value = each.partition("=")
        assert value[0] == value[-1] == '"', each
        assert name not in found
        found[name] = value[1:-1]
    return found


# ----- 401


@requirement("Y316", "Y317", "Y314", "D59")
async def test_without_a_token(autojump_clock: MockClock, server: Server, front: str, tmp_path: Path):
    async with guarded(server, tmp_path, front=front, auth_scope=("mcp",)) as http:
        for method in ("POST", "GET", "DELETE"):
            response = await http.request(method, json=INITIALIZE) if method == "POST" else await http.request(method)
            assert response.status == 401
            # "If the request lacks any authentication information [...] SHOULD NOT include an error code".
            assert challenge(response) == {"resource_metadata": METADATA, "scope": "mcp"}
            assert response.json["error"]["code"] == -32600
            assert response.json["id"] is None
        assert await http.count() == 0


BAD_TOKENS = [
    "x",
    BOB[:-1],
    ADA.upper(),
    "a" * 4000,
    "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ.",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2ln",
    "-._~+/==",
]


@pytest.mark.parametrize("token", BAD_TOKENS, ids=range(len(BAD_TOKENS)))
@requirement("Y316", "Y317", "Y326")
async def test_a_bad_token(autojump_clock: MockClock, server: Server, front: str, tmp_path: Path, token: str):
    async with guarded(server, tmp_path, front=front) as http:
        session = await log_in(http)
        stranger = session.by(token)
        for response in (
            await http.request("POST", headers=bearer(token), json=INITIALIZE),
            await stranger.post("tools/list"),
            await stranger.delete(),
            await http.request("GET", headers=stranger.headers()),
            await http.modern("tools/list", headers=bearer(token)),
            await http.modern("server/discover", headers=bearer(token)),
        ):
            assert response.status == 401
            assert challenge(response) == {"resource_metadata": METADATA, "error": "invalid_token"}
        assert (await session.post("tools/list")).status == 200
        assert await http.count() == 1


@pytest.mark.parametrize("field", ["Basic YWRhOng=", "Digest x", "Negotiate", "Token " + ADA, ADA, "BearerX " + ADA])
@requirement("Y316")
async def test_credentials_of_another_kind_are_none(
    autojump_clock: MockClock, server: Server, front: str, tmp_path: Path, field: str
):
    async with guarded(server, tmp_path, front=front) as http:
        response = await http.request("POST", headers={"Authorization": field}, json=INITIALIZE)
        assert response.status == 401
        assert "error" not in challenge(response)


@pytest.mark.parametrize(
    "fields",
    [
        ["Bearer"],
        ["Bearer "],
        ["Bearer a b"],
        ["Bearer a,b"],
        ['Bearer "a"'],
        ["Bearer ä"],
        [f"Bearer {ADA}, Bearer {ADA}"],
        [f"Bearer {ADA}", f"Bearer {ADA}"],
        [f"Bearer {ADA}", "Basic x"],
        ["Bearer =a"],
    ],
    ids=range(10),
)
@requirement("Y318")
async def test_a_malformed_field(
    autojump_clock: MockClock, server: Server, front: str, tmp_path: Path, fields: list[str]
):
    async with guarded(server, tmp_path, front=front) as http:
        given: Any = [("Authorization", field) for field in fields]
        response = await http.request("POST", headers=given, json=INITIALIZE)
        assert response.status == 400
        assert challenge(response)["error"] == "invalid_request"
        assert "result" not in response.json
        assert await http.count() == 0


@requirement("Y325")
async def test_a_token_counts_only_in_its_field(autojump_clock: MockClock, server: Server, front: str, tmp_path: Path):
    async with guarded(server, tmp_path, front=front) as http:
        for path, headers in (
            (f"/mcp?access_token={ADA}", {}),
            (f"/mcp?access_token={ADA}&token={ADA}", {}),
            ("/mcp", {"Cookie": f"access_token={ADA}"}),
            ("/mcp", {"X-Access-Token": ADA}),
            ("/mcp", {"Proxy-Authorization": f"Bearer {ADA}"}),
        ):
            response = await http.request("POST", path, headers=headers, json=INITIALIZE)
            assert response.status == 401
        form = f"access_token={ADA}".encode()
        response = await http.request("POST", headers={"Content-Type": "application/x-www-form-urlencoded"}, body=form)
        assert response.status == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer  "])
async def test_the_scheme_is_one_in_any_case(
    autojump_clock: MockClock, server: Server, front: str, tmp_path: Path, scheme: str
):
    async with guarded(server, tmp_path, front=front) as http:
        response = await http.call("whoami", headers={"Authorization": f"{scheme} {ADA}"})
        assert response.text == "static ada mcp"


@requirement("Y324")
async def test_a_handler_sees_who_and_not_by_what(
    autojump_clock: MockClock, server: Server, front: str, tmp_path: Path
):
    async with guarded(server, tmp_path, front=front) as http:
        session = await log_in(http, BOB)
        assert (await session.call("whoami")).text == "static bob mcp"
        assert "authorization" not in (await session.call("headers")).text.split()
        assert "authorization" not in (await http.call("headers", headers=bearer(ADA))).text.split()
    async with serving(server, front=front) as http:  # without authorization what a client sends is the handler's
        assert "authorization" in (await http.call("headers", headers=bearer(ADA))).text.split()


# ----- 403


@requirement("Y318", "Y319")
async def test_a_token_with_too_few_scopes(autojump_clock: MockClock, server: Server, front: str, tmp_path: Path):
    async with guarded(server, tmp_path, front=front, bob="other", auth_scope=("mcp", "base")) as http:
        response = await http.request("POST", headers=bearer(BOB), json=INITIALIZE)
        assert response.status == 403
        assert challenge(response) == {
            "error": "insufficient_scope",
            "scope": "mcp base",
            "resource_metadata": METADATA,
        }
        assert await http.count() == 0


OPERATIONS: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "a tool": ("tools/call", {"name": "change", "arguments": {}}, {"files:write", "files:read"}),
    "a tool, with arguments that do not fit": (
        "tools/call",
        {"name": "change", "arguments": {"x": 1}},
        {"files:write", "files:read"},
    ),
    "a resource": ("resources/read", {"uri": "secret://one"}, {"files:read"}),
    "a template": ("resources/read", {"uri": "secret://all/x"}, {"files:read"}),
    "a prompt": ("prompts/get", {"name": "ask", "arguments": {"topic": "x"}}, {"prompts"}),
    "a completion": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "ask"}, "argument": {"name": "topic", "value": ""}},
        {"prompts"},
    ),
}


@pytest.mark.parametrize("what", OPERATIONS)
@requirement("Y318", "Y319")
async def test_an_operation_that_needs_more(
    autojump_clock: MockClock, server: Server, front: str, tmp_path: Path, what: str
):
    method, params, needed = OPERATIONS[what]
    granted = "mcp " + " ".join(needed)
    one_less = "mcp " + " ".join(sorted(needed)[1:])
    async with guarded(server, tmp_path, front=front, ada=granted, bob=one_less, auth_scope=("mcp",)) as http:
        refused = [
            await http.modern(method, params, id=7, headers=bearer(BOB)),
            await (await log_in(http, BOB)).post(method, params, id=7),
        ]
        for response in refused:
            assert response.status == 403
            told = challenge(response)
            # "servers SHOULD include all scopes required for the current operation in a single challenge".
            assert set(told.pop("scope").split()) == {"mcp", *needed}
            assert told == {"error": "insufficient_scope", "resource_metadata": METADATA}
            assert response.json["id"] == 7
            assert response.error["code"] == -32600
            assert "secret" not in response.body.decode()
        answered = [
            await http.modern(method, params, id=7, headers=bearer(ADA)),
            await (await log_in(http, ADA)).post(method, params, id=7),
        ]
        for response in answered:
            assert response.status == 200
            assert "www-authenticate" not in response.headers
            assert "result" in response.answer


async def test_what_needs_more_is_listed_all_the_same(
    autojump_clock: MockClock, server: Server, front: str, tmp_path: Path
):
    # So a client can find out that asking its user for more would help.
    async with guarded(server, tmp_path, front=front) as http:
        listed = (await http.modern("tools/list", headers=bearer(BOB))).result["tools"]
        assert {"change", "work"} <= {tool["name"] for tool in listed}


async def test_a_task_needs_the_scopes_of_its_tool(
    autojump_clock: MockClock, server: Server, front: str, tmp_path: Path
):
    async with guarded(server, tmp_path, front=front, ada="files:write") as http:
        extensions = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
        response = await http.call("work", headers=bearer(BOB), capabilities=extensions)
        assert response.status == 403
        response = await http.call("work", headers=bearer(ADA), capabilities=extensions)
        assert response.result["resultType"] == "task"
        session = await log_in(http, BOB)
        params = {"name": "work", "arguments": {}, "task": {}}
        assert (await session.post("tools/call", params)).status == 403
        assert (await session.post("tasks/list")).result["tasks"] == []


async def test_updates_of_a_secret_resource_are_secret(
    autojump_clock: MockClock, server: Server, front: str, tmp_path: Path
):
    async with guarded(server, tmp_path, front=front, ada="files:read") as http:
        response = await (await log_in(http, BOB)).post("resources/subscribe", {"uri": "secret://one"})
        assert response.status == 403
        assert (await (await log_in(http, ADA)).post("resources/subscribe", {"uri": "secret://one"})).status == 200
        wanted = {"notifications": {"resourceSubscriptions": ["secret://one"], "toolsListChanged": True}}
        for token, honoured in ((BOB, {}), (ADA, {"resourceSubscriptions": ["secret://one"]})):
            async with http.open_modern("subscriptions/listen", wanted, headers=bearer(token)) as stream:
                acknowledged = (await stream.message())["params"]["notifications"]
                assert acknowledged == {"toolsListChanged": True} | honoured


async def test_a_batch_has_one_status(autojump_clock: MockClock, server: Server, front: str, tmp_path: Path):
    # So what one of its requests lacks stands in its own answer.
    async with guarded(server, tmp_path, front=front) as http:
        session = await log_in(http, version="2025-03-26")
        batch = [rpc("ping", id=1), rpc("tools/call", {"name": "change"}, id=2)]
        response = await session.send(batch)
        assert response.status == 200
        answers = {each["id"]: each for message in response.messages for each in message}
        assert "result" in answers[1]
        assert "files:write files:read" in answers[2]["error"]["message"]


@requirement("Y320")
async def test_a_broad_scope_implies_narrow_ones(autojump_clock: MockClock, server: Server, front: str, tmp_path: Path):
    implies = ("admin=files:write", "files:write=files:read", "files:read=mcp", "loop=loop")
    async with guarded(
        server, tmp_path, front=front, ada="admin", bob="files:read", auth_scope=("mcp",), auth_implies=implies
    ) as http:
        assert (await http.call("change", headers=bearer(ADA))).text == "changed"
        assert (await http.call("whoami", headers=bearer(ADA))).text == "static ada admin files:read files:write mcp"
        assert (await http.call("change", headers=bearer(BOB))).status == 403
        assert (await http.call("whoami", headers=bearer(BOB))).status == 200


async def test_a_prefix_implies_nothing(autojump_clock: MockClock, server: Server, front: str, tmp_path: Path):
    # Else whoever may come in by `files` could do all that needs `files:...`.
    async with guarded(server, tmp_path, front=front, ada="files files: files:* *") as http:
        assert (await http.call("change", headers=bearer(ADA))).status == 403


async def test_without_authorization_nobody_has_a_scope(autojump_clock: MockClock, server: Server, front: str):
    from mcpd import testing

    async with serving(server, front=front) as http:
        response = await http.call("change")
        assert response.status == 403
        assert "www-authenticate" not in response.headers
        assert (await http.modern("tools/list")).status == 200
        session = await http.initialize()
        assert (await session.call("change")).status == 403
    # In-process, as on stdio, who starts it is who uses it.
    async with testing.connect(server) as client:
        assert (await client.call_tool("change", {})).content[0].text == "changed"


@requirement("Y321")
@pytest.mark.parametrize("declare", ["tool", "resource", "prompt"])
async def test_offline_access_is_asked_for_by_nobody(declare: str):
    server = Server("s")
    decorate: Any = server.resource("a://b", scopes=["offline_access"]) if declare == "resource" else None
    decorate = decorate or getattr(server, declare)(scopes=["offline_access"])
    with pytest.raises(ValueError, match="offline_access"):
        decorate(lambda_named)


async def lambda_named() -> str:
    return ""


@pytest.mark.parametrize("scopes", ["files:read", [""], ["a b"], ['a"'], ["ä"], ["a\\b"]])
async def test_what_is_no_scope(scopes: Any):
    with pytest.raises(ValueError, match="scope"):
        Server("s").tool(scopes=scopes)(lambda_named)


# ----- Metadata


@requirement("Y313", "Y314", "Y315", "Y321", "Y330")
async def test_metadata(autojump_clock: MockClock, server: Server, front: str, tmp_path: Path):
    async with guarded(server, tmp_path, front=front, auth_scope=("mcp",)) as http:
        for path in ("", "/mcp", "/mcp/", "/"):
            response = await http.request(
                "GET", "/.well-known/oauth-protected-resource" + path, headers={"Origin": "https://any.example"}
            )
            assert response.status == 200
            assert response.json == {
                "resource": RESOURCE,
                "authorization_servers": [ISSUER],
                "scopes_supported": ["mcp"],
                "bearer_methods_supported": ["header"],
                "resource_name": "A guarded server",
            }
            assert response.headers["access-control-allow-origin"] == "*"
        head = await http.request("HEAD", "/.well-known/oauth-protected-resource")
        assert (head.status, head.body) == (200, b"")
        preflight = await http.request(
            "OPTIONS",
            "/.well-known/oauth-protected-resource/mcp",
            headers={"Origin": "https://any.example", "Access-Control-Request-Headers": "mcp-protocol-version"},
        )
        assert preflight.status == 204
        assert "mcp-protocol-version" in preflight.headers["access-control-allow-headers"]
        assert preflight.headers["access-control-allow-origin"] == "*"
        assert (await http.request("POST", "/.well-known/oauth-protected-resource", json={})).status == 405
        assert (await http.request("GET", "/.well-known/oauth-protected-resource/other")).status == 404
        # What is derived from Host is told only to those who use one of our names.
        response = await http.request("GET", "/.well-known/oauth-protected-resource", headers={"Host": "evil.example"})
        assert response.status == 421
        named = await http.request(
            "GET", "/.well-known/oauth-protected-resource/mcp", headers={"Host": "localhost:8000"}
        )
        assert named.json["resource"] == "http://localhost:8000/mcp"


@requirement("Y315", "Y328")
async def test_metadata_behind_a_public_url(autojump_clock: MockClock, server: Server, front: str, tmp_path: Path):
    async with guarded(
        server,
        tmp_path,
        front=front,
        host="0.0.0.0",
        allowed_host=("mcp.example.com",),
        public_url="HTTPS://MCP.Example.com:443/team/mcp/",
    ) as http:
        host = {"Host": "mcp.example.com"}
        metadata = "https://mcp.example.com/.well-known/oauth-protected-resource/team/mcp"
        response = await http.request("POST", headers=host, json=INITIALIZE)
        assert challenge(response) == {"resource_metadata": metadata}
        for path in ("", "/mcp", "/team/mcp"):
            told = await http.request("GET", "/.well-known/oauth-protected-resource" + path, headers=host)
            assert told.json["resource"] == "https://mcp.example.com/team/mcp"
            assert "scopes_supported" not in told.json


async def test_tokens_without_an_authorization_server(
    autojump_clock: MockClock, server: Server, front: str, tmp_path: Path
):
    # Then there is nobody to send a client to, and nothing to tell.
    async with guarded(server, tmp_path, front=front, auth_issuer="", host="0.0.0.0") as http:
        response = await http.request("POST", json=INITIALIZE)
        assert response.status == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert (await http.request("GET", "/.well-known/oauth-protected-resource")).status == 404
        assert (await http.call("whoami", headers=bearer(ADA))).text == "static ada mcp"


# ----- Reports


async def test_r10_junk_credentials_create_nothing(server: Server, front: str, issuer: AuthorizationServer):
    bad = [
        *("junk" * (number % 7 + 1) + str(number) for number in range(100)),
        *(issuer.token(key=new_key(kid=issuer.keys[0].kid)) for _ in range(60)),
        *(issuer.token(aud="https://other.example/mcp") for _ in range(20)),
        *(issuer.token(exp=1_000_000_000) for _ in range(20)),
    ]
    async with serving(server, front=front, auth_issuer=issuer.issuer) as http:
        for token in bad:
            response = await http.request("POST", headers=bearer(token), json=INITIALIZE)
            assert response.status == 401
            assert "mcp-session-id" not in response.headers
        assert await http.count() == 0
        times = http.endpoint.core.meter.store_operations
        assert not {name for name in ("create", "save", "load", "delete") if sum(times[name].counts)}
        assert (await http.request("POST", headers=bearer(issuer.token()), json=INITIALIZE)).status == 200
        assert sum(times["create"].counts) == 1


async def test_r13_an_unknown_session_is_404_and_bad_credentials_are_401(
    autojump_clock: MockClock, server: Server, front: str, tmp_path: Path
):
    async with guarded(server, tmp_path, front=front) as http:
        session = await log_in(http)
        unknown = session.by(ADA, "u" * 24)
        for response in (
            await unknown.post("tools/list"),
            await unknown.notify("notifications/initialized"),
            await unknown.delete(),
            await http.request("GET", headers=unknown.headers()),
        ):
            assert response.status == 404
            assert "www-authenticate" not in response.headers
        for known in (session.by("wrong"), unknown.by("wrong")):
            for response in (
                await known.post("tools/list"),
                await known.delete(),
                await http.request("GET", headers=known.headers()),
            ):
                assert response.status == 401
                assert challenge(response)["error"] == "invalid_token"


async def test_r50_a_trailing_slash_is_served_without_redirect(
    autojump_clock: MockClock, server: Server, front: str, tmp_path: Path
):
    async with guarded(server, tmp_path, front=front) as http:
        for path in ("/mcp", "/mcp/"):
            assert (await http.request("POST", path, json=INITIALIZE)).status == 401
            opened = await http.request("POST", path, headers=bearer(ADA), json=INITIALIZE)
            assert opened.status == 200
            headers = bearer(ADA) | {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
            async with http.open("GET", path, headers=headers | {"Accept": "text/event-stream"}) as stream:
                assert stream.status == 200
            assert (await http.request("DELETE", path, headers=headers)).status == 204
            assert (await http.request("GET", path)).status == 401
            assert (await http.request("DELETE", path)).status == 401


async def test_r51_a_client_in_a_browser(autojump_clock: MockClock, server: Server, front: str, tmp_path: Path):
    async with guarded(server, tmp_path, front=front, auth_scope=("mcp",), bob="none") as http:
        preflight = await http.request(
            "OPTIONS",
            headers={
                "Origin": ORIGIN,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,content-type",
            },
        )
        assert preflight.status == 204
        allowed = {name.strip() for name in preflight.headers["access-control-allow-headers"].split(",")}
        assert "authorization" in allowed
        statuses = []
        for headers in ({}, bearer("wrong"), bearer(BOB), {"Authorization": "Bearer a b"}, bearer(ADA)):
            response = await http.request("POST", headers={"Origin": ORIGIN} | headers, json=INITIALIZE)
            statuses.append(response.status)
            assert response.headers["access-control-allow-origin"] == ORIGIN
            exposed = {name.strip() for name in response.headers["access-control-expose-headers"].split(",")}
            assert {"Mcp-Session-Id", "WWW-Authenticate"} <= exposed
        assert statuses == [401, 401, 403, 400, 200]
        # Who may not come from there is told nothing of authorization.
        response = await http.request("POST", headers={"Origin": "https://evil.example"}, json=INITIALIZE)
        assert response.status == 403
        assert "www-authenticate" not in response.headers


# ----- Order, outage, logs


async def test_who_is_asking_comes_before_what(autojump_clock: MockClock, server: Server, front: str, tmp_path: Path):
    async with guarded(server, tmp_path, front=front, max_body=1000) as http:
        for headers, body in (
            ({"Content-Type": "text/plain"}, b"x"),
            ({"Accept": "text/html"}, b"{}"),
            ({}, b"x" * 5000),
            ({}, b"\xff"),
            ({"MCP-Protocol-Version": "nonsense"}, b"{}"),
        ):
            assert (await http.request("POST", headers=headers, body=body)).status == 401
        # Before it is read: the rest of the body never comes.
        async with http.connect() as connection:
            head = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nContent-Type: application/json\r\n"
            await connection.send_bytes(head + b"Content-Length: 900\r\n\r\n{", "POST")
            assert (await connection.response(within=1.0)).status == 401


async def test_an_outage_is_503(server: Server, front: str, issuer: AuthorizationServer):
    issuer.failing = 500
    async with serving(server, front=front, auth_issuer=issuer.issuer) as http:
        response = await http.request("POST", headers=bearer(issuer.token()) | {"Origin": ORIGIN}, json=INITIALIZE)
        assert response.status == 503
        assert response.headers["retry-after"] == "5"
        assert "www-authenticate" not in response.headers
        assert response.headers["access-control-allow-origin"] == ORIGIN
        assert await http.count() == 0
        # Without a token nobody need be asked.
        assert (await http.request("POST", json=INITIALIZE)).status == 401


@requirement("Y327")
async def test_no_token_is_in_a_log(
    caplog: pytest.LogCaptureFixture, server: Server, front: str, issuer: AuthorizationServer
):
    caplog.set_level(logging.DEBUG)
    sent = [
        issuer.token(),
        issuer.token(aud="https://other.example"),
        issuer.token(exp=1),
        issuer.token(key=new_key()),
        issuer.token(scope="other"),
        "opaque-token-that-is-bad",
    ]
    async with serving(server, front=front, auth_issuer=issuer.issuer, auth_scope=("mcp",)) as http:
        for token in sent:
            await http.request("POST", headers=bearer(token), json=INITIALIZE)
        await http.request("POST", headers={"Authorization": f"Bearer {sent[0]} x"}, json=INITIALIZE)
        issuer.failing = 500
        await http.request("POST", headers=bearer(issuer.token(key=new_key())), json=INITIALIZE)
    logged = caplog.text
    assert "other.example" in logged, "it would not find one"
    for token in sent:
        for part in [token, *token.split(".")[1:]]:
            assert part not in logged


class Broken:
    """A verifier of somebody else's that fails."""

    def __init__(self, failure: Exception) -> None:
        self.failure = failure
        self.opened = 0

    async def __aenter__(self) -> Self:
        self.opened += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self.opened -= 1

    async def verify(self, token: str) -> Principal | None:
        raise self.failure


@pytest.mark.parametrize(("failure", "status"), [(VerifierError("down"), 503), (RuntimeError("secret"), 500)])
async def test_a_verifier_of_somebody_else(autojump_clock: MockClock, server: Server, failure: Exception, status: int):
    verifier = Broken(failure)
    endpoint = new_endpoint(server, "memory", Settings(), verifier)

    class Exchange:
        method = "POST"
        path = "/mcp"
        client = None
        answer: Any = None

        def __init__(self) -> None:
            from mcpd.protocol.headers import Headers

            self.headers = Headers([(b"host", b"localhost"), (b"authorization", b"Bearer x")])

        async def respond(self, status: int, headers: Any, body: bytes = b"") -> None:
            self.answer = (status, body)

    exchange = Exchange()
    async with endpoint.running():
        assert verifier.opened == 1
        await endpoint(exchange)  # type: ignore[arg-type]
    assert verifier.opened == 0
    assert exchange.answer[0] == status
    assert b"secret" not in exchange.answer[1]


async def test_health_needs_no_token(autojump_clock: MockClock, server: Server, front: str, tmp_path: Path):
    async with guarded(server, tmp_path, front=front) as http:
        assert (await http.request("GET", "/health")).status == 200
        assert (await http.request("GET", "/ready")).status == 200
