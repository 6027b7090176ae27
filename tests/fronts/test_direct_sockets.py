"""The direct front on real sockets: what only a kernel does."""

import json
import socket
import ssl
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

import mcpd
from mcpd import Context, Server
from mcpd.errors import SettingError
from mcpd.fronts.direct.listener import DirectFront
from mcpd.fronts.direct.transport import LostError, SocketTransport
from tests.fronts.client import Client, Response, call, request

PEM = Path(__file__).with_name("localhost.pem")
"""A certificate for localhost, signed by itself, with its key."""
FRONTS = ["direct", "hypercorn"]
WITHIN = 20.0
"""Seconds, of the wall, after which something hangs."""


class Tools:
    """A server that says what becomes of its calls."""

    def __init__(self) -> None:
        self.server = Server("sockets", version="1")
        self.began = trio.Event()
        self.cancelled = trio.Event()
        self.server.tool(self.echo)
        self.server.tool(self.hang)
        self.server.tool(self.flood)

    async def echo(self, text: str) -> str:
        return text

    async def hang(self) -> str:
        self.began.set()
        try:
            await trio.sleep(WITHIN)
        except trio.Cancelled:
            self.cancelled.set()
            raise
        return "never"

    async def flood(self, ctx: Context) -> str:
        self.began.set()
        try:
            for step in range(1000):
                await ctx.progress(step, message="x" * 100_000)
        except trio.Cancelled:
            self.cancelled.set()
            raise
        return "done"


class Served:
    """A served server, and how to stop it."""

    def __init__(self, url: str, nursery: trio.Nursery, stop: trio.Event, done: trio.Event) -> None:
        self.url = url
        self.nursery = nursery
        self.stop = stop
        self.done = done
        self._streams: list[trio.SocketStream] = []

    async def connect(self) -> trio.SocketStream:
        """A connection, closed at the end at the latest."""
        host, _, port = self.url.split("/")[2].rpartition(":")
        self._streams.append(await trio.open_tcp_stream(host, int(port)))
        return self._streams[-1]

    def close(self) -> None:
        for stream in self._streams:
            stream.socket.close()


@asynccontextmanager
async def served(tools: Tools, **options) -> AsyncGenerator[Served]:
    with trio.fail_after(WITHIN):
        async with trio.open_nursery() as nursery:
            stop, done = trio.Event(), trio.Event()

            async def run(*, task_status: trio.TaskStatus[str]) -> None:
                await mcpd.serve(
                    tools.server, stop=stop.wait, task_status=task_status, **({"port": 0, "front": "direct"} | options)
                )
                done.set()

            server = Served(await nursery.start(run), nursery, stop, done)
            try:
                yield server
            finally:
                nursery.cancel_scope.cancel()
                server.close()


async def response(stream: trio.abc.Stream) -> Response:
    """The next response on a connection where no other is awaited."""
    return await Client(stream).response()


def reset(stream: trio.SocketStream) -> None:
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


# ----- The client's end


@pytest.mark.parametrize("how", ["FIN", "RST", "FIN behind a request", "RST behind a request"])
async def test_notices_the_clients_end_at_once(how):
    tools = Tools()
    async with served(tools) as server:
        stream = await server.connect()
        await stream.send_all(call("hang"))
        await tools.began.wait()
        if "behind" in how:
            await stream.send_all(call("echo", {"text": "later"}))
        if how.startswith("FIN"):
            await stream.aclose()
        else:
            reset(stream)
        with trio.fail_after(1.0):
            await tools.cancelled.wait()


async def test_notices_a_half_closed_client():
    tools = Tools()
    async with served(tools) as server:
        stream = await server.connect()
        await stream.send_all(call("hang"))
        await tools.began.wait()
        await stream.send_eof()
        with trio.fail_after(1.0):
            await tools.cancelled.wait()


async def test_keeps_nothing_of_connections_that_have_ended():
    tools = Tools()
    async with served(tools) as server:

        async def one(how: int) -> None:
            stream = await server.connect()
            await stream.send_all(call("echo", {"text": "hello"})[: -how or None])
            if how == 0:
                assert (await response(stream))[0] == 200
            if how == 1:
                reset(stream)
            await stream.aclose()

        await one(0)
        await trio.sleep(0.1)
        before = descriptors()
        for _ in range(20):
            async with trio.open_nursery() as nursery:
                for how in range(3):
                    nursery.start_soon(one, how)
        while descriptors() > before:  # noqa: ASYNC110 - the kernel tells of no event
            await trio.sleep(0.01)


