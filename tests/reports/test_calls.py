"""Calls in the field: many at once, cancelled, abandoned, failing, and blocking."""

import asyncio
import gc
import logging
import random
import sys
import threading
import time
from contextlib import suppress
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpd import Context, Server
from mcpd.endpoint.stream import EventStream
from tests.harness import Connection, ConnectionLost, encode_request, modern_request, rpc, serving
from tests.reports.rig import Rig
from tests.reports.storage import Storage, in_memory


@pytest.mark.parametrize("era", ["legacy", "modern", "sessions"])
async def test_r41_one_id_for_all_calls(clock, rig: Rig, front: str, era: str):
    """A hosted client numbers every request 1, also in parallel: one got another's answer, the other none."""
    async with rig.serving(front=front) as http:
        session = await http.initialize()
        got = {}

        async def call(number: int) -> None:
            arguments = {"text": str(number)}
            if era == "modern":
                response = await http.call("hold", arguments, id=1)
            else:
                own = session if era == "legacy" else await http.initialize()
                response = await own.call("hold", arguments, id=1)
            assert response.answer["id"] == 1
            got[number] = response.text

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(call, number)
            await rig.held(10)
            rig.release.set()
        assert got == {number: str(number) for number in range(10)}


async def test_r42_cancelling_what_is_just_finished(clock, leftovers, rig: Rig, front: str):
    """A cancellation that came with the result met a request already answered, and the session crashed on it."""
    choose = random.Random(42)
    answered, rounds = 0, 1_000 if clock else 100
    async with rig.serving(front=front) as http, http.keep_alive() as client, http.keep_alive() as other:
        session = await http.initialize()

        async def cancel(number: int) -> None:
            await trio.sleep(choose.uniform(0.005, 0.015))
            cancelled = await session.notify("notifications/cancelled", {"requestId": number}, on=other)
            assert cancelled.status == 202
            assert cancelled.body == b""

        for number in range(rounds):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel, number)
                response = await session.call("wait", {"seconds": 0.01}, id=number, on=client)
            if response.body:
                assert response.answer["id"] == number
                assert response.text == "waited 0.01"
                answered += 1
            else:
                assert response.status == 202
        if clock:
            assert 100 < answered < 900, "both sides of the race must be run"
        assert rig.outcomes["done"] + rig.outcomes["cancelled"] == rounds
        for odd in (7, "7", "never", -1, 2**53):
            assert (await session.notify("notifications/cancelled", {"requestId": odd})).status == 202
        assert (await session.notify("notifications/cancelled", {})).status == 202
        assert (await session.call("echo", {"text": "alive"})).text == "alive"
        await rig.storage.until(lambda: leftovers() == {})


@in_memory
async def test_r44_a_modern_client_that_leaves_cancels_its_call(clock, leftovers, rig: Rig, front: str):
    """The client aborted its request and the tool ran on."""
    request = modern_request("tools/call", {"name": "wait", "arguments": {"seconds": 30}})
    async with rig.serving(front=front) as http:
        for number, after in enumerate((0.5, 2.0)):  # while it is silent, and when it has become a stream
            for leave in (Connection.cut, Connection.aclose, Connection.half_close):
                connection = http.connect()
                await connection.send("POST", **request)
                await rig.held()
                await trio.sleep(after)
                began = trio.current_time()
                left = leave(connection)
                if left is not None:
                    await left
                await rig.ended("cancelled", rig.outcomes["cancelled"] + 1)
                assert trio.current_time() - began < 1.0, (number, leave)
                await connection.aclose()
        await wait_all_tasks_blocked()
        assert rig.outcomes == {"cancelled": 6}
        assert leftovers() == {}


async def test_r44_a_legacy_client_that_leaves_frees_its_stream(clock, leftovers, rig: Rig, front: str):
    """In the older revisions losing the connection is no cancellation, but what is written to it must not pile up."""

    @rig.server.tool
    async def talk(ctx: Context) -> str:
        for number in range(10_000):
            await ctx.info("x" * 1_000)
            if number == 0:
                await rig.release.wait()
        return "said"

    async with rig.serving(front=front, resumable=False) as http:
        session = await http.initialize("2025-06-18")
        async with session.open_call("talk") as stream:
            await stream.message()
            stream.cut()
        (open_stream,) = [thing for thing in gc.get_objects() if type(thing) is EventStream]
        await rig.storage.until(partial(getattr, open_stream, "closed"))
        assert len(http.endpoint.calls) == 1
        rig.release.set()
        await rig.storage.until(lambda: http.endpoint.calls == set())
        assert not open_stream._buffer
        del open_stream
        await rig.storage.until(lambda: http.endpoint.sessions.busy() == 0)
        await rig.storage.until(lambda: leftovers() == {})


