"""A replica is gone: what its clients see, and what it leaves behind (reports R18, R21)."""

import signal
from typing import Any

import pytest
import trio

from mcpd.sessions.leases import LEASE
from mcpd.tasks.tasks import LEASE as TASK_LEASE
from tests.harness import Client, ConnectionLost
from tests.replicas.balancer import balanced
from tests.replicas.group import at, kill, replicas
from tests.stores.redis_server import RedisServer, keys_without_ttl, server, until
from tests.tasks.jobs import TASKS, begin, get


async def test_r18_sessions_of_a_killed_replica_go_on_at_once(redis_server: RedisServer, front: str) -> None:
    """Requests waited for the dead owner of their session until its key expired."""
    with replicas(2, redis_server.url(), "--front", front) as (a, b):
        async with balanced(a, b) as balancer:
            sessions = [await a.initialize() for _ in range(3)]
            for number, session in enumerate(sessions):
                await session.call("own", {"value": str(number)})
            kill(a)
            with trio.fail_after(1):
                assert (await at(sessions[0], b).call("own")).text == "0"
            for number, session in enumerate(sessions):
                for client in (b, balancer):
                    assert (await at(session, client).call("own")).text == str(number)


async def test_calls_and_tasks_of_a_killed_replica_end_with_an_error(redis_server: RedisServer) -> None:
    with replicas(2, redis_server.url()) as (a, b):
        session = await a.initialize()
        done = await a.initialize()
        task = await begin(a, "work", {"seconds": 600})
        async with (
            at(session, b).get() as listening,
            session.open_call("spell", {"word": "abc", "pause": 300}, id=4, progress=1) as stream,
            done.open_call("spell", {"word": "done", "pause": 0}, id=5, progress=1) as finished,
        ):
            assert (await stream.message())["params"]["message"] == "a"
            for _ in range(2):
                assert (await finished.message())["method"] == "notifications/progress"
            position = finished.last_id
            assert len(await finished.rest()) == 3
            kill(a)
            with pytest.raises(ConnectionLost):
                await stream.message()
            async with at(session, b).get(stream.last_id) as rest, at(session, b).get(stream.last_id) as same:
                assert rest.status == 200
                (error,) = await rest.rest(within=LEASE + 8)
                assert error["id"] == 4
                assert error["error"]["message"] == "The server that ran this call is gone; call again if that is safe"
                assert error in await same.rest(within=5)  # whoever else follows it is told as well
            # What had come to its end is all there.
            async with at(done, b).get(position) as rest:
                assert (await rest.rest(within=2))[-1]["result"]["content"][0]["text"] == "done"
            # The session, and its stream elsewhere, are as they were.
            assert not listening.ended
            assert (await at(session, b).post("ping")).status == 200
        with trio.fail_after(20):
            while (found := await get(b, task["taskId"]))["status"] == "working":  # noqa: ASYNC110
                await trio.sleep(0.5)
        assert (found["status"], found["error"]["message"]) == ("failed", "The server that ran the task is gone")


async def test_everybody_who_asks_learns_that_a_task_is_lost(redis_server: RedisServer) -> None:
    with replicas(2, redis_server.url()) as (a, b):
        session = await a.initialize()
        tasks = [
            (await session.post("tools/call", {"name": "work", "arguments": {"seconds": 600}, "task": {}})).result
            for _ in range(2)
        ]
        ids = [task["task"]["taskId"] for task in tasks]
        modern = (await begin(a, "work", {"seconds": 600}))["taskId"]
        listen = {"notifications": {"taskIds": [modern]}}
        outcomes: dict[str, Any] = {}

        async def result(task_id: str) -> None:
            outcomes[task_id] = (await at(session, b).post("tasks/result", {"taskId": task_id}, within=30)).answer

        async with b.open_modern("subscriptions/listen", listen, capabilities=TASKS) as listening:
            await listening.message()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(result, ids[0])
                kill(a)
                # Nobody asks for this one, but who is to be told of it is.
                told = await listening.message(within=2 * TASK_LEASE + 5)
                assert (told["method"], told["params"]["status"]) == ("notifications/tasks", "failed")
        assert outcomes[ids[0]]["error"]["message"] == "The server that ran the task is gone"
        listed = (await at(session, b).post("tasks/list")).result["tasks"]
        assert [(each["taskId"], each["status"]) for each in listed] == [(each, "failed") for each in ids]
        found = (await at(session, b).post("tasks/get", {"taskId": ids[1]})).result
        assert (found["status"], found["statusMessage"]) == ("failed", "The server that ran the task is gone")


async def test_a_replica_that_is_stopped_finishes_its_calls_and_ends_its_streams(redis_server: RedisServer) -> None:
    with replicas(2, redis_server.url()) as (a, b):
        session = await a.initialize()
        async with (
            session.get() as stream,
            session.open_call("spell", {"word": "abcdef", "pause": 0.3}, progress=1) as call,
        ):
            await stream.event()
            await call.message()
            a.signal(signal.SIGTERM)
            assert await stream.rest(within=2) == []
            async with at(session, b).get(stream.last_id) as instead:
                assert instead.status == 200
                assert (await call.rest(within=5))[-1]["result"]["content"][0]["text"] == "abcdef"
                assert await trio.to_thread.run_sync(a.wait) == 0
                assert (await at(session, b).call("change")).text == "changed"
                assert (await instead.message(within=2))["method"] == "notifications/tools/list_changed"


async def test_r21_nothing_stays_of_a_replica_that_was_killed(front: str) -> None:
    """After a crash keys without a TTL stayed for ever, and later pods tried to use them."""
    options = ("--session-idle", "3s", "--front", front)
    with server() as redis, redis.client() as client, replicas(2, redis.url(), *options) as (a, b):
        await until(lambda: client.dbsize() == 0)
        async with trio.open_nursery() as nursery:
            opened: list[str] = []

            async def one(number: int) -> None:
                session = await a.initialize()
                await session.post("resources/subscribe", {"uri": f"replica://{number}"})
                async with session.get() as stream:
                    await stream.event()
                    opened.append(session.id)
                    with pytest.raises(ConnectionLost):
                        await stream.message()

            for number in range(100):
                nursery.start_soon(one, number)
            await until(lambda: len(opened) == 100, within=20)
            async with (await a.initialize()).open_call("hold", {"label": "x"}, progress=1) as call:
                await call.message()
                task = await begin(a, "work", {"seconds": 600})
                assert client.dbsize() > 200  # records and logs
                assert not keys_without_ttl(client)
                assert not [key for key in client.scan_iter() if a.url.encode() in key or str(a.pid).encode() in key]
                kill(a)
        with trio.fail_after(10):
            while left := [key for key in client.scan_iter(count=1000) if b":task" not in key and b":lease" not in key]:
                assert not keys_without_ttl(client)
                await _look(b)
                await trio.sleep(0.2)
        assert not left
        # A task is kept as long as it was promised; a lease as long as its call could have been resumed.
        assert not keys_without_ttl(client)
        assert (await get(b, task["taskId"]))["taskId"] == task["taskId"]


async def _look(replica: Client) -> None:
    assert (await replica.request("GET", "/metrics")).status == 200
