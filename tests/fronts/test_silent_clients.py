"""Clients that fall silent without a FIN: what cannot be written to them ends their streams, which frees sessions."""

import logging
import socket

import pytest
import trio

from mcpd import Context, Server
from mcpd.fronts.sockets import give_up_after
from tests.harness import Connection, Http, process, rpc, serving
from tests.harness.ends import SocketEnd
from tests.stores.redis_server import until

INITIALIZE = rpc(
    "initialize",
    {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}},
    id=1,
)
SMALL = 4_096
"""Bytes of the kernel's buffers, which round them up."""
URI = f"big://{'x' * 7_000}"


class Talkative:
    """A server that has, once it is told to go on, more to say than the buffers hold, and then only heartbeats."""

    def __init__(self) -> None:
        self.server = server = Server("talkative")
        self._go = trio.Event()

        @server.resource("big://{name}")
        async def big(name: str) -> str:
            return name

        @server.tool
        async def wait(ctx: Context) -> None:
            await self._go.wait()
            await ctx.info(URI)
            await trio.sleep_forever()

    def go_on(self) -> None:
        self.server.notify_resource_updated(URI)
        self._go.set()


async def over_tcp(http: Http, nursery: trio.Nursery) -> Connection:
    """A connection through the kernel, with as little room on both sides as it allows."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.socket()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        ours.connect(listener.getsockname())
        theirs, _ = listener.accept()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
    nursery.start_soon(http.front.handle, trio.SocketStream(trio.socket.from_stdlib_socket(theirs)))
    return Connection(SocketEnd(ours))


@pytest.mark.parametrize("then", ["evicted", "expired"])
@pytest.mark.parametrize("what", ["a stream", "a call"])
async def test_who_reads_nothing_is_cut_off_and_holds_no_session(
    front: str, what: str, then: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING, "mcpd")
    idle = 0.5 if then == "expired" else 600.0
    settings = {"heartbeat": 0.002, "stream_after": 0.01, "write_timeout": 0.2, "max_sessions": 1, "session_idle": idle}
    talkative = Talkative()
    async with serving(talkative.server, front=front, **settings) as http, trio.open_nursery() as nursery:
        session = await http.initialize()
        assert (await session.post("resources/subscribe", {"uri": URI})).status == 200
        connection = await over_tcp(http, nursery)
        if what == "a stream":
            await connection.send("GET", headers=session.headers({"Accept": "text/event-stream"}))
        else:
            message = rpc("tools/call", {"name": "wait", "arguments": {}}, id=5)
            await connection.send("POST", headers=session.headers(), json=message)
        stream = await connection.stream()
        await stream.heartbeat()
        assert http.endpoint.sessions.busy() == 1
        full = await http.request("POST", json=INITIALIZE)
        assert full.status == 503, "the session is in use"
        # From here on it reads nothing, and closes nothing.
        talkative.go_on()
        await until(lambda: "has read nothing for 0.2 s" in caplog.text, within=60.0)
        await until(lambda: not any(http.endpoint.core.meter.streams.values()))
        if what == "a call":
            # A lost stream is no cancellation; the session is in use until the call ends.
            assert (await session.notify("notifications/cancelled", {"requestId": 5})).status == 202
        await until(lambda: http.endpoint.sessions.busy() == 0)
        if then == "expired":
            with trio.fail_after(30):
                while await http.count():  # noqa: ASYNC110 - nobody tells
                    await trio.sleep(0.05)
        else:
            assert (await http.request("POST", json=INITIALIZE)).status == 200
            assert await http.count() == 1
        assert (await session.post("ping")).status == 404
        connection.cut()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("what", ["heartbeats", "a call"])
async def test_a_served_process_lets_go_of_a_client_that_reads_nothing(front: str, what: str):
    options = ("--heartbeat", "2ms", "--write-timeout", "500ms", "--max-sessions", "1", "--stream-after", "10ms")
    with process("tests.reports.app:server", "--front", front, *options) as served:
        session = await served.initialize()
        connection = served.connect(window=SMALL)
        if what == "heartbeats":
            await connection.send("GET", headers=session.headers({"Accept": "text/event-stream"}))
        else:
            # In this revision a call goes on without its stream, and ends.
            message = rpc("tools/call", {"name": "flood", "arguments": {"count": 10_000}}, id=5)
            await connection.send("POST", headers=session.headers(), json=message)
        stream = await connection.stream()
        await stream.event()

        async def status() -> int:
            return (await served.request("POST", json=INITIALIZE)).status

        assert await status() == 503
        with trio.fail_after(60):
            while await status() != 200:  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.1)
        if what == "heartbeats":
            # There was room for many more of them here: the kernel has found that none arrives.
            assert "has read nothing" not in served.stderr
        assert (await session.post("ping")).status == 404
        connection.cut()


@pytest.mark.parametrize("seconds", [1e-9, 1e9, float("inf")])
def test_any_time_will_do(seconds: float) -> None:
    # The kernel counts milliseconds, in 31 bits.
    with socket.socket() as sock:
        give_up_after(sock, seconds)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) > 0