@in_memory
async def test_r44_a_pipelined_request_hides_nothing_for_long(clock, rig: Rig, front: str):
    """With one more request sent behind the first, the end of the connection is only seen by the next write."""
    request = modern_request("tools/call", {"name": "wait", "arguments": {"seconds": 300}})
    async with rig.serving(front=front, heartbeat=10.0) as http:
        before = trio.lowlevel.current_statistics().tasks_living
        connection = http.connect()
        await connection.send("POST", **request)
        await rig.held()
        await connection.send("POST", **modern_request("tools/list"))
        await trio.sleep(3.0)
        began = trio.current_time()
        connection.cut()
        await rig.ended("cancelled")
        assert trio.current_time() - began <= 10.0 + 1.0
        await wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == before


async def test_r44_pipelined_requests_are_answered_in_order(clock, rig: Rig, front: str):
    """The other side of it: a client that pipelines and stays gets its answers."""
    async with rig.serving(front=front) as http, http.connect() as connection:
        for number in range(5):
            await connection.send(
                "POST", **modern_request("tools/call", {"name": "echo", "arguments": {"text": str(number)}}, id=number)
            )
        for number in range(5):
            assert (await connection.response()).answer["id"] == number
        assert rig.ran == list("01234")


# ----- Plain functions. Worker threads live in real time, so these tests do.


class Blocking:
    """A server of which one tool is a plain function that blocks."""

    def __init__(self) -> None:
        self.server = Server("blocking", version="1", max_threads=40)
        self.at_once = 0
        self.most = 0
        self.lock = threading.Lock()

        @self.server.tool
        def block(seconds: float) -> str:
            with self.lock:
                self.at_once += 1
                self.most = max(self.most, self.at_once)
            time.sleep(seconds)
            with self.lock:
                self.at_once -= 1
            return "blocked"

        @self.server.tool
        async def quick() -> str:
            return "quick"


async def test_r45_a_plain_function_blocks_only_its_own_call(storage: Storage, front: str):
    """Plain functions ran on the loop: one slow call, and health checks, heartbeats and other sessions stood still."""
    blocking = Blocking()
    async with serving(blocking.server, front=front, store=storage.new(), heartbeat=0.2, stream_after=0.1) as http:
        session, other = await http.initialize("2025-06-18"), await http.initialize()
        async with session.open_call("block", {"seconds": 1.5}) as stream:
            slowest = 0.0
            while len(stream.heartbeats) < 4:
                await stream.heartbeat()
                began = trio.current_time()
                assert (await other.post("tools/list")).status == 200
                assert (await http.request("GET", "/health")).status == 200
                slowest = max(slowest, trio.current_time() - began)
            assert slowest < 0.2, "two requests that should take a few milliseconds"
            gaps = [b - a for a, b in zip(stream.heartbeats, stream.heartbeats[1:], strict=False)]
            assert max(gaps) < 0.4
            (answer,) = await stream.rest()
            assert answer["result"]["content"][0]["text"] == "blocked"


async def test_r45_two_hundred_blocking_calls_do_not_lock_up(storage: Storage, front: str):
    """A pool of threads shared with everything else could fill up and never empty again."""
    blocking = Blocking()
    async with serving(blocking.server, front=front, store=storage.new()) as http:
        session = await http.initialize()
        texts = []

        async def call() -> None:
            texts.append((await session.call("block", {"seconds": 0.05})).text)

        async with trio.open_nursery() as nursery:
            for _ in range(200):
                nursery.start_soon(call)
            await trio.sleep(0.02)
            assert (await session.call("quick")).text == "quick"
        assert texts == ["blocked"] * 200
        assert blocking.most <= 40