async def test_cuts_off_who_does_not_read():
    tools = Tools()
    async with served(tools, write_timeout=0.5, max_buffer=200_000) as server:
        stream = await server.connect()
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await stream.send_all(call("flood", token=1))
        await tools.cancelled.wait()
        # The connection is reset, so that the kernel does not keep what nobody reads.
        with pytest.raises(trio.BrokenResourceError):
            while await stream.receive_some(65536):
                pass


async def in_vain(transport: SocketTransport, times: int = 1) -> None:
    """Have it look for bytes that do not come, so that it waits without a look the next time."""
    for _ in range(times):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.receive)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("looks", [True, False], ids=["looks", "waits"])
async def test_a_closed_connection_is_not_waited_for(*, looks: bool):
    # Trio takes -1 for a descriptor like any other: the first to wait would stay for ever, and the second be refused.
    for _ in range(2):
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            transport = SocketTransport(ours)
            if not looks:
                await in_vain(transport)
            await transport.abort()
            with trio.fail_after(WITHIN), pytest.raises(LostError):
                await transport.receive()


@pytest.mark.parametrize("looks", [True, False], ids=["looks", "waits"])
async def test_receiving_what_is_there_is_a_checkpoint_and_loses_nothing(*, looks: bool):
    ours, theirs = socket.socketpair()
    with ours, theirs, trio.fail_after(WITHIN):
        ours.setblocking(False)
        transport = SocketTransport(ours)
        if not looks:
            await in_vain(transport, times=4)
        theirs.send(b"first")
        with trio.CancelScope() as scope:
            scope.cancel()
            await transport.receive()
        assert scope.cancelled_caught
        with trio.testing.assert_checkpoints():
            assert await transport.receive() == b"first"


async def test_a_connection_closed_while_it_waits_is_lost():
    ours, theirs = socket.socketpair()
    with theirs, trio.fail_after(WITHIN):
        ours.setblocking(False)
        transport = SocketTransport(ours)

        async def receive() -> None:
            with pytest.raises(LostError):
                await transport.receive()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            await transport.close()


async def test_a_connection_closed_before_it_looks_is_lost(monkeypatch: pytest.MonkeyPatch):
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    transport = SocketTransport(ours)
    number = ours.fileno()
    others: list[socket.socket] = [theirs]

    async def others_run() -> None:
        await transport.close()
        others.extend(socket.socketpair())  # which of them takes the number must not matter

    monkeypatch.setattr(trio.lowlevel, "checkpoint", others_run)
    try:
        with trio.fail_after(WITHIN), pytest.raises(LostError):
            await transport.receive()
        assert number in {other.fileno() for other in others}
    finally:
        for other in others:
            other.close()


async def test_looks_less_often_the_more_often_that_was_in_vain(monkeypatch: pytest.MonkeyPatch):
    looks = 0
    checkpoint = trio.lowlevel.checkpoint

    async def look() -> None:
        nonlocal looks
        looks += 1
        await checkpoint()

    monkeypatch.setattr(trio.lowlevel, "checkpoint", look)
    ours, theirs = socket.socketpair()
    with ours, theirs, trio.fail_after(WITHIN):
        ours.setblocking(False)
        transport = SocketTransport(ours)
        counts: list[int] = []
        for _ in range(30):
            await in_vain(transport)
            counts.append(looks)
        assert [counts.index(number) for number in (1, 2, 3, 4)] == [0, 2, 6, 14]
        # Then a busy client is looked for each time.
        before = looks
        for number in range(20):
            theirs.send(b"%d" % number)
            assert await transport.receive() == b"%d" % number
        assert looks - before == 20
        # And one that pauses once is looked for again soon.
        before = looks
        await in_vain(transport, times=3)
        assert looks - before == 2


async def test_a_large_answer_is_sent_whole():
    tools = Tools()
    async with served(tools) as server:
        stream = await server.connect()
        text = "x" * 3_000_000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, call("echo", {"text": text}))
            status, _, body = await response(stream)
        assert status == 200
        assert json.loads(body)["result"]["content"][0]["text"] == text


