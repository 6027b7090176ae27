"""Clients that come back with a session ID the server does not know, or that is none."""

from functools import partial

import pytest

from tests.harness import rpc, serving
from tests.reports.rig import Rig

UNKNOWN = "A" * 24  # what an ID looks like


def with_id(session_id: "str | bytes"):
    """One request of each method, with this session ID."""
    headers = {"Mcp-Session-Id": session_id}
    return {
        "POST": {"headers": headers, "json": rpc("tools/list", id=1)},
        "GET": {"headers": headers},
        "DELETE": {"headers": headers},
    }


async def test_r12_unknown_is_404_and_missing_is_400(clock, rig: Rig, front: str):
    """Servers said 400 for a session lost in a restart; clients initialize again on 404 alone."""
    async with rig.serving(front=front) as http:
        for method, request in with_id(UNKNOWN).items():
            response = await http.request(method, **request)
            assert response.status == 404, method
            assert response.json["error"]["code"] == -32600
            assert response.json["id"] == (1 if method == "POST" else None)
        for message in (
            rpc("tools/list", id=1),
            rpc("notifications/initialized"),
            {"jsonrpc": "2.0", "id": 1, "result": {}},
        ):
            response = await http.request("POST", json=message)
            assert response.status == 400
            assert "Mcp-Session-Id is missing" in response.json["error"]["message"]


async def test_r13_unknown_is_never_401(clock, rig: Rig, front: str):
    """A lost session answered 401 made clients throw their credentials away."""
    async with rig.serving(front=front) as http:
        for method, request in with_id(UNKNOWN).items():
            request["headers"] |= {"Authorization": "Bearer valid"}
            response = await http.request(method, **request)
            assert response.status == 404
            assert "www-authenticate" not in response.headers


def noted(records) -> list[str]:
    """Which records will be asked for."""
    asked: list[str] = []

    def ask(verb, key, **ttl):
        asked.append(key)
        return verb(key, **ttl)

    for name in {"load", "load_nowait", "delete"} & set(dir(records)):
        setattr(records, name, partial(ask, getattr(records, name)))
    return asked


@pytest.mark.parametrize(
    "odd",
    [
        "__proto__",
        "constructor",
        "*",
        "?" * 24,
        "../x",
        "../../../../../../etc/pas",
        "mcpd:*",
        "mcpd:session:AAAAAAAAAAAA",
        "a" * 8_192,
        "A" * 23,
        "A" * 25,
        "AAAAAAAAAAA AAAAAAAAAAAA",
        'AAAAAAAAAAA"AAAAAAAAAAAA',
        "AAAAAAAAAAA\tAAAAAAAAAAAA",
        "é".encode() * 12,
        b"\xff" * 24,
        "",
        UNKNOWN,
    ],
    ids=repr,
)
async def test_r14_an_odd_id_matches_nothing(clock, rig: Rig, front: str, odd: "str | bytes"):
    """IDs such as ``constructor`` found what the language keeps under that name; others took another path to a 500."""
    store = rig.storage.new()
    asked = noted(store.records("session"))
    async with serving(rig.server, front=front, store=store) as http:
        session = await http.initialize()
        assert await http.count() == 1
        assert (await session.post("ping")).status == 200
        assert set(asked) == {session.id}, "this test sees nothing"
        asked.clear()
        for method, request in with_id(odd).items():
            response = await http.request(method, **request)
            assert response.status in {400, 404}, method
            assert "error" in response.json
        text = odd if isinstance(odd, str) else odd.decode("latin-1")
        assert set(asked) <= {text}
        assert rig.ran == []
        assert await http.count() == 1


async def test_r15_after_a_restart_a_client_can_go_on(clock, rig: Rig, front: str):
    """Clients sent the dead ID for ever; some sent it along with initialize, and were refused there as well."""
    async with rig.serving(front=front) as http:
        old = await http.initialize()
    rig.storage.lose()
    async with rig.serving(front=front) as http:
        response = await http.request("POST", headers=old.headers(), json=rpc("tools/list", id=1))
        assert response.status == 404
        assert "initialize again" in response.json["error"]["message"]
        new = await http.initialize(headers={"Mcp-Session-Id": old.id})
        assert new.id != old.id
        assert (await new.post("tools/list")).status == 200
        assert await http.count() == 1


async def test_r16_get_before_initialize_is_405(clock, rig: Rig, front: str):
    """Some clients look for a stream before they initialize, and take no answer but 405 for "there is none"."""
    async with rig.serving(front=front) as http:
        for accept in ("text/event-stream", "application/json", "*/*", "text/html", None):
            response = await http.request("GET", headers={"Accept": accept})
            assert response.status == 405, accept
            assert "POST" in response.headers["allow"]
            assert "GET" not in response.headers["allow"]
            assert "error" in response.json
        assert await http.count() == 0


async def test_r70_without_an_id_nobody_elses_session_is_used(clock, rig: Rig, front: str):
    """With one client connected, a request without an ID was served as that client's."""
    async with rig.serving(front=front) as http:
        session = await http.initialize()
        async with session.get() as stream:
            await stream.event()
            response = await http.request(
                "POST", json=rpc("tools/call", {"name": "echo", "arguments": {"text": "x"}}, id=1)
            )
            assert response.status == 400
            assert (await http.request("DELETE")).status == 400
            assert rig.ran == []
            rig.server.notify_tools_changed()
            # The first message on the stream is this one: nothing of the stranger's was before it.
            assert (await stream.message())["method"] == "notifications/tools/list_changed"


async def test_r71_clients_that_never_send_the_id(clock, rig: Rig, front: str):
    """Hosted chat clients ignore the session header; every call after initialize was refused."""
    call = rpc("tools/call", {"name": "echo", "arguments": {"text": "x"}}, id=1)
    async with rig.serving(front=front) as http:
        await http.initialize()
        assert (await http.request("POST", json=call)).status == 400
    rig.storage.lose()
    async with rig.serving(front=front, sessions=False) as http:
        response = await http.request(
            "POST",
            json=rpc(
                "initialize",
                {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "chat", "version": "1"}},
                id=0,
            ),
        )
        assert response.status == 200
        assert "mcp-session-id" not in response.headers
        assert response.result["protocolVersion"] == "2025-06-18"
        assert (await http.request("POST", json=rpc("notifications/initialized"))).status == 202
        assert (await http.request("POST", json=call)).text == "x"
        tools = (await http.request("POST", json=rpc("tools/list", id=2))).result["tools"]
        assert {"echo", "hold"} < {tool["name"] for tool in tools}
        assert await http.count() == 0
