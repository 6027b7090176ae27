"""Reports that need a kernel: signals, resets, buffers that fill up, sockets left in CLOSE_WAIT. All in real time."""

import contextlib
import signal
import time

import pytest
import trio

from tests.harness import Process, Session, encode_request, modern_request, process, rpc
from tests.reports.storage import Storage

APP = "tests.reports.app:server"


def served(front: str, *options: str, **kwargs):
    return process(APP, "--front", front, *options, **kwargs)


async def until(condition, *, within: float = 10.0) -> float:
    """Wait until *condition*, which may be async, holds; the seconds that took."""
    began = trio.current_time()
    with trio.fail_after(within):
        while True:
            holds = condition()
            if hasattr(holds, "__await__"):
                holds = await holds
            if holds:
                return trio.current_time() - began
            await trio.sleep(0.01)


async def under_way(http: Process) -> int:
    result = (await http.call("outcomes")).result["structuredContent"]
    return result["under_way"]


async def ready(http: Process) -> int:
    return (await http.request("GET", "/ready")).status


# ----- R47


async def test_r47_the_signal_to_stop_ends_streams_and_lets_calls_finish(storage: Storage, front: str):
    """Servers waited for streams that never end, and then cut them in the middle of a chunk."""
    with served(front, *storage.options) as http:
        session = await http.initialize()
        others = [await http.initialize() for _ in range(2)]
        probe = http.connect()
        assert (await probe.request("GET", "/ready")).status == 200
        ended: list[float] = []

        async def listen(own: Session, *, task_status=trio.TASK_STATUS_IGNORED) -> None:
            async with own.get() as stream:
                assert stream.status == 200
                await stream.event()
                task_status.started()
                assert await stream.rest() == []
                assert stream.ended, "it ends with the last chunk"
                ended.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            for own in (session, *others):
                await nursery.start(listen, own)
            async with session.open_call("wait", {"seconds": 2}) as stream:
                stopped = trio.current_time()
                http.signal(signal.SIGTERM)
                with contextlib.suppress(Exception):
                    # An open connection still gets an answer, and that is "not ready"; or it is closed, being idle.
                    assert (await probe.request("GET", "/ready")).status == 503
                assert trio.current_time() - stopped < 1.0
                answer = (await stream.rest())[-1]
                assert answer["result"]["content"][0]["text"] == "waited 2"
        assert len(ended) == 3
        assert max(ended) - stopped < 1.0
        assert http.wait() == 0
        assert trio.current_time() - stopped < 4.0
    if storage.options:
        with served(front, *storage.options) as http:
            assert (await http.request("POST", headers=session.headers(), json=rpc("ping", id=1))).status == 200


async def test_r47_a_call_that_takes_too_long_is_ended_with_an_answer(front: str):
    """The other half: the drain has a limit, and who is cut off is told."""
    with served(front, "--drain-timeout", "1s") as http:
        session = await http.initialize()
        async with session.open_call("wait", {"seconds": 60}) as stream:
            stopped = trio.current_time()
            http.signal(signal.SIGTERM)
            (answer,) = await stream.rest()
            assert answer["error"]["message"] == "The server is shutting down"
            assert stream.ended
        assert http.wait() == 0
        assert 0.9 < trio.current_time() - stopped < 4.0


async def test_r47_a_second_signal_stops_at_once(front: str):
    """Whoever presses Ctrl-C twice does not want to wait."""
    with served(front, code=-signal.SIGINT) as http:
        session = await http.initialize()
        async with session.open_call("wait", {"seconds": 60}):
            http.signal(signal.SIGINT)
            await until(lambda: "draining" in http.stderr)
            stopped = time.monotonic()
            http.signal(signal.SIGINT)
            assert http.wait() == -signal.SIGINT
            assert time.monotonic() - stopped < 1.0


# ----- R44, R30


async def test_r44_a_reset_cancels_a_modern_call(front: str):
    """A client that aborts is seen at once, whatever it does to its socket."""
    request = modern_request("tools/call", {"name": "wait", "arguments": {"seconds": 30}})
    with served(front, "--stream-after", "100ms") as http:
        for after in (0.02, 0.3):  # while the response is silent, and when it is a stream
            for leave in ("cut", "aclose", "half_close"):
                connection = http.connect()
                await connection.send("POST", **request)
                await until(lambda: _is(under_way(http), 1))
                await trio.sleep(after)
                left = getattr(connection, leave)()
                if left is not None:
                    await left
                assert await until(lambda: _is(under_way(http), 0)) < 1.0
                await connection.aclose()
        assert (await http.call("outcomes")).result["structuredContent"]["cancelled"] == 6


async def _is(value, expected) -> bool:
    return await value == expected


