"""Redis is gone, or silent, or comes back with nothing (reports R24, R72)."""

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio

from tests.harness import Client, Process, Session, process
from tests.replicas.group import APP, at, replicas
from tests.stores.redis_server import RedisServer, proxy, server, until

PERSISTENT = ("--appendonly", "yes", "--appendfsync", "always")


async def ready(replica: Client, status: int) -> None:
    with trio.fail_after(10):
        while (await replica.request("GET", "/ready")).status != status:  # noqa: ASYNC110
            await trio.sleep(0.05)


async def check_outage(replica: Process, session_id: str) -> None:
    """What clients see while Redis is away."""
    headers = {"Mcp-Session-Id": session_id}
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    for path, method, status in (("/mcp", "POST", 503), ("/mcp", "GET", 503), ("/mcp", "DELETE", 503)):
        with trio.fail_after(1):
            body = {"json": ping} if method == "POST" else {}
            response = await replica.request(method, path, headers=headers, **body)
        assert (response.status, response.headers.get("retry-after", "").isdigit()) == (status, True), response
        assert "error" in response.json
    with trio.fail_after(1):
        initialize = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        response = await replica.request("POST", json=ping | {"method": "initialize", "params": initialize})
        assert (response.status, "mcp-session-id" in response.headers) == (503, False)
    with trio.fail_after(1):
        assert (await replica.call("echo", {"text": "modern"})).text == "modern"
    with trio.fail_after(1):
        assert (await replica.call("keep", {"value": "x"})).status == 503
    with trio.fail_after(1):
        assert (await replica.request("GET", "/health")).status == 200
        assert (await replica.request("GET", "/ready")).status == 503


@pytest.mark.parametrize("how", ["stopped", "silent"])
async def test_r24_an_outage_is_no_end_of_a_session(how: str, front: str) -> None:
    """While the store was away clients were told 404 or 401, or that any session was theirs."""
    with server(*PERSISTENT) as redis, replicas(2, redis.url(), "--front", front) as (a, b):
        session = await a.initialize()
        assert (await session.call("count")).text == "1"
        async with (
            at(session, b).get() as stream,
            at(session, b).open_call("echo", {"text": "x", "seconds": 3.0}) as call,
        ):
            await stream.event()
            await call.event()
            if how == "stopped":
                redis.kill()
            else:
                redis.pause()
            for replica in (a, b):
                await ready(replica, 503)
                await check_outage(replica, session.id)
            # What goes on needs nothing of Redis: the call is answered on the stream it has, the other stream stays.
            assert (await call.rest(within=8))[-1]["result"]["content"][0]["text"] == "x"
            assert not stream.ended
            if how == "stopped":
                await trio.to_thread.run_sync(redis.start)
            else:
                redis.resume()
            for replica in (a, b):
                await ready(replica, 200)
            assert [(await at(session, replica).call("count")).text for replica in (b, a)] == ["2", "3"]
            # It is told again of what happens elsewhere, as soon as the replicas are subscribed again.
            assert (await session.call("change")).text == "changed"
            assert (await stream.message(within=5))["method"] == "notifications/tools/list_changed"


async def test_a_redis_that_lost_its_data_knows_no_session() -> None:
    with server() as redis, replicas(2, redis.url()) as (a, b):
        session = await a.initialize()
        async with session.open_call("spell", {"word": "ab", "pause": 1.5}, id=1, progress=1) as call:
            await call.message()
            redis.kill()
            await trio.to_thread.run_sync(redis.start)
            await ready(a, 200)
            # It may be over before the replica notices that its session is no more; it is answered once either way.
            (answer,) = [message for message in await call.rest(within=8) if "id" in message]
            assert answer["id"] == 1
            assert "result" in answer or "session was terminated" in answer["error"]["message"], answer
        await ready(b, 200)
        for replica in (a, b):
            assert (await at(session, replica).post("ping")).status == 404
            assert (await at(session, replica).delete()).status == 404
        again = await b.initialize()
        assert (await at(again, a).call("count")).text == "1"
        with redis.client() as client:
            assert not [key for key in client.scan_iter() if client.pttl(key) == -1]


