"""Revisions in the field: what is negotiated, and how headers and body of a modern request must agree."""

import pytest

from mcpd import Context
from tests.harness import META, header_text, modern_request, rpc
from tests.reports.rig import Rig

LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


def initialize(version) -> dict:
    params = {"capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
    return rpc("initialize", params if version is None else params | {"protocolVersion": version}, id=1)


@pytest.mark.parametrize("version", LEGACY)
async def test_r63_a_version_we_know_is_agreed_to(clock, rig: Rig, front: str, version: str):
    """Servers answered with their newest version whatever they were asked for."""
    async with rig.serving(front=front) as http:
        response = await http.request("POST", json=initialize(version))
        assert response.result["protocolVersion"] == version


@pytest.mark.parametrize("version", ["2099-01-01", "", "1.0", "2025-11-26", "2026-07-28", None], ids=repr)
async def test_r63_for_any_other_ours_is_offered(clock, rig: Rig, front: str, version):
    """Servers echoed any version, also one that does not exist."""
    async with rig.serving(front=front) as http:
        response = await http.request("POST", json=initialize(version))
        assert response.status == 200, response.body
        assert response.result["protocolVersion"] == "2025-11-25"


async def test_r63_a_version_header_we_do_not_know_is_refused(clock, rig: Rig, front: str):
    """Later requests were served whatever their version header said."""
    async with rig.serving(front=front) as http:
        session = await http.initialize()
        for version in ("2099-01-01", "", "latest", "2025-11-25, 2025-06-18"):
            headers = session.headers({"MCP-Protocol-Version": version})
            for method, request in (
                ("POST", {"json": rpc("tools/call", {"name": "echo", "arguments": {"text": "x"}}, id=1)}),
                ("GET", {}),
                ("DELETE", {}),
            ):
                response = await http.request(method, headers=headers, **request)
                assert response.status == 400, (version, method)
                assert "error" in response.json
        assert rig.ran == []
        assert (await session.post("ping")).status == 200


@pytest.mark.parametrize("version", LEGACY)
async def test_r63_the_agreed_version_holds_without_a_header(clock, rig: Rig, front: str, version: str):
    """The version is the session's: it is known on any later request, and on another replica."""

    @rig.server.tool(title="A title")
    async def titled() -> dict[str, int]:
        return {"a": 1}

    async with rig.serving(front=front) as http:
        session = await http.initialize(version)
        response = await session.post("tools/list", headers={"MCP-Protocol-Version": None})
        (tool,) = [tool for tool in response.result["tools"] if tool["name"] == "titled"]
        assert ("title" in tool) == (version >= "2025-06-18")
        result = (await session.call("titled", headers={"MCP-Protocol-Version": None})).result
        assert ("structuredContent" in result) == (version >= "2025-06-18")


async def test_r63_without_a_session_no_header_means_2025_03_26(clock, rig: Rig, front: str):
    """As the specification has it, for who has no other way to know."""

    @rig.server.tool
    async def version(ctx: Context) -> str:
        return ctx.protocol_version

    async with rig.serving(front=front, sessions=False) as http:
        call = rpc("tools/call", {"name": "version", "arguments": {}}, id=1)
        assert (await http.request("POST", json=call)).text == "2025-03-26"
        for other in LEGACY:
            response = await http.request("POST", headers={"MCP-Protocol-Version": other}, json=call)
            assert response.text == other


ECHO = {"name": "echo", "arguments": {"text": "x"}}
MISMATCHES = {
    "no version header": {"headers": {"MCP-Protocol-Version": None}},
    "a legacy version in the body": {"meta": {META + "protocolVersion": "2025-11-25"}},
    "a legacy version in the header": {"headers": {"MCP-Protocol-Version": "2025-11-25"}},
    "an unknown version in the header": {"headers": {"MCP-Protocol-Version": "2099-01-01"}},
    "no method header": {"headers": {"Mcp-Method": None}},
    "another method": {"headers": {"Mcp-Method": "tools/list"}},
    "the method in another case": {"headers": {"Mcp-Method": "Tools/Call"}},
    "two methods": {"headers": [("Mcp-Method", "tools/call"), ("Mcp-Method", "tools/call")]},
    "no name header": {"headers": {"Mcp-Name": None}},
    "another name": {"headers": {"Mcp-Name": "hold"}},
    "the name in another case": {"headers": {"Mcp-Name": "Echo"}},
    "another name in base64": {"headers": {"Mcp-Name": "=?base64?aG9sZA==?="}},
    "bad base64": {"headers": {"Mcp-Name": "=?base64?ZWNobw?="}},
    "two names": {"headers": [("Mcp-Name", "echo"), ("Mcp-Name", "hold")]},
}


@pytest.mark.parametrize("what", MISMATCHES)
async def test_r64_headers_and_body_must_agree(clock, rig: Rig, front: str, what: str):
    """A gateway let the tool of the header pass, and the server ran the one of the body."""
    async with rig.serving(front=front) as http:
        response = await http.modern("tools/call", ECHO, id="the id", **MISMATCHES[what])
        assert response.status == 400
        assert response.error["code"] == -32020
        assert response.answer["id"] == "the id"
        assert rig.ran == []


@pytest.mark.parametrize("version", ["2099-01-01", "", "2026-07-29"])
async def test_r64_a_version_nobody_knows(clock, rig: Rig, front: str, version: str):
    """The same unknown version in both is another error, which says what is supported."""
    async with rig.serving(front=front) as http:
        response = await http.modern("tools/call", ECHO, version=version, id="the id")
        assert response.status == 400
        assert response.error["code"] == -32022
        assert response.error["data"]["supported"] == ["2026-07-28"]
        assert response.answer["id"] == "the id"
        assert rig.ran == []


@pytest.mark.parametrize("name", ["größe", "日本", "with space ", "=?base64?x?=", "a\tb"])
async def test_r64_a_name_in_base64_is_decoded_first(clock, rig: Rig, front: str, name: str):
    """A name that no header can carry was compared in its wrapping."""

    @rig.server.resource("note://{name}")
    async def note(name: str) -> str:
        return name

    async with rig.serving(front=front) as http:
        assert header_text(name).startswith("=?base64?")
        response = await http.modern("prompts/get", {"name": name})
        assert response.error["code"] == -32602  # there is no such prompt, but the name was understood
        assert (await http.modern("tools/call", ECHO, headers={"Mcp-Name": "=?base64?ZWNobw==?="})).text == "x"


async def test_r64_names_of_headers_have_no_case(clock, rig: Rig, front: str):
    """Header names came in any case, and were looked up in one."""
    async with rig.serving(front=front) as http:
        request = modern_request("tools/call", ECHO)
        for change in (str.upper, str.lower, str.title):
            headers = [(change(name), value) for name, value in request["headers"]]
            assert (await http.request("POST", headers=headers, json=request["json"])).text == "x"


async def test_r64_an_unknown_method_is_404(clock, rig: Rig, front: str):
    """Unknown methods got 200, or an error without the request's id."""
    async with rig.serving(front=front) as http:
        for method in ("no/such/method", "initialize", "ping", "logging/setLevel", "resources/subscribe"):
            response = await http.modern(method, id="the id")
            assert response.status == 404
            assert response.error["code"] == -32601
            assert response.answer["id"] == "the id"


async def test_r64_a_stray_session_id_is_ignored(clock, rig: Rig, front: str):
    """A modern request with a left-over session header was refused, or the header sent back."""
    async with rig.serving(front=front) as http:
        session = await http.initialize()
        for session_id in ("stale", session.id):
            response = await http.modern("tools/call", ECHO, headers={"Mcp-Session-Id": session_id})
            assert response.status == 200
            assert response.text == "x"
            assert "mcp-session-id" not in response.headers
        assert await http.count() == 1
