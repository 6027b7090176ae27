"""Servers of one era only, and how clients of the other, or of both, find out (2026-07-28, basic/versioning)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mcpd import Server, SettingError, Settings
from tests import wire
from tests.clients.test_clients import OURS, SCRIPT_WITHIN, steps_taken
from tests.harness import modern_request, rpc, serving
from tests.processes import ROOT, fixture_server_process
from tests.requirements import requirement

CLIENT = {"capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
MODERN_CODES = {-32020, -32021, -32022}


def a_server() -> Server:
    server = Server("s", version="1")

    @server.tool(task="optional")
    async def add(a: int, b: int) -> int:
        return a + b

    return server


# ----- Modern only


@requirement("C42", "C43", "C47")
@pytest.mark.parametrize("asked", ["2024-11-05", "2025-11-25", "2026-07-28", "2099-01-01", "", None, 7], ids=repr)
@pytest.mark.parametrize("header", [None, "2025-11-25"])
async def test_an_initialize_is_told_which_revisions_there_are(asked, header):
    async with serving(a_server(), era="modern") as http:
        params = {**CLIENT, "protocolVersion": asked}
        response = await http.request(
            "POST", headers={"MCP-Protocol-Version": header}, json=rpc("initialize", params, id="i")
        )
        assert (response.status, response.answer["id"], response.error["code"]) == (400, "i", -32022)
        requested = asked if isinstance(asked, str) else ""
        assert response.error["data"] == {"supported": [wire.MODERN], "requested": requested}
        assert "mcp-session-id" not in response.headers
        assert await http.count() == 0


@requirement("G126", "D71", "D54", "F106")
@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "HEAD"])
async def test_a_modern_only_endpoint_takes_nothing_but_post(method):
    async with serving(a_server(), era="modern") as http:
        for headers in ({}, {"Accept": "text/event-stream"}, {"Mcp-Session-Id": "x" * 24, "Last-Event-ID": "a.1"}):
            response = await http.request(method, headers=headers)
            assert response.status == 405
            assert {name.strip() for name in response.headers["allow"].split(",")} == {"POST", "OPTIONS"}
        response = await http.request(method, headers={"Origin": "https://evil.example"})
        assert response.status == 403  # whoever asks from elsewhere does not even learn that


@requirement("G107", "G112", "F106")
@pytest.mark.parametrize("method", ["tools/list", "ping", "logging/setLevel", "tasks/list"])
async def test_a_request_without_the_version_header_is_refused(method):
    async with serving(a_server(), era="modern") as http:
        for headers in ({}, {"Mcp-Session-Id": "x" * 24}, {"Mcp-Method": method}):
            response = await http.request("POST", headers=headers, json=rpc(method, {}, id=1))
            assert (response.status, response.error["code"]) == (400, -32020)
            assert response.answer["id"] == 1


@requirement("C42", "G107")
@pytest.mark.parametrize("version", ["2025-11-25", "2025-03-26"])
async def test_a_request_of_a_legacy_session_is_refused(version):
    async with serving(a_server(), era="modern") as http:
        headers = {"MCP-Protocol-Version": version, "Mcp-Session-Id": "x" * 24}
        response = await http.request("POST", headers=headers, json=rpc("tools/list", {}, id=1))
        assert response.status == 400
        assert response.error["code"] in MODERN_CODES


@requirement("A17", "D60")
async def test_a_modern_only_endpoint_takes_no_batches():
    async with serving(a_server(), era="modern") as http:
        for batch in ([], [rpc("ping", id=1)], [modern_request("tools/list")["json"]]):
            response = await http.request("POST", json=batch)
            assert (response.status, response.error["code"]) == (400, -32600)


async def test_a_modern_only_endpoint_serves_modern_requests(autojump_clock):
    async with serving(a_server(), era="modern") as http:
        assert (await http.modern("server/discover")).result["supportedVersions"] == [wire.MODERN]
        assert (await http.call("add", {"a": 1, "b": 2})).result["structuredContent"] == 3
        request = {"notifications": {"toolsListChanged": True}}
        async with http.open_modern("subscriptions/listen", request) as stream:
            assert (await stream.message())["method"] == "notifications/subscriptions/acknowledged"
        assert (await http.modern("notifications/cancelled", id=None)).status == 202


# ----- Legacy only


@requirement("C41", "A10")
@pytest.mark.parametrize(
    "method", ["server/discover", "tools/list", "tools/call", "subscriptions/listen", "initialize"]
)
async def test_a_legacy_only_endpoint_refuses_modern_requests_with_no_modern_code(method):
    async with serving(a_server(), era="legacy") as http:
        params = {"name": "add", "arguments": {"a": 1, "b": 2}, "notifications": {}, **CLIENT}
        request = modern_request(method, params)
        for headers in (
            request["headers"],
            {"MCP-Protocol-Version": None},  # the envelope alone
            {"MCP-Protocol-Version": wire.MODERN},
        ):
            response = await http.request("POST", headers=headers, json=request["json"])
            assert response.headers["content-type"] == "application/json"
            assert response.status == 400
            assert response.error["code"] not in MODERN_CODES
            assert response.answer["id"] == request["json"]["id"]
            assert "initialize" in response.error["message"]
        assert await http.count() == 0


@requirement("C41", "A10")
async def test_a_legacy_only_endpoint_refuses_the_modern_header():
    async with serving(a_server(), era="legacy") as http:
        headers = {"MCP-Protocol-Version": wire.MODERN}
        for message in (rpc("tools/list", {}, id=1), rpc("notifications/cancelled", {"requestId": 1})):
            response = await http.request("POST", headers=headers, json=message)
            assert response.status == 400
            assert response.json["error"]["code"] not in MODERN_CODES


@requirement("C34", "C48", "A14")
async def test_a_legacy_only_endpoint_serves_sessions():
    async with serving(a_server(), era="legacy") as http:
        for version in wire.LEGACY:
            session = await http.initialize(version)
            assert session.version == version
            assert "extensions" not in session.init["capabilities"]
            result = (await session.call("add", {"a": 1, "b": 2})).result
            assert result["content"][0]["text"] == "3"
            assert "resultType" not in result
        # A client that would rather speak the newest is offered the newest that has sessions.
        assert (await http.initialize(wire.MODERN)).version == wire.LEGACY[-1]


# ----- Both


@requirement("C41", "C48", "C49", "F106")
async def test_both_eras_share_an_endpoint_and_nothing_else():
    async with serving(a_server()) as http:
        session = await http.initialize("2025-06-18")
        headers = [("Mcp-Session-Id", session.id)]
        request = modern_request("tools/list")
        response = await http.request("POST", headers=[*request["headers"], *headers], json=request["json"])
        assert response.result["resultType"] == "complete"
        assert "mcp-session-id" not in response.headers
        assert (await session.post("tools/list")).result["tools"]
        assert (await http.request("DELETE", headers=request["headers"])).status in {400, 404}
        assert await http.count() == 1


@requirement("C42")
@pytest.mark.parametrize("version", ["2099-01-01", "2025-11-25", "", "latest"])
async def test_each_request_is_judged_by_the_revision_it_names(version):
    async with serving(a_server()) as http:
        response = await http.modern("tools/list", version=version)
        assert (response.status, response.error["code"]) == (400, -32022)
        assert response.error["data"] == {"supported": [wire.MODERN], "requested": version}
        assert (await http.modern("tools/list")).status == 200


def test_an_era_there_is_not_is_refused_by_name():
    with pytest.raises(SettingError, match="era is 'both', 'modern' or 'legacy', not 'old'"):
        Settings(era="old")  # type: ignore[arg-type]


# ----- Clients that can do either


SCRIPT = Path(ROOT, "tests", "clients", "py_mcp2.py")


def run_client(url: str, mode: str) -> str:
    env = {name: value for name, value in os.environ.items() if name not in OURS}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), url, mode],
        capture_output=True,
        timeout=SCRIPT_WITHIN,
        env=env,
        check=False,
        encoding="utf-8",
    )
    return f"{done.stdout}\n{done.stderr}"


@requirement("C48", "C52")
@pytest.mark.clients
@pytest.mark.parametrize(
    ("era", "mode", "negotiated"),
    [
        ("legacy", "auto", "2025-11-25"),
        ("legacy", "legacy", "2025-11-25"),
        ("modern", "auto", "2026-07-28"),
        ("modern", "2026-07-28", "2026-07-28"),
        ("both", "auto", "2026-07-28"),
    ],
)
def test_the_official_client_settles_on_what_there_is(era, mode, negotiated):
    with fixture_server_process(env={"MCPD_ERA": era}) as server:
        said = run_client(server.url, mode)
    assert f"negotiated {negotiated}" in said, said
    assert "fails=0" in said, said
    assert {"tools/list", "call simple", "sampling", "elicitation", "two rounds"} <= steps_taken(said).keys()


@requirement("C42", "C47")
@pytest.mark.clients
@pytest.mark.parametrize(("era", "mode"), [("modern", "legacy"), ("legacy", "2026-07-28")])
def test_a_client_of_the_other_era_is_told_so(era, mode):
    with fixture_server_process(env={"MCPD_ERA": era}) as server:
        said = run_client(server.url, mode)
    assert "negotiated" not in said or "fails=0" not in said, said
    wanted = "Unsupported protocol version" if era == "modern" else "begin with initialize"
    assert wanted in said, said
