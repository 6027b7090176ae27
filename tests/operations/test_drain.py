"""The end of a server: no longer ready at once, streams end, calls may finish, and nothing outlasts the drain.

Real processes, signals and sockets; and the same embedded, where an async function takes the signal's place.
"""

import signal
import socket
from functools import partial

import pytest
import trio

import mcpd
from tests.harness.client import Client
from tests.harness.connection import Connection
from tests.harness.ends import WINDOW, SocketEnd
from tests.harness.process import Process, process
from tests.operations.slow_app import server as slow_server
from tests.processes import free_port
from tests.stores.redis_server import RedisServer, program

SLOW = "tests.operations.slow_app:server"
LISTEN = {"notifications": {"toolsListChanged": True}}
PROMPT = 5.0
"""Seconds for what is to be at once, on a slow machine under load."""


async def until_draining(served: Process) -> None:
    with trio.fail_after(PROMPT):
        while "draining" not in served.stderr:  # noqa: ASYNC110 - it is another process
            await trio.sleep(0.01)


class Port(Client):
    """Another port of this machine."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port

    def connect(self, *, window: int = WINDOW) -> Connection:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=PROMPT)
        return Connection(SocketEnd(sock))


def refuses_connections(url: str) -> bool:
    host, _, port = url.split("/")[2].partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=PROMPT).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_streams_end_and_calls_finish(front, number):
    port = free_port()
    options = ["--front", front, "--drain-timeout", "30s", "--metrics-port", str(port)]
    with process(SLOW, *options) as served:
        session = await served.initialize()
        async with (
            session.get() as get,
            served.open_modern("subscriptions/listen", LISTEN) as listen,
            session.open_call("wait", {"seconds": 4}) as calling,
        ):
            assert "acknowledged" in (await listen.message())["method"]
            served.signal(number)
            await until_draining(served)
            began = trio.current_time()
            # Both streams end in good order, and the modern one with its result.
            assert await get.rest(within=PROMPT) == []
            assert [message["id"] for message in await listen.rest(within=PROMPT)] == [1]
            assert trio.current_time() - began < 1.0
            # Nobody new comes in, and who asks whether it is ready is told.
            assert refuses_connections(served.url)
            operators = Port(port)
            ready = await operators.request("GET", "/ready")
            assert (ready.status, ready.json) == (503, {"status": "draining"})
            assert (await operators.request("GET", "/health")).status == 200
            assert served.popen.poll() is None
            (answer,) = [message for message in await calling.rest(within=20) if "result" in message]
            assert answer["result"]["content"][0]["text"] == "waited 4"
        assert await trio.to_thread.run_sync(served.wait, 10) == 0


async def test_a_call_that_takes_too_long_is_cancelled_and_answered(front):
    with process(SLOW, "--front", front, "--drain-timeout", "500ms") as served:
        session = await served.initialize()
        async with session.open_call("wait", {"seconds": 600}) as calling:
            began = trio.current_time()
            served.signal(signal.SIGTERM)
            (answer,) = [message for message in await calling.rest(within=20) if "error" in message]
            assert answer["error"]["message"] == "The server is shutting down"
        assert await trio.to_thread.run_sync(served.wait, 10) == 0
        assert 0.4 < trio.current_time() - began < 0.5 + PROMPT


async def test_idle_connections_do_not_hold_it_up(front):
    with process(SLOW, "--front", front, "--drain-timeout", "60s") as served:
        async with served.connect() as fresh, served.keep_alive() as client:
            assert (await client.request("GET", "/health")).status == 200
            began = trio.current_time()
            served.signal(signal.SIGTERM)
            assert await trio.to_thread.run_sync(served.wait, 20) == 0
            assert trio.current_time() - began < PROMPT
            await fresh.wait_closed(within=PROMPT)


async def test_the_second_signal_stops_it_at_once(front):
    with process(SLOW, "--front", front, "--drain-timeout", "60s", code=-signal.SIGTERM) as served:
        session = await served.initialize()
        async with session.open_call("wait", {"seconds": 600}):
            served.signal(signal.SIGTERM)
            await until_draining(served)
            assert served.popen.poll() is None
            served.signal(signal.SIGTERM)
            assert await trio.to_thread.run_sync(served.wait, 10) == -signal.SIGTERM


async def test_sessions_in_redis_outlive_it(front, tmp_path):
    redis = RedisServer(program("redis-server"), str(tmp_path))
    redis.start()
    try:
        options = ["--front", front, "--store", redis.url(), "--state-keys", "k" * 32]
        with process(SLOW, *options) as served:
            session = await served.initialize()
            gone = await served.initialize()
            await gone.delete()
            served.signal(signal.SIGTERM)
            assert await trio.to_thread.run_sync(served.wait, 20) == 0
        with process(SLOW, *options) as served:
            session.http = gone.http = served
            assert (await session.call("wait", {"seconds": 0})).text == "waited 0"
            assert (await gone.post("ping")).status == 404
    finally:
        redis.kill()


async def test_embedded_it_drains_when_it_is_told_to(front):
    """The same without a signal: `stop` returns, and `serve` returns when all is over."""
    stop = trio.Event()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            start = partial(mcpd.serve, slow_server, port=0, front=front, stop=stop.wait, drain_timeout=20.0)
            url = await nursery.start(start)
            client = Port(int(url.split(":")[2].split("/")[0]))
            session = await client.initialize()
            async with session.get() as get, session.open_call("wait", {"seconds": 2}) as calling:
                stop.set()
                began = trio.current_time()
                assert await get.rest(within=PROMPT) == []
                assert trio.current_time() - began < 1.0
                assert (await calling.rest())[-1]["result"]["content"][0]["text"] == "waited 2"
        assert refuses_connections(url)
