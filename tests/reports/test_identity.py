"""Who may use a session: whoever opened it, and nobody who only knows its ID."""

from tests.auth.users import ADA, BOB, bearer, guarded, log_in, seen
from tests.harness import rpc
from tests.reports.rig import Rig
from tests.reports.test_stale_sessions import UNKNOWN, with_id

INITIALIZE = rpc(
    "initialize",
    {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "junk", "version": "1"}},
    id=1,
)


async def test_r10_junk_credentials_open_no_session(clock, tmp_path, rig: Rig, front: str):
    """Two hundred tokens that only looked right opened two hundred sessions; the real check was inside the tools."""
    async with guarded(rig.server, tmp_path, front=front, store=rig.storage.new()) as http, http.keep_alive() as client:
        for number in range(200):
            response = await client.request("POST", headers=bearer(f"{ADA[:-3]}{number:03}"), json=INITIALIZE)
            assert response.status == 401
            assert "mcp-session-id" not in response.headers
        assert await http.count() == 0


async def test_r13_with_credentials_unknown_is_404(clock, tmp_path, rig: Rig, front: str):
    """A lost session answered 401 sent users through the log-in again, with credentials that were good."""
    async with guarded(rig.server, tmp_path, front=front, store=rig.storage.new()) as http:
        session = await log_in(http)
        for id_ in (UNKNOWN, session.id):
            for method, request in with_id(id_).items():
                valid = request | {"headers": request["headers"] | bearer(ADA)}
                invalid = request | {"headers": request["headers"] | bearer("nonsense")}
                assert (await http.request(method, **invalid)).status == 401
                if id_ == UNKNOWN:
                    response = await http.request(method, **valid)
                    assert response.status == 404
                    assert "www-authenticate" not in response.headers


async def test_r67_an_id_alone_opens_no_door(clock, tmp_path, rig: Rig, front: str):
    """A second user with the first one's session ID could use the session, listen to it and end it."""
    async with guarded(rig.server, tmp_path, front=front, store=rig.storage.new()) as http:
        session = await log_in(http)
        async with session.get() as stream:
            await stream.event()
            for method in ("POST", "GET", "DELETE"):
                answers = []
                for id_ in (session.id, UNKNOWN):
                    request = with_id(id_)[method]
                    answers.append(
                        seen(await http.request(method, **request | {"headers": request["headers"] | bearer(BOB)}))
                    )
                assert answers[0] == answers[1], "they tell which IDs exist"
                assert answers[0][0] == 404
            assert not stream.ended
            rig.server.notify_tools_changed()
            assert (await stream.message())["method"] == "notifications/tools/list_changed"
        assert (await session.post("tools/list")).status == 200
