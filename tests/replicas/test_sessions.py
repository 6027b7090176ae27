"""Any replica serves any session (reports R17, R22, R23, R41, R63)."""

from itertools import cycle

import pytest
import trio

from tests.harness import Client, Connection, Process
from tests.harness.ends import WINDOW, SocketEnd
from tests.processes import free_port
from tests.replicas.balancer import balanced
from tests.replicas.group import STATE_KEYS, at, replicas
from tests.stores.redis_server import RedisServer, calls, keys_without_ttl

REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


async def test_r17_every_replica_serves_every_request_of_a_session(three: list[Process]) -> None:
    """A session lived in the memory of one process, and every other process said 404."""
    async with balanced(*three) as balancer:
        session = await balancer.initialize()
        for _ in range(30):
            assert (await session.post("tools/list")).status == 200
        served = [(await session.call("pid")).text for _ in range(30)]
        assert sorted(set(served)) == sorted(str(replica.pid) for replica in three)
        assert list(balancer.served.values()) == [62 // 3 + extra for extra in (1, 1, 0)]
        # And each sees what another one has changed.
        assert [(await session.call("count")).text for _ in range(7)] == [str(n) for n in range(1, 8)]


async def test_one_id_for_all_requests_brings_each_its_own_answer(three: list[Process]) -> None:
    # Clients there are that number every request 1, also at the same time.
    answers: dict[str, str] = {}
    async with balanced(*three) as balancer:
        sessions = [await balancer.initialize() for _ in range(3)]

        async def call(number: int) -> None:
            text = f"call {number}"
            response = await sessions[number % 3].call("echo", {"text": text, "seconds": 0.3}, id=1)
            assert response.answer["id"] == 1
            answers[text] = response.text

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                for number in range(18):
                    nursery.start_soon(call, number)
    assert answers == {f"call {number}": f"call {number}" for number in range(18)}


@pytest.mark.parametrize("version", REVISIONS)
async def test_another_replica_knows_what_was_negotiated(version: str, three: list[Process]) -> None:
    a, b, c = three
    session = at(await a.initialize(version), b)
    assert session.version == version
    # Only 2025-03-26 has batches, with or without the header that later revisions brought.
    batch = [{"jsonrpc": "2.0", "id": 1, "method": "ping"}]
    for headers in ({}, {"MCP-Protocol-Version": version}):
        response = await session.send(batch, headers=headers)
        assert response.status == (200 if version == "2025-03-26" else 400), response.body
    assert (await at(session, c).post("ping", headers={"MCP-Protocol-Version": "2099-01-01"})).status == 400


class _DebugPage(Client):
    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port

    def connect(self, *, window: int = WINDOW) -> Connection:
        return Connection(SocketEnd.connect(("127.0.0.1", self._port)))


async def test_r23_a_session_is_what_it_is_in_redis_and_nowhere_else(redis_server: RedisServer, front: str) -> None:
    """The replica that had not seen a session for long ended it for everybody."""
    # R23: nobody but the replica that serves a session hears of its use, and none ends it for that. R22: what counts
    # the sessions does not expire before them.
    options = ("--session-idle", "1.5s", "--max-sessions", "2")
    url, port = redis_server.url(), free_port()
    looked_into = ("--metrics-port", str(port), "--debug-endpoints")
    with (
        redis_server.client() as client,
        replicas(1, url, *options, "--front", front, *looked_into) as (a,),
        replicas(1, url, *options, "--front", front) as (b,),
    ):
        sessions = [await a.initialize() for _ in range(2)]
        for _ in range(16):  # 3 times the idle time
            for session in sessions:
                assert (await at(session, b).post("ping")).status == 200
            assert not keys_without_ttl(client)
            await trio.sleep(0.3)
        told = (await _DebugPage(port).request("GET", "/debug/sessions")).json
        assert (told["busy"], told["sessions"]) == (0, 2)
        # There are still two of them, so a third is one too many: one that was not used just now gives way, everywhere.
        third = await b.initialize()
        found = [(await each.post("ping")).status for each in (*sessions, at(third, a))]
        assert sorted(found) == [200, 200, 404]
        assert found[2] == 200
        # Without use they expire, and are unknown to all.
        await trio.sleep(2.0)
        for session, replica in zip((sessions[1], third), cycle((a, b)), strict=False):
            assert (await at(session, replica).post("ping")).status == 404


async def test_a_request_costs_one_round_trip(three: list[Process], redis_server: RedisServer) -> None:
    session = await three[0].initialize()
    with redis_server.client() as client:
        await session.call("echo", {"text": "x"})
        before = calls(client, "getex")
        for _ in range(20):
            assert (await session.call("echo", {"text": "x"})).text == "x"
        # The scripts that keep the index run once a second, however many requests there are.
        assert calls(client, "getex") - before == 20


async def test_questions_of_the_modern_era_are_answered_at_any_replica(three: list[Process]) -> None:
    # What was asked and answered travels sealed with the client; all replicas have the key.
    a, b, c = three
    capabilities = {"elicitation": {}}
    params = {"name": "ask_twice", "arguments": {}}
    answer = {"action": "accept", "content": {"name": "Ada"}}
    first = (await a.modern("tools/call", params, capabilities=capabilities)).result
    assert list(first["inputRequests"]) == ["first"]
    params["inputResponses"] = {"first": answer}
    second = (await b.modern("tools/call", params, capabilities=capabilities)).result
    assert list(second["inputRequests"]) == ["last"]
    answer = {"action": "accept", "content": {"name": "Lovelace"}}
    params |= {"inputResponses": {"last": answer}, "requestState": second["requestState"]}
    last = (await c.modern("tools/call", params, capabilities=capabilities)).result
    assert last["content"][0]["text"] == "Ada Lovelace"


async def test_without_the_key_a_state_is_refused_and_not_believed(
    three: list[Process], redis_server: RedisServer
) -> None:
    capabilities = {"elicitation": {}}
    answer = {"action": "accept", "content": {"name": "Ada"}}
    params = {"name": "ask_twice", "arguments": {}, "inputResponses": {"first": answer}}
    told = (await three[0].modern("tools/call", params, capabilities=capabilities)).result
    params |= {"requestState": told["requestState"], "inputResponses": {"last": answer}}
    (name,) = STATE_KEYS
    with replicas(1, redis_server.url(), env={name: "that-of-somebody-elses-replicas"}) as (stranger,):
        assert (await stranger.modern("tools/call", params, capabilities=capabilities)).error["code"] == -32602


async def test_handles_are_known_to_every_replica(three: list[Process]) -> None:
    a, b, _ = three
    handle = (await a.call("keep", {"value": "a value"})).text
    assert (await b.call("kept", {"handle": handle})).text == "a value"
