"""The end of a server: no longer ready at once, streams end, calls may finish, and nothing outlasts the drain.

Real processes, signals and sockets; and the same embedded, where an async function takes the signal's place.
"""

import signal
import socket
import ssl
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any

import hypercorn.config
import hypercorn.trio
import pytest
import trio

import mcpd
from tests.harness import rpc
from tests.harness.client import Client
from tests.harness.connection import Connection
from tests.harness.ends import WINDOW, SocketEnd
from tests.harness.process import Process, process
from tests.operations.slow_app import server as slow_server
from tests.processes import free_port
from tests.stores.redis_server import RedisServer, program

SLOW = "tests.operations.slow_app:server"
PEM = Path(__file__).parents[1] / "fronts" / "localhost.pem"
LISTEN = {"notifications": {"toolsListChanged": True}}
PROMPT = 5.0
"""Seconds for what is to be at once, on a slow machine under load."""


async def until_draining(served: Process) -> None:
    with trio.fail_after(PROMPT):
        while "draining" not in served.stderr:  # noqa: ASYNC110 - it is another process
            await trio.sleep(0.01)


class TlsEnd(SocketEnd):
    """The client's end of a connection in TLS."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        context = ssl.create_default_context(cafile=str(PEM))
        self._tls = trio.SSLStream(self._stream, context, server_hostname="localhost", https_compatible=True)

    async def send_all(self, data: bytes) -> None:
        await self._tls.send_all(data)

    async def receive_some(self, max_bytes: int) -> bytes | bytearray:
        return await self._tls.receive_some(max_bytes)


class Port(Client):
    """Another port of this machine."""

    def __init__(self, port: int, *, end: type[SocketEnd] = SocketEnd) -> None:
        super().__init__()
        self.port = port
        self._end = end

    def connect(self, *, window: int = WINDOW) -> Connection:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=PROMPT)
        return Connection(self._end(sock))


@pytest.fixture
def redis(tmp_path: Path) -> Generator[RedisServer]:
    server = RedisServer(program("redis-server"), str(tmp_path))
    server.start()
    yield server
    server.kill()


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
            with trio.fail_after(PROMPT):
                while not refuses_connections(served.url):  # noqa: ASYNC110 - it is another process
                    await trio.sleep(0.01)
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


async def test_sessions_in_redis_outlive_it(front, redis):
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


async def test_workers_do_the_same(front, redis):
    port = free_port()
    options = ["--front", front, "--workers", "2", "--store", redis.url(), "--metrics-port", str(port)]
    with process(SLOW, *options, "--drain-timeout", "2s") as served:
        session = await served.initialize()
        async with (
            session.get() as get,
            served.open_modern("subscriptions/listen", LISTEN) as listen,
            session.open_call("wait", {"seconds": 600}) as calling,
        ):
            assert "acknowledged" in (await listen.message())["method"]
            served.signal(signal.SIGTERM)
            await until_draining(served)
            began = trio.current_time()
            assert await get.rest(within=PROMPT) == []
            assert [message["id"] for message in await listen.rest(within=PROMPT)] == [1]
            assert trio.current_time() - began < 1.0
            with trio.fail_after(PROMPT):
                while not refuses_connections(served.url):  # noqa: ASYNC110 - the other worker is another process
                    await trio.sleep(0.01)
            # The worker that has the call is there, and not ready.
            assert (await Port(port).request("GET", "/ready")).json == {"status": "draining"}
            (answer,) = [message for message in await calling.rest(within=20) if "error" in message]
            assert answer["error"]["message"] == "The server is shutting down"
        assert await trio.to_thread.run_sync(served.wait, 10) == 0


async def test_calls_over_http_sse_are_answered_before_their_stream_ends(front):
    async def open_stream(stream: Any) -> str:
        address = "/" + (await stream.event()).data
        hello = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        await served.request("POST", address, json=rpc("initialize", hello, id=0))
        await stream.message()
        return address

    with process(SLOW, "--front", front, "--legacy-sse", "--drain-timeout", "3s") as served:
        accept = {"Accept": "text/event-stream"}
        async with (
            served.open("GET", "/sse", headers=accept) as idle,
            served.open("GET", "/sse", headers=accept) as busy,
        ):
            await open_stream(idle)
            address = await open_stream(busy)
            for seconds in (1, 600):
                params = {"name": "wait", "arguments": {"seconds": seconds}}
                await served.request("POST", address, json=rpc("tools/call", params, id=seconds))
            served.signal(signal.SIGTERM)
            await until_draining(served)
            began = trio.current_time()
            assert await idle.rest(within=PROMPT) == []
            assert trio.current_time() - began < 1.0
            finished, cancelled = await busy.rest(within=20)
            assert (finished["id"], finished["result"]["content"][0]["text"]) == (1, "waited 1")
            assert (cancelled["id"], cancelled["error"]["message"]) == (600, "The server is shutting down")
        assert await trio.to_thread.run_sync(served.wait, 10) == 0


async def test_under_another_server_it_drains_before_that_one_stops():
    """As an application: Hypercorn has the signal, and waits with stopping until `drain` returns."""
    app = mcpd.asgi_app(slow_server, drain_timeout=20.0)
    config = hypercorn.config.Config()
    config.bind = ["127.0.0.1:0"]
    config.accesslog = config.errorlog = None
    stop = trio.Event()

    async def stopped() -> None:
        await stop.wait()
        await app.drain()

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            run: Any = partial(hypercorn.trio.serve, app, config, shutdown_trigger=stopped)  # type: ignore[arg-type]
            [url] = await nursery.start(run)
            client = Port(int(url.rpartition(":")[2]))
            session = await client.initialize()
            async with session.get() as get, session.open_call("wait", {"seconds": 2}) as calling:
                stop.set()
                began = trio.current_time()
                assert await get.rest(within=PROMPT) == []
                assert trio.current_time() - began < 1.0
                ready = await client.request("GET", "/ready")
                assert (ready.status, ready.json) == (503, {"status": "draining"})
                assert (await calling.rest())[-1]["result"]["content"][0]["text"] == "waited 2"
        assert refuses_connections(f"{url}/")


@pytest.mark.parametrize("tls", [False, True])
async def test_embedded_it_drains_when_it_is_told_to(front, tls):
    """The same without a signal: `stop` returns, and `serve` returns when all is over."""
    stop = trio.Event()
    certificate = str(PEM) if tls else ""
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            start = partial(
                mcpd.serve,
                slow_server,
                port=0,
                front=front,
                stop=stop.wait,
                drain_timeout=20.0,
                tls_certfile=certificate,
            )
            url = await nursery.start(start)
            client = Port(int(url.split(":")[2].split("/")[0]), end=TlsEnd if tls else SocketEnd)
            session = await client.initialize()
            async with session.get() as get, session.open_call("wait", {"seconds": 2}) as calling:
                stop.set()
                began = trio.current_time()
                assert await get.rest(within=PROMPT) == []
                assert trio.current_time() - began < 1.0
                assert (await calling.rest())[-1]["result"]["content"][0]["text"] == "waited 2"
        assert refuses_connections(url)