async def test_a_client_that_sends_too_much_can_read_why():
    tools = Tools()
    async with served(tools, max_body=1000) as server:
        stream = await server.connect()
        await stream.send_all(request("POST", "/mcp", "Content-Type: application/json", "Content-Length: 3000000"))
        for _ in range(30):
            await stream.send_all(b"x" * 100_000)
        status, headers, _ = await response(stream)
        assert (status, headers["connection"]) == (413, "close")
        assert await stream.receive_some(1) == b""


# ----- Limits


async def test_has_room_for_so_many_connections():
    tools = Tools()
    async with served(tools, max_connections=3) as server:
        streams = [await server.connect() for _ in range(3)]
        for stream in streams:
            await stream.send_all(call("echo", {"text": "hello"}))
            assert (await response(stream))[0] == 200
        further = await server.connect()
        status, headers, body = await response(further)
        assert (status, headers["retry-after"], headers["connection"]) == (503, "5", "close")
        assert json.loads(body)["id"] is None
        # There is room again as soon as one has gone.
        await streams[0].aclose()
        await trio.sleep(0.05)
        again = await server.connect()
        await again.send_all(call("echo", {"text": "hello"}))
        assert (await response(again))[0] == 200


async def test_goes_on_accepting_when_it_was_out_of_descriptors(monkeypatch, caplog):
    tools = Tools()
    fails = 3
    accept = socket.socket.accept

    def failing(self):
        nonlocal fails
        if fails:
            fails -= 1
            raise OSError(24, "Too many open files")
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", failing)
    async with served(tools) as server:
        stream = await server.connect()
        await stream.send_all(call("echo", {"text": "hello"}))
        assert (await response(stream))[0] == 200
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "Connections cannot be accepted: [Errno 24] Too many open files"
    ]


# ----- The server's end


async def test_drains():
    tools = Tools()
    async with served(tools, drain_timeout=0.3) as server:
        idle, busy, streaming = [await server.connect() for _ in range(3)]
        await idle.send_all(call("echo", {"text": "hello"}))
        assert (await response(idle))[0] == 200
        await busy.send_all(call("hang"))
        await tools.began.wait()
        server.stop.set()
        assert await idle.receive_some(1) == b""
        # After its time the call is answered: with an error, and the end of the connection.
        status, headers, body = await response(busy)
        assert (status, headers["connection"]) == (200, "close")
        assert json.loads(body)["error"]["message"] == "The server is shutting down"
        await server.done.wait()
        with pytest.raises(OSError, match="all attempts to connect"):
            await server.connect()
        await streaming.aclose()


async def test_what_is_half_sent_or_kept_alive_does_not_hold_up_a_drain():
    tools = Tools()
    async with served(tools, drain_timeout=60, header_timeout=60, body_timeout=60) as server:
        half_a_head, half_a_body, streaming = [await server.connect() for _ in range(3)]
        await half_a_head.send_all(call("echo")[:20])
        await half_a_body.send_all(call("echo")[:-1])
        await streaming.send_all(call("flood", token=1))
        await tools.began.wait()
        server.stop.set()
        # A stream that began before the drain has not said that its connection ends, but it does.
        while await streaming.receive_some(100_000):
            pass
        assert b"408" in await half_a_head.receive_some(1000)
        await half_a_body.aclose()
        await server.done.wait()


async def test_what_does_not_end_is_cut_off():
    class Stuck:
        settings = mcpd.Settings()

        async def __call__(self, exchange: object) -> None:
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        stop = trio.Event()
        with socket.create_server(("127.0.0.1", 0)) as listener, trio.fail_after(WITHIN):
            address = listener.getsockname()
            serve = DirectFront(Stuck()).serve
            await nursery.start(partial(serve, listener, stop=stop.wait, grace=0.1))
            async with await trio.open_tcp_stream(*address) as stream:
                await stream.send_all(call("echo"))
                stop.set()
                with suppress(trio.BrokenResourceError):
                    assert await stream.receive_some(1) == b""


async def test_cancelled_it_closes_everything():
    tools = Tools()
    async with served(tools) as server:
        streams = [await server.connect() for _ in range(3)]
        await streams[0].send_all(call("hang"))
        await streams[1].send_all(call("echo")[:-1])
        await tools.began.wait()
        before = descriptors()
        server.nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await tools.cancelled.wait()
            for stream in streams:
                with pytest.raises(trio.BrokenResourceError):
                    await stream.receive_some(1)
        # The three connections and the listener, at least.
        assert descriptors() <= before - 4