async def test_r44_no_socket_is_left_behind(front: str):
    """Sockets whose clients were gone piled up in CLOSE_WAIT."""
    with served(front, "--keep-alive", "60s") as http:
        session = await http.initialize()
        assert await until(lambda: http.connections("CLOSE_WAIT") == 0) < 2.0
        idle = [http.connect() for _ in range(20)]
        for connection in idle:
            assert (await connection.request("GET", "/health")).status == 200
        for _ in range(10):
            async with session.get() as stream:
                await stream.event()
                stream.cut()
            async with session.get() as stream:
                await stream.event()
            connection = http.connect()
            await connection.send_bytes(encode_request("POST", json=rpc("ping", id=1))[:50])
            await connection.aclose()
        await trio.sleep(0.3)  # idle for a moment, as connections are when their clients leave
        for connection in idle:
            await connection.aclose()
        await until(lambda: http.connections("CLOSE_WAIT") == 0, within=5.0)
        await until(lambda: http.connections("ESTABLISHED") == 0, within=5.0)


async def test_r44_no_pipelined_request_holds_a_socket(front: str):
    """With one more request behind the first, the end was only seen by the next write, which never came."""
    with served(front, "--heartbeat", "1s") as http:
        connection = http.connect()
        await connection.send("POST", **modern_request("tools/call", {"name": "wait", "arguments": {"seconds": 60}}))
        await until(lambda: _is(under_way(http), 1))
        await connection.send("POST", **modern_request("tools/list"))
        await trio.sleep(0.2)
        connection.cut()
        assert await until(lambda: _is(under_way(http), 0)) < 3.5
        await until(lambda: http.connections("CLOSE_WAIT") == 0, within=3.0)


async def test_r30_a_stream_that_was_reset_can_be_opened_again(front: str):
    """The same with a real reset: 50 times in a row, without a pause."""
    with served(front) as http:
        session = await http.initialize()
        for _ in range(50):
            async with session.get() as stream:
                assert stream.status == 200
                await stream.event()
                stream.cut()
        async with session.get() as old:
            await old.event()
            async with session.get() as new:
                assert new.status == 200
                assert await old.rest() == []
                assert old.ended
                assert not new.ended


# ----- R38


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_r38_a_client_that_does_not_read(storage: Storage, front: str, era: str):
    """A client that reads nothing costs the server its buffer, and in the end not even that."""
    options = ("--write-timeout", "2s", "--max-buffer", "512KiB", "--heartbeat", "1s")
    with served(front, *options, *storage.options) as http:
        session = await http.initialize()
        await session.call("flood", {"count": 10})
        before = http.rss()
        slow = []
        for _ in range(10):
            connection = http.connect(window=4_096)
            if era == "legacy":
                message = rpc("tools/call", {"name": "flood", "arguments": {"count": 10_000}}, id=1)
                await connection.send("POST", headers=session.headers(), json=message)
            else:
                meta = {"io.modelcontextprotocol/logLevel": "info"}
                params = {"name": "flood", "arguments": {"count": 10_000}}
                await connection.send("POST", **modern_request("tools/call", params, meta=meta))
            slow.append(connection)
        slowest = 0.0
        for _ in range(20):
            began = trio.current_time()
            assert (await session.call("echo", {"text": "x"})).text == "x"
            slowest = max(slowest, trio.current_time() - began)
            await trio.sleep(0.05)
        assert slowest < 1.0
        # 10 x 10 MB were to be sent. Each stream may hold its buffer, and the log of all of them 64 MiB.
        assert http.rss() - before < (20 if era == "modern" else 120) * 1024 * 1024
        others = 3 if storage.options else 1  # the session's, and those to Redis
        await until(lambda: http.connections("ESTABLISHED") <= others, within=60.0)
        assert (await session.call("echo", {"text": "x"})).text == "x"
        for connection in slow:
            await connection.aclose()


# ----- R74


async def test_r74_a_connection_is_not_closed_under_a_request(front: str):
    """Proxies re-use connections; one that the server had just closed was a 502 for somebody."""
    keep_alive = 0.5
    with served(front, "--keep-alive", f"{keep_alive}s", "--stream-after", "60s") as http:
        async with http.connect() as connection:
            for _ in range(3):
                assert (await connection.request("POST", **modern_request("tools/list"))).status == 200
                await trio.sleep(keep_alive * 0.8)
            # Time in a request is not idle time, even if nothing is sent.
            response = await connection.request(
                "POST", **modern_request("tools/call", {"name": "wait", "arguments": {"seconds": 2.5 * keep_alive}})
            )
            assert response.text == f"waited {2.5 * keep_alive:g}"
            assert (await connection.request("POST", **modern_request("tools/list"))).status == 200
            began = trio.current_time()
            assert keep_alive * 0.8 < await connection.wait_closed() - began < keep_alive * 2 + 1