async def test_r72_cancelled_requests_leave_no_reply_to_others(redis_server: RedisServer, front: str) -> None:
    """A request cancelled between sending and reading gave its reply to the next one."""
    random.seed(72)
    async with proxy(redis_server.port, delay=0.02) as between:
        # The proxy has to share this process with 50 clients: it may be late by more than its delay.
        url = f"redis://127.0.0.1:{between.port}/0?prefix=r72&timeout=10"
        with redis_server.client() as client:
            before = len(client.client_list())
            # The proxy is part of this test's own loop, which must go on while the replica starts.
            async with _started(url, front) as replica:
                sessions = [await replica.initialize() for _ in range(50)]
                for number, session in enumerate(sessions):
                    assert (await session.call("own", {"value": str(number)})).text == str(number)

                async def leave(session: Session, after: float) -> None:
                    with trio.move_on_after(after):
                        await session.call("own")

                for _ in range(10):
                    async with trio.open_nursery() as nursery:
                        for session in sessions:
                            nursery.start_soon(leave, session, random.uniform(0, 0.06))
                wrong: list[str] = []

                async def use(number: int) -> None:
                    async with replica.keep_alive() as connection:
                        for _ in range(20):
                            text = (await sessions[number].call("own", on=connection)).text
                            if text != str(number):
                                wrong.append(text)

                async with trio.open_nursery() as nursery:
                    for number in range(50):
                        nursery.start_soon(use, number)
                assert not wrong
                assert len(client.client_list()) - before == 2


@asynccontextmanager
async def _started(url: str, front: str) -> AsyncGenerator[Process]:
    manager = process(APP, "--store", url, "--front", front)
    replica = await trio.to_thread.run_sync(manager.__enter__)
    try:
        yield replica
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(manager.__exit__, None, None, None)


@asynccontextmanager
async def _no_bus(redis: RedisServer) -> AsyncGenerator[None]:
    """While open, hardly any message between replicas arrives: their subscriptions are cut again and again."""

    async def cut(*, task_status: trio.TaskStatus[None]) -> None:
        with redis.client() as client:
            client.client_kill_filter(_type="pubsub")
            task_status.started()
            while True:
                client.client_kill_filter(_type="pubsub")
                await trio.sleep(0.001)

    async with trio.open_nursery() as nursery:
        await nursery.start(cut)
        yield
        nursery.cancel_scope.cancel()


async def test_what_the_bus_loses_is_found_all_the_same() -> None:
    with server() as redis, replicas(2, redis.url()) as (a, b):
        session, other = [await a.initialize(capabilities={"elicitation": {}}) for _ in range(2)]
        async with session.open_call("ask", {"question": "Who?"}, id=7) as call, other.get() as stream:
            question = await call.message()
            await stream.event()
            async with _no_bus(redis):
                answer = {"action": "accept", "content": {"name": "Ada"}}
                response = {"jsonrpc": "2.0", "id": question["id"], "result": answer}
                assert (await at(session, b).send(response)).status == 202
                # Only the first one counts.
                response["result"] = {"action": "cancel"}
                assert (await at(session, b).send(response)).status == 202
                assert (await at(other, b).delete()).status == 204
            (last,) = await call.rest(within=8)
            assert last["result"]["content"][0]["text"] == f"{a.pid} accept Ada"
            # It ends; before that it may have been told that changes may have been lost as well.
            assert not [m for m in await stream.rest(within=3) if not m["method"].endswith("/list_changed")]
        with redis.client() as client:
            assert not [key for key in client.scan_iter() if b":question" in key]