# ----- TLS and Unix sockets


@pytest.mark.parametrize("front", FRONTS)
async def test_serves_tls(front):
    tools = Tools()
    context = ssl.create_default_context(cafile=str(PEM))
    async with served(tools, front=front, tls_certfile=str(PEM)) as server:
        assert server.url.startswith("https://127.0.0.1:")
        stream = trio.SSLStream(await server.connect(), context, server_hostname="localhost", https_compatible=True)
        for _ in range(2):
            await stream.send_all(call("echo", {"text": "x" * 100_000}))
            status, _, body = await response(stream)
            assert status == 200
            assert json.loads(body)["result"]["content"][0]["text"] == "x" * 100_000
        await stream.send_all(call("hang"))
        await tools.began.wait()
        await stream.aclose()
        with trio.fail_after(1.0):
            await tools.cancelled.wait()


async def test_says_goodbye_in_tls():
    tools = Tools()
    context = ssl.create_default_context(cafile=str(PEM))
    async with served(tools, tls_certfile=str(PEM)) as server:
        # With close_notify required, an end without it would be an error.
        stream = trio.SSLStream(await server.connect(), context, server_hostname="localhost")
        await stream.send_all(request("GET", "/health", "Connection: close"))
        assert (await response(stream))[0] == 200
        assert await stream.receive_some(1) == b""


async def test_who_does_not_speak_tls_does_not_disturb():
    tools = Tools()
    context = ssl.create_default_context(cafile=str(PEM))
    async with served(tools, tls_certfile=str(PEM), header_timeout=0.2) as server:
        plain, silent = await server.connect(), await server.connect()
        await plain.send_all(call("echo", {"text": "hello"}))
        for stream in plain, silent:
            # Whatever it says, it does not let it hang.
            try:
                while await stream.receive_some(1000):
                    pass
            except trio.BrokenResourceError:
                pass
        stream = trio.SSLStream(await server.connect(), context, server_hostname="localhost", https_compatible=True)
        await stream.send_all(call("echo", {"text": "hello"}))
        assert (await response(stream))[0] == 200


@pytest.mark.parametrize("front", FRONTS)
async def test_serves_a_unix_socket(front, tmp_path):
    tools = Tools()
    path = tmp_path / "mcpd.sock"
    async with served(tools, front=front, host=f"unix:{path}") as server:
        assert server.url == f"http://unix:{path}:/mcp"
        stream = await trio.open_unix_socket(path)
        await stream.send_all(call("echo", {"text": "hello"}))
        assert (await response(stream))[0] == 200
        await stream.send_all(call("hang"))
        await tools.began.wait()
        await stream.aclose()
        with trio.fail_after(1.0):
            await tools.cancelled.wait()
        server.stop.set()
        await server.done.wait()
    assert not path.exists()


async def test_takes_over_a_unix_socket_that_nobody_listens_on(tmp_path):
    path = tmp_path / "mcpd.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    async with served(Tools(), host=f"unix:{path}"):
        await (await trio.open_unix_socket(path)).aclose()
        with pytest.raises(SettingError, match="Address already in use"):
            await mcpd.serve(Tools().server, host=f"unix:{path}", front="direct")


async def test_leaves_a_file_that_is_no_socket_alone(tmp_path):
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(SettingError, match="Cannot listen on unix:"):
        await mcpd.serve(Tools().server, host=f"unix:{path}", front="direct")
    assert path.read_text() == "data"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tls_certfile": "/no/such/file"}, "Cannot use /no/such/file for TLS: No such file or directory"),
        ({"tls_certfile": __file__}, "Cannot use .* for TLS"),
        ({"tls_keyfile": str(PEM)}, "tls_keyfile needs tls_certfile"),
        ({"front": "other"}, "front is 'direct' or 'hypercorn', not 'other'"),
        ({"max_connections": 0}, "max_connections must be at least 1"),
        ({"header_timeout": 0}, "header_timeout must be more than 0"),
    ],
)
async def test_refuses_settings_that_cannot_work(options, message):
    with pytest.raises(SettingError, match=message):
        await mcpd.serve(Tools().server, **({"port": 0, "front": "direct"} | options))