async def test_r45_cancelling_a_blocking_call_frees_the_loop(front: str):
    """A thread cannot be stopped, but nobody has to wait for it."""
    blocking = Blocking()
    async with serving(blocking.server, front=front) as http:
        connection = http.connect()
        await connection.send("POST", **modern_request("tools/call", {"name": "block", "arguments": {"seconds": 0.5}}))
        with trio.fail_after(5):
            while not blocking.at_once:  # noqa: ASYNC110 - a thread tells nobody
                await trio.sleep(0.01)
            began = trio.current_time()
            connection.cut()
            while http.endpoint.calls:  # noqa: ASYNC110 - nobody tells, by design
                await trio.sleep(0.001)
        assert trio.current_time() - began < 0.2
        assert (await http.call("quick")).text == "quick"


# ----- Failing


class Unsendable:
    """JSON has no form for it."""


def nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


def recurse() -> int:
    return recurse() + 1


def raised(exc: BaseException):
    raise exc


SECRET = "hunter2-in-the-traceback"
FAILING = {
    "ValueError": partial(raised, ValueError(SECRET)),
    "KeyError": partial(raised, KeyError(SECRET)),
    "an exception group": partial(raised, ExceptionGroup(SECRET, [ValueError(SECRET), TypeError(SECRET)])),
    "RecursionError": recurse,
    "StopIteration": partial(raised, StopIteration(SECRET)),
    "OSError": partial(raised, FileNotFoundError(2, SECRET, f"/etc/{SECRET}")),
    "SystemExit": partial(sys.exit, SECRET),
    "a foreign cancellation": partial(raised, asyncio.CancelledError(SECRET)),
    "an object": Unsendable,
    "a class": lambda: Unsendable,
    "a set of objects": lambda: {Unsendable()},
    "a generator": lambda: (number for number in range(3)),
    "a lone surrogate": lambda: "\ud800",
    "a deep list": partial(nested, 100_000),
}