async def test_a_cancellation_that_the_bus_loses_is_found_and_cancels_no_later_call() -> None:
    with server() as redis, replicas(2, redis.url()) as (a, b):
        session, other = await a.initialize(), await a.initialize()
        async with (
            session.open_call("hold", {"label": "one"}, id=3, progress=1) as call,
            session.open_call("hold", {"label": "two"}, id=4, progress=2) as goes_on,
            other.open_call("hold", {"label": "three"}, id=3, progress=3) as anothers,
        ):
            for stream in (call, goes_on, anothers):
                await stream.message()
            async with _no_bus(redis):
                cancelled = await at(session, b).notify("notifications/cancelled", {"requestId": 3})
                assert cancelled.status == 202
            assert await call.rest(within=5) == []  # a cancelled request gets no response
            await until(lambda: "cancelled one" in a.stderr)
            # Clients use their ids again; what was cancelled before is not what runs now.
            async with session.open_call("hold", {"label": "four"}, id=3, progress=4) as again, other.get() as stream:
                await again.message()
                assert (await stream.event()).data == ""
                with redis.client() as client:
                    client.client_kill_filter(_type="pubsub")
                # The bus is back, and what it may have lost is looked up.
                assert (await stream.message())["method"].endswith("/list_changed")
                assert (await session.post("ping")).status == 200
                assert not any(f"cancelled {label}" in a.stderr for label in ("two", "three", "four"))
                assert (await session.notify("notifications/cancelled", {"requestId": 3})).status == 202
                assert await again.rest(within=2) == []


async def test_a_change_that_the_bus_loses_is_told_when_it_is_back() -> None:
    listen = {"notifications": {"promptsListChanged": True, "resourceSubscriptions": ["replica://mine"]}}
    with server() as redis, replicas(2, redis.url()) as (a, b):
        session = await a.initialize()
        await session.post("resources/subscribe", {"uri": "replica://watched"})
        async with at(session, b).get() as stream, b.open_modern("subscriptions/listen", listen) as modern:
            await stream.event()
            await modern.message()
            async with _no_bus(redis):
                assert (await session.call("change", {"uri": "replica://watched"})).text == "changed"
                assert (await session.call("change")).text == "changed"
            # All that may have changed counts as changed, once for each time the bus was away.
            heard: set[tuple[str, str]] = set()
            lists = {(f"notifications/{kind}/list_changed", "") for kind in ("tools", "prompts", "resources")}
            with trio.fail_after(10):
                while heard < lists | {("notifications/resources/updated", "replica://watched")}:
                    message = await stream.message()
                    heard.add((message["method"], message.get("params", {}).get("uri", "")))
            assert heard == lists | {("notifications/resources/updated", "replica://watched")}
            heard = set()
            wanted = {
                ("notifications/prompts/list_changed", ""),
                ("notifications/resources/updated", "replica://mine"),
            }
            with trio.fail_after(10):
                while heard < wanted:
                    message = await modern.message()
                    heard.add((message["method"], message["params"].get("uri", "")))
            assert heard == wanted


async def test_a_change_is_told_elsewhere_as_soon_as_it_can_be() -> None:
    """The bus of who hears it was not away: only the connection of who has to tell it."""
    with server() as redis:
        async with (
            proxy(redis.port) as between,
            _started(f"redis://127.0.0.1:{between.port}/0?prefix=one", "direct") as a,
        ):
            with replicas(1, _url(redis.port)) as (b,):
                session = await b.initialize()
                async with session.get() as stream:
                    await stream.event()
                    between.black_hole = True
                    await ready(a, 503)
                    assert (await a.call("change")).text == "changed"
                    # Told to its own clients, but Redis does not hear of it.
                    await until(lambda: "A change could not be told to other replicas" in a.stderr)
                    between.black_hole = False
                    between.cut()
                    assert (await stream.message(within=10))["method"] == "notifications/tools/list_changed"


def _url(port: int) -> str:
    return f"redis://127.0.0.1:{port}/0?prefix=one"
