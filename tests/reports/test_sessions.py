"""Sessions in the field: how long they live, what they leave behind, and how many there may be."""

import gc
import sys

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpd.metrics import Metrics
from tests.harness import mentions, process, rpc
from tests.reports.rig import Rig
from tests.reports.storage import in_memory


def allocated() -> int:
    """How many small objects there are. Cycles in what is not ours, as in Hypercorn's connections, do not count."""
    gc.collect()
    return sys.getallocatedblocks()


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


@in_memory
async def test_r01_idle_sessions_are_forgotten(clock, rig: Rig, front: str):
    """Most clients never send DELETE; operators saw every session they had ever served stay until the restart."""
    idle = 600.0
    async with rig.serving(front=front, session_idle=idle, max_sessions=5_000, keep_alive=5.0) as http:

        async def come_and_go(count: int) -> None:
            async with http.keep_alive() as client:
                ids = [(await http.initialize(on=client)).id for _ in range(count // 4)]
                ids += [(await http.initialize(on=client, initialized=False)).id for _ in range(count - len(ids))]
            await wait_all_tasks_blocked()
            assert await http.count() == count
            await trio.sleep(idle + 1.1)  # and a sweep
            assert await http.count() == 0
            async with http.keep_alive() as client:
                for id_ in ids[:: count // 100]:
                    response = await http.request(
                        "POST", on=client, headers={"Mcp-Session-Id": id_}, json=rpc("tools/list", id=1)
                    )
                    assert response.status == 404
            await http.settle()

        await come_and_go(100)  # what is made once is made by now
        before = tasks()
        blocks = allocated()
        await come_and_go(2_000)
        assert tasks() == before
        # Counting hides what has expired; what counts is that it was freed: no session has left even one small object.
        assert allocated() - blocks < 2_000


async def test_r01_nothing_is_kept_of_an_idle_session(clock, rig: Rig, front: str):
    """The same wherever sessions are kept: the record, the log of its streams and its place in the index are gone."""
    async with rig.serving(front=front, session_idle=600.0) as http:
        left, used = [await http.initialize() for _ in range(5)], await http.initialize()
        for session in left:
            await session.call("steps", {"count": 2}, progress=1)
        await rig.storage.advance(400.0)
        assert (await used.post("tools/list")).status == 200
        await rig.storage.advance(201.0)
        assert await http.count() == 1
        for session in left:
            assert (await session.post("tools/list")).status == 404
        assert (await used.post("tools/list")).status == 200
        await rig.storage.advance(601.1)
        assert await http.count() == 0
        rig.storage.check("session:", "events:")


async def test_r02_delete_stops_everything_at_once(clock, rig: Rig, front: str):
    """A polite client's DELETE was answered 200 and freed nothing: the call ran on, the session stayed in the table."""
    async with rig.serving(front=front, stream_after=0.01) as http:
        session = await http.initialize()
        async with session.get() as listening, session.open_call("wait", {"seconds": 1_000}, id="late") as calling:
            await rig.held()
            assert (await session.delete()).status == 204
            assert await http.count() == 0
            assert await listening.rest() == []
            (answer,) = await calling.rest()
            assert answer["id"] == "late"
            assert answer["error"]["message"] == "The session was terminated"
        assert rig.outcomes == {"cancelled": 1}
        rig.storage.check("session:", "events:")
        assert (await session.delete()).status == 404
        assert (await session.call("echo", {"text": "x"})).status == 404
        assert rig.ran == []


async def test_r02_two_hundred_deletes_leave_nothing(clock, leftovers, rig: Rig, front: str):
    """Two hundred sessions in a row were ended properly, and each left its streams and its call behind."""
    async with rig.serving(front=front, stream_after=0.01) as http:
        await wait_all_tasks_blocked()
        before = tasks()
        async with http.keep_alive() as client:
            for number in range(200):
                session = await http.initialize(on=client)
                async with session.get() as listening, session.open_call("wait", {"seconds": 1_000}) as calling:
                    await rig.held()
                    assert (await session.delete(on=client)).status == 204
                    await listening.rest()
                    await calling.rest()
                assert rig.outcomes == {"cancelled": number + 1}
        await rig.storage.until(lambda: leftovers() == {})
        await rig.storage.until(lambda: tasks() == before)
        assert await http.count() == 0
        assert http.endpoint.streams == set()
        assert http.endpoint.calls == set()
        assert mentions(http.endpoint, session.id) == []


INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "probe", "version": "1"},
}
REFUSED = {
    "GET": (405, "GET", {}),
    "GET without Accept": (405, "GET", {"headers": {"Accept": None}}),
    "HEAD": (405, "HEAD", {}),
    "PUT": (405, "PUT", {"body": b"{}"}),
    "OPTIONS": (204, "OPTIONS", {}),
    "DELETE": (400, "DELETE", {}),
    "Accept": (406, "POST", {"headers": {"Accept": "text/html"}, "json": rpc("initialize", INITIALIZE, id=1)}),
    "no JSON": (400, "POST", {"body": b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", '}),
    "another method": (400, "POST", {"json": rpc("tools/list", id=1)}),
    "no params": (400, "POST", {"json": rpc("initialize", id=1)}),
    "wrong params": (400, "POST", {"json": rpc("initialize", {"protocolVersion": 7}, id=1)}),
    "a notification": (400, "POST", {"json": rpc("initialize", INITIALIZE)}),
    "in a batch": (400, "POST", {"json": [rpc("initialize", INITIALIZE, id=1)]}),
    "Host": (421, "POST", {"headers": {"Host": "evil.example"}, "json": rpc("initialize", INITIALIZE, id=1)}),
    "Origin": (
        403,
        "POST",
        {"headers": {"Origin": "http://evil.example"}, "json": rpc("initialize", INITIALIZE, id=1)},
    ),
    "Content-Type": (
        415,
        "POST",
        {"headers": {"Content-Type": "text/plain"}, "json": rpc("initialize", INITIALIZE, id=1)},
    ),
    "too large": (413, "POST", {"json": rpc("initialize", INITIALIZE | {"_meta": {"x": "y" * 5_000}}, id=1)}),
    "elsewhere": (404, "POST", {"path": "/", "json": rpc("initialize", INITIALIZE, id=1)}),
    "discover": (200, "POST", None),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_r03_a_refused_request_opens_no_session(clock, rig: Rig, front: str, what: str):
    """Half of the sessions of one server were probes and mistakes, registered before the request was looked at."""
    status, method, request = REFUSED[what]
    async with rig.serving(front=front, max_body=4_096) as http, http.keep_alive() as client:
        for _ in range(100):
            if request is None:
                response = await http.modern("server/discover", on=client)
            else:
                response = await client.request(method, **request)
            assert response.status == status
            assert "mcp-session-id" not in response.headers
            if response.body and status != 200:
                assert response.json["jsonrpc"] == "2.0"
                assert "error" in response.json
        assert await http.count() == 0


async def test_r04_no_side_table_outlives_a_session(clock, rig: Rig, front: str):
    """Log levels, subscriptions and tools of a session stood in tables of their own, which only DELETE cleared."""
    async with rig.serving(front=front, session_idle=60.0) as http:
        session = await http.initialize()
        await session.post("logging/setLevel", {"level": "error"})
        await session.post("resources/subscribe", {"uri": "rig://one"})
        async with session.get() as stream:
            await stream.event()
            rig.server.notify_resource_updated("rig://one")
            await stream.message()
            assert mentions(http.endpoint, session.id), "this test sees nothing"
        await session.call("steps", {"count": 3}, progress=1)
        session_id, session = session.id, None
        await rig.storage.advance(62.0)
        assert await http.count() == 0
        await rig.storage.until(lambda: mentions(http.endpoint, session_id) == [])
        rig.storage.check("session:", "events:")


async def test_r05_a_session_never_initialized_goes_soon(clock, rig: Rig, front: str):
    """The idle clock began only with notifications/initialized; clients that died before it left sessions for ever."""
    async with rig.serving(front=front, session_idle=3_600.0, initialization_timeout=30.0) as http:
        async with http.connect() as connection:
            await connection.send("POST", json=rpc("initialize", INITIALIZE, id=0))
            await connection.response()
            connection.cut()
        silent = await http.initialize(initialized=False)
        used = await http.initialize()
        assert await http.count() == 3
        await rig.storage.advance(31.0)
        assert await http.count() == 1
        assert (await silent.post("tools/list")).status == 404
        assert (await used.post("tools/list")).status == 200


async def test_r06_requests_without_a_session_leave_nothing(clock, leftovers, rig: Rig, front: str):
    """Stateless mode, chosen to avoid leaks, left a task in the global task group for each request."""
    number = 2_000 if clock else 400
    async with rig.serving(front=front) as http, http.keep_alive() as client:

        async def some(count: int) -> None:
            for number in range(count):
                assert (await http.call("echo", {"text": str(number)}, on=client)).text == str(number)

        async def many(count: int) -> None:
            async with trio.open_nursery() as nursery:
                for number in range(count):
                    nursery.start_soon(http.call, "echo", {"text": str(number)})

        await some(100)
        await many(200)
        await http.settle()
        before = tasks()
        rig.ran.clear()
        blocks = allocated()
        await some(number)
        await many(200)
        assert len(rig.ran) == number + 200
        rig.ran.clear()
        await rig.storage.until(lambda: leftovers() == {})
        await rig.storage.until(lambda: tasks() == before)
        assert await http.count() == 0
        assert allocated() - blocks < number + 200  # less than one small object a request


@in_memory
async def test_r07_no_idle_time_under_a_call_or_a_stream(clock, rig: Rig, front: str):
    """An idle timeout shorter than a slow tool reaped the session in the middle of the call."""
    async with rig.serving(front=front, session_idle=1.0) as http:
        session = await http.initialize()
        assert (await session.call("wait", {"seconds": 3})).text == "waited 3"
        assert (await session.post("tools/list")).status == 200
        async with session.get() as stream:
            await trio.sleep(3.0)
            assert not stream.ended
        await trio.sleep(0.9)  # idle counts from the end of the last exchange
        assert (await session.post("tools/list")).status == 200
        await trio.sleep(1.1)
        assert (await session.post("tools/list")).status == 404


async def test_r07_what_is_in_use_is_renewed(clock, rig: Rig, front: str):
    """The same in the time of the store, which has to be told that a session is in use."""
    async with rig.serving(front=front, session_idle=1.0) as http:
        session = await http.initialize()
        assert (await session.call("wait", {"seconds": 1.5})).text == "waited 1.5"
        async with session.get() as stream:
            await trio.sleep(1.5)
            assert not stream.ended
            assert (await session.post("tools/list")).status == 200
        await rig.storage.advance(1.1)
        assert (await session.post("tools/list")).status == 404


@pytest.mark.parametrize(
    ("options", "env"),
    [
        (["--session-idle", "90s", "--max-sessions", "7"], {}),
        ([], {"MCPD_SESSION_IDLE": "90", "MCPD_MAX_SESSIONS": "7"}),
    ],
    ids=["flags", "environment"],
)
def test_r07_the_bounds_can_be_set_from_outside(options, env):
    """The timeout existed, but could not be reached from the high-level interface."""
    with process(None, *options, env=env) as served:
        assert "idle 90s, at most 7 sessions" in served.stderr


@in_memory
async def test_r09_at_the_cap_the_idle_give_way(clock, rig: Rig, front: str):
    """A cap without eviction locked new users out, while abandoned sessions held all places."""
    async with (
        rig.serving(front=front, max_sessions=50, max_sessions_per_principal=50, session_idle=1_500.0) as http,
        http.keep_alive() as client,
    ):
        sessions = []
        for _ in range(50):
            sessions.append(await http.initialize(on=client))
            await trio.sleep(1.0)
        assert (await sessions[0].post("ping")).status == 200  # so the second is the least recently used
        await http.initialize()
        assert await http.count() == 50
        assert (await sessions[1].post("ping")).status == 404
        for session in (sessions[0], *sessions[2:]):
            assert (await session.post("ping", on=client)).status == 200
        await trio.sleep(1_000.0)
        assert (await sessions[0].post("ping")).status == 200
        await trio.sleep(1_000.0)
        _, page = await Metrics(http.endpoint).page()
        lines = page.decode().splitlines()
        for line in (
            "mcpd_sessions_active 1.0",
            "mcpd_sessions_max 50.0",
            'mcpd_sessions_ended_total{reason="evicted"} 1.0',
            'mcpd_sessions_ended_total{reason="expired"} 49.0',
        ):
            assert line in lines


async def test_r09_at_the_cap_the_least_recently_used_gives_way(clock, rig: Rig, front: str):
    """The same in few words, for any store."""
    async with rig.serving(front=front, max_sessions=5, max_sessions_per_principal=5, session_idle=1_500.0) as http:
        sessions = []
        for _ in range(5):
            sessions.append(await http.initialize())
            await rig.storage.advance(10.0)
        assert (await sessions[0].post("ping")).status == 200  # so the second is the least recently used
        await rig.storage.advance(10.0)
        await http.initialize()
        assert await http.count() == 5
        statuses = [(await session.post("ping")).status for session in sessions]
        assert statuses == [200, 404, 200, 200, 200]
        assert http.endpoint.sessions.records.dropped.evicted == 1
        rig.storage.check()


async def test_r09_at_the_cap_nobody_in_use_gives_way(clock, rig: Rig, front: str):
    """The other half: eviction must not take a session with a call or a stream; then a newcomer has to wait."""
    async with rig.serving(front=front, max_sessions=50, max_sessions_per_principal=50) as http:
        answers = []

        async def call(session):
            answers.append((await session.call("hold")).text)

        async with trio.open_nursery() as nursery:
            sessions = [await http.initialize() for _ in range(50)]
            for session in sessions:
                nursery.start_soon(call, session)
            await rig.held(50)
            response = await http.request("POST", json=rpc("initialize", INITIALIZE, id=1))
            assert response.status == 503
            assert int(response.headers["retry-after"]) > 0
            assert "mcp-session-id" not in response.headers
            assert response.json["error"]["message"] == "All sessions are in use; try again later (max_sessions)"
            assert await http.count() == 50
            rig.release.set()
        assert answers == ["held"] * 50
        assert http.endpoint.sessions.records.dropped.evicted == 0
        await http.initialize()
        assert await http.count() == 50


async def test_r11_a_lost_stream_is_no_lost_session(clock, rig: Rig, front: str):
    """A GET stream dropped by a sleeping laptop took the session with it, or stayed registered for ever."""
    async with rig.serving(front=front) as http:
        await wait_all_tasks_blocked()
        before = tasks()
        session = await http.initialize()
        async with session.get() as stream:
            await stream.event()
            assert len(http.endpoint.streams) == 1
            stream.cut()
            await rig.storage.until(lambda: http.endpoint.streams == set())
            await rig.storage.until(lambda: http.endpoint.sessions.busy() == 0)
            await rig.storage.until(lambda: tasks() == before)
        assert (await session.post("tools/list")).status == 200
        async with session.get() as stream:
            assert stream.status == 200
            rig.server.notify_tools_changed()
            assert (await stream.message())["method"] == "notifications/tools/list_changed"