@pytest.mark.parametrize("kind", ["async", "plain"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("what", FAILING)
async def test_r46_whatever_a_tool_does_it_is_answered(storage: Storage, front: str, what: str, era: str, kind: str):
    """A handler failed in a way nobody had thought of; the client got no parseable answer and waited for ever."""
    server = Server("failing", version="1")

    if kind == "async":

        @server.tool
        async def fail():
            return FAILING[what]()

    else:

        @server.tool
        def fail():
            return FAILING[what]()

    @server.tool
    async def echo(text: str) -> str:
        return text

    async with serving(server, front=front, store=storage.new(), allow_errors=True) as http:
        session = await http.initialize()
        if era == "legacy":
            response = await session.call("fail", id="the id", within=10)
        else:
            response = await http.call("fail", id="the id", within=10)
        answer = response.answer
        assert answer["id"] == "the id"
        assert answer.get("result", {}).get("isError") or answer["error"]["code"] == -32603
        for inside in (SECRET, "Traceback", ".py", "line "):
            assert inside not in response.body.decode()
        assert (await session.call("echo", {"text": "alive"})).text == "alive"


async def test_r46_a_tool_that_leaves_its_scopes(clock, rig: Rig, front: str):
    """Scopes of its own that are cancelled, time out or fail are the tool's business, and it is answered."""

    @rig.server.tool
    async def scopes(ctx: Context) -> str:
        with trio.move_on_after(0.05):
            await ctx.progress(1)
            await trio.sleep_forever()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await ctx.progress(2)
            nursery.cancel_scope.cancel()
        with trio.CancelScope() as scope:
            scope.cancel()
            await ctx.progress(3)
        return "out"

    @rig.server.tool
    async def times_out() -> str:
        with trio.fail_after(0.05):
            await trio.sleep_forever()
        return "never"

    async with rig.serving(front=front, allow_errors=True) as http:
        session = await http.initialize()
        response = await session.call("scopes", progress=0)
        assert response.text == "out"
        assert [message["params"]["progress"] for message in response.messages[:-1]] in ([1, 2], [1, 2, 3])
        assert (await session.call("times_out")).result["isError"]
        assert (await session.call("echo", {"text": "alive"})).text == "alive"


async def test_r46_the_stream_of_a_failed_call_ends(clock, rig: Rig, front: str):
    """The stream was closed without a response."""

    @rig.server.tool
    async def fails_late(ctx: Context) -> str:
        await ctx.progress(1)
        await trio.sleep(rig.storage.pause)
        raise ValueError(SECRET)

    async with rig.serving(front=front, allow_errors=True) as http:
        session = await http.initialize()
        async with session.open_call("fails_late", progress=0, id="late") as stream:
            progress, answer = await stream.rest()
            assert stream.ended
            assert progress["params"]["progress"] == 1
            assert answer["id"] == "late"
            assert answer["result"]["isError"]
            assert SECRET.encode() not in stream.raw


async def test_r73_calls_that_fail_leave_no_object_behind(clock, leftovers, rig: Rig, front: str):
    """Large locals of cancelled tasks lived until the garbage collector came by."""

    @rig.server.tool
    async def times_out() -> str:
        with trio.fail_after(0.01):
            await trio.sleep_forever()
        return "never"

    @rig.server.tool
    async def fails(ctx: Context) -> str:
        try:
            raise ValueError(SECRET)
        except ValueError as exc:
            raise TypeError(SECRET) from exc

    @rig.server.tool
    async def in_a_nursery(ctx: Context) -> str:
        async def fail() -> None:
            raise ValueError(SECRET)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(fail)
        return "never"

    # What is logged holds the traceback, and with it all of the call, for as long as somebody keeps the record.
    logging.getLogger("mcpd.handlers").disabled = True
    try:
        async with rig.serving(front=front) as http, http.keep_alive() as client:
            for _ in range(100):
                session = await http.initialize(on=client)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(partial(session.call, "wait", {"seconds": 30}, id="stop"))
                    await rig.held()
                    await session.notify("notifications/cancelled", {"requestId": "stop"}, on=client)
                for tool in ("times_out", "fails", "in_a_nursery"):
                    assert (await session.call(tool, on=client)).result["isError"]
                assert (await session.delete(on=client)).status == 204
            assert rig.outcomes == {"cancelled": 100}
            await rig.storage.until(lambda: leftovers() == {})
            await rig.storage.until(lambda: http.endpoint.sessions.busy() == 0)
            rig.storage.check("session:", "events:")
    finally:
        logging.getLogger("mcpd.handlers").disabled = False


REFUSALS = [
    ("POST", {"body": b"{"}),
    ("POST", {"body": b""}),
    ("POST", {"json": rpc("tools/list", id=1), "headers": {"Mcp-Session-Id": "x"}}),
    ("POST", {"json": rpc("tools/list", id=1), "headers": {"Content-Type": "text/plain"}}),
    ("POST", {"json": rpc("tools/list", id=1), "headers": {"Accept": "text/html"}}),
    ("POST", {"json": rpc("tools/list", id=1), "headers": {"Host": "evil.example"}}),
    ("POST", {"json": rpc("tools/list", id=1), "headers": {"Origin": "http://evil.example"}}),
    ("POST", {"json": rpc("tools/list", id=1), "headers": {"MCP-Protocol-Version": "1999-01-01"}}),
    ("POST", {"json": rpc("x" * 5_000, id=1)}),
    ("POST", {"path": "/elsewhere", "json": rpc("tools/list", id=1)}),
    ("POST", modern_request("no/such/method")),
    ("POST", modern_request("tools/list", headers={"Mcp-Method": "tools/call"})),
    ("GET", {}),
    ("DELETE", {}),
    ("PATCH", {}),
    ("BREW", {}),
]


@pytest.mark.parametrize("number", range(len(REFUSALS)))
async def test_r46_every_refusal_is_json_rpc(clock, rig: Rig, front: str, number: int):
    """Gateways and servers answered with pages and plain text, which clients could not read."""
    method, request = REFUSALS[number]
    async with rig.serving(front=front, max_body=4_096) as http:
        response = await http.request(method, **request)
        assert 400 <= response.status < 600
        assert response.json["jsonrpc"] == "2.0"
        assert response.json["error"]["message"]
        assert response.json["id"] in {None, 1}


async def test_r46_a_body_cut_short_leaves_nothing(clock, leftovers, rig: Rig, front: str):
    """A client that dies within its request gets no answer, and keeps nothing alive."""
    whole = encode_request("POST", json=rpc("initialize", {"protocolVersion": "2025-11-25"}, id=1))
    async with rig.serving(front=front) as http:
        for size in (10, len(whole) - 10):
            connection = http.connect()
            await connection.send_bytes(whole[:size])
            await wait_all_tasks_blocked()
            connection.cut()
        await rig.storage.until(lambda: leftovers() == {})
        assert await http.count() == 0
        connection = http.connect()
        await connection.send_bytes(whole[:-10], "POST")
        await connection.half_close()
        with suppress(ConnectionLost):  # nor is there anything to say to half a request
            assert (await connection.response()).status == 400
        assert await http.count() == 0
