"""Streams in the field: proxies that cut silence, clients that come back, and what must not be lost or doubled."""

import itertools

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpd import Context, Settings
from tests.harness import rpc
from tests.reports.rig import Rig
from tests.reports.storage import in_memory

VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


def check_stream_headers(headers) -> None:
    assert headers["content-type"] == "text/event-stream"
    assert headers["x-accel-buffering"] == "no"
    assert {"no-cache", "no-transform"} <= {part.strip() for part in headers["cache-control"].split(",")}


@in_memory
@pytest.mark.parametrize("version", VERSIONS)
async def test_r28_a_listening_stream_is_never_silent(clock, rig: Rig, front: str, version: str):
    """Proxies cut streams that carry nothing for a minute; one held even the head back until the body's first byte."""
    assert Settings().heartbeat <= 25.0
    async with rig.serving(front=front, heartbeat=10.0) as http:
        session = await http.initialize(version)
        opened = trio.current_time()
        async with session.get() as stream:
            check_stream_headers(stream.headers)
            if version == "2025-11-25":
                assert (await stream.event()).data == ""
            else:
                await stream.heartbeat()
            assert trio.current_time() - opened < 1.0
            last = trio.current_time()
            for _ in range(6):
                now = await stream.heartbeat()
                assert now - last <= 10.0 + 0.1
                last = now


@in_memory
@pytest.mark.parametrize("era", [*VERSIONS, "modern"])
async def test_r28_a_slow_call_is_never_silent(clock, rig: Rig, front: str, era: str):
    """Heartbeats on the GET stream alone did not help: slow calls died the same way on their POSTs."""
    async with rig.serving(front=front, heartbeat=10.0) as http:
        if era == "modern":
            opening = http.open_modern("tools/call", {"name": "wait", "arguments": {"seconds": 30}})
        else:
            opening = (await http.initialize(era)).open_call("wait", {"seconds": 30})
        async with opening as stream:
            check_stream_headers(stream.headers)
            began = trio.current_time()
            answer = await stream.message()
            assert answer["result"]["content"] == [{"type": "text", "text": "waited 30"}]
            assert await stream.rest() == []
            beats = [began, *stream.heartbeats, trio.current_time()]
            assert len(stream.heartbeats) >= 2
            assert max(later - earlier for earlier, later in itertools.pairwise(beats)) <= 10.0 + 0.1


async def test_r29_a_quiet_client_keeps_its_session(clock, rig: Rig, front: str):
    """Pings as keep-alive had nowhere to go without a stream; the first that failed ended the session."""
    async with rig.serving(front=front, heartbeat=0.1, session_idle=120.0) as http:
        session = await http.initialize()
        await rig.storage.advance(50.0)
        assert (await session.post("tools/list")).status == 200
        # A heartbeat that fails ends its stream, and nothing else.
        async with session.get() as stream:
            await stream.heartbeat()
            stream.cut()
            await rig.storage.until(lambda: http.endpoint.streams == set())
        await rig.storage.advance(50.0)
        assert (await session.post("tools/list")).status == 200


async def test_r30_a_stream_cut_can_be_opened_again_at_once(clock, rig: Rig, front: str):
    """Clients that came back were told 409 for minutes: their old stream was still registered."""
    async with rig.serving(front=front) as http:
        session = await http.initialize()
        for _ in range(3):
            async with session.get() as stream:
                assert stream.status == 200
                rig.server.notify_tools_changed()
                assert (await stream.message())["method"] == "notifications/tools/list_changed"
                stream.cut()


async def test_r30_the_newest_stream_takes_over(clock, rig: Rig, front: str):
    """Behind a proxy the server never sees the drop: the old stream still looks open when the client opens another."""
    async with rig.serving(front=front) as http:
        session = await http.initialize()
        for uri in ("rig://one", "rig://two"):
            await session.post("resources/subscribe", {"uri": uri})
        async with session.get() as old:
            await old.event()
            rig.server.notify_resource_updated("rig://one")
            told = [await old.message()]
            rig.server.notify_prompts_changed()  # told while the new stream is on its way
            async with session.get() as new:
                assert new.status == 200
                told += await old.rest()  # it ends in good order
                assert old.ended
                rig.server.notify_resource_updated("rig://two")
                rig.server.notify_tools_changed()
                told += [await new.message() for _ in range(4 - len(told))]
                await session.delete()
                told += await new.rest()
        methods = [message["method"].removeprefix("notifications/") for message in told]
        assert sorted(methods) == [
            "prompts/list_changed",
            "resources/updated",
            "resources/updated",
            "tools/list_changed",
        ]


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_r31_resuming_replays_one_stream(clock, rig: Rig, front: str, version: str):
    """A client that resumed one stream was sent the later events of all of them."""
    async with rig.serving(front=front) as http:
        session = await http.initialize(version)
        async with (
            session.open_call("steps", {"count": 5, "pause": 0.2}, progress="first", id="one") as first,
            session.open_call("steps", {"count": 5, "pause": 0.2}, progress="second", id="two") as second,
        ):
            for step in (1, 2):
                assert (await first.message())["params"]["progress"] == step
                assert (await second.message())["params"]["progress"] == step
            first.cut()
            second.cut()
        await trio.sleep(0.2)  # some events come while nobody listens, others after the client is back
        async with session.get(first.last_id) as resumed:
            assert resumed.status == 200
            messages = await resumed.rest()
        assert [message["params"]["progress"] for message in messages[:-1]] == [3, 4, 5]
        assert {message["params"]["progressToken"] for message in messages[:-1]} == {"first"}
        assert messages[-1]["id"] == "one"
        assert messages[-1]["result"]["content"][0]["text"] == "5 steps"


async def test_r31_an_unknown_event_is_refused(clock, rig: Rig, front: str):
    """The id was split at an underscore, so a stream was lost, or another one found."""
    async with rig.serving(front=front) as http:
        session, other = await http.initialize(), await http.initialize()
        async with session.open_call("steps", {"count": 2}, progress=1) as stream:
            await stream.message()
            known = stream.last_id
            await stream.rest()
        name, _, number = known.rpartition(".")
        for odd in (
            "1",
            "0.1",
            name,
            f"{name}.",
            f"{name}.0",
            f"{name}.{number}0",
            f"{name}_{number}",
            f".{number}",
            "x" * 2_000,
        ):
            async with session.get(odd) as stream:
                assert stream.status == 400, odd
        async with other.get(known) as stream:
            assert stream.status == 400, "another session's"
        async with session.get(known) as stream:
            assert stream.status == 200
            assert [message.get("id") for message in await stream.rest()][-1] is not None


async def test_r33_a_second_cut_loses_nothing(clock, rig: Rig, front: str):
    """A resumed stream was cut again before anything new came, and the place in the stream was gone."""
    async with rig.serving(front=front, heartbeat=0.1) as http:
        session = await http.initialize()
        async with session.open_call("stages", {"count": 3}, progress=1) as stream:
            await stream.message()
            stream.cut()
        event_id = stream.last_id
        for _ in range(3):
            async with session.get(event_id) as resumed:
                await resumed.heartbeat()
                resumed.cut()
        rig.release.set()
        replays = []
        for _ in range(2):
            async with session.get(event_id) as resumed:
                replays.append(await resumed.rest())
        assert replays[0] == replays[1]
        assert [message["params"]["progress"] for message in replays[0][:-1]] == [2, 3]
        assert "result" in replays[0][-1]


async def test_r34_a_result_survives_the_cut_of_its_stream(clock, rig: Rig, front: str):
    """The stream of a long call died, the tool finished, and its result was written to nobody."""
    async with rig.serving(front=front, stream_after=0.1) as http:
        session = await http.initialize()
        for back_in_time in (True, False):  # before the result is there, or after
            rig.release = trio.Event()
            async with session.open_call("hold", id="long") as stream:
                priming = await stream.event()
                assert priming.data == ""
                assert priming.id
                stream.cut()
            if not back_in_time:
                rig.release.set()
                await rig.storage.until(lambda: http.endpoint.calls == set())
            async with session.get(priming.id) as resumed:
                rig.release.set()
                (answer,) = await resumed.rest()
                assert answer["id"] == "long"
                assert answer["result"]["content"][0]["text"] == "held"


async def test_r34_without_resuming_no_ids_are_sent(clock, rig: Rig, front: str):
    """A client that is given an event id waits for a stream it can resume; nobody had kept it."""
    async with rig.serving(front=front, resumable=False) as http:
        session = await http.initialize()
        async with session.get() as listening, session.open_call("steps", {"count": 2}, progress=1) as stream:
            await stream.rest()
            rig.server.notify_tools_changed()
            await listening.message()
            for raw in (stream.raw, listening.raw):
                assert b"id:" not in raw.replace(b'"id":', b"")
                assert b"retry:" not in raw


@pytest.mark.parametrize(("version", "resumable"), [*[(version, True) for version in VERSIONS], ("2025-11-25", False)])
async def test_r35_who_is_primed(clock, rig: Rig, front: str, version: str, resumable: bool):
    """Several clients read the first event of a stream as JSON and failed on the empty one."""
    primes = version == "2025-11-25" and resumable
    async with rig.serving(front=front, resumable=resumable) as http:
        session = await http.initialize(version)
        async with session.open_call("steps", {"count": 1}, progress=1) as stream:
            event = await stream.event()
            assert (event.data == "") == primes
            messages = [event.json] if event.data else []
            messages += await stream.rest()
            assert [("method" in message) for message in messages] == [True, False]


@pytest.mark.parametrize("version", VERSIONS)
async def test_r35_an_initialize_result_is_never_primed(clock, rig: Rig, front: str, version: str):
    """They failed at the first message of all."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
    async with rig.serving(front=front) as http:
        response = await http.request(
            "POST", headers={"Accept": "text/event-stream"}, json=rpc("initialize", params, id="first")
        )
        (event,) = response.events
        assert event.json["id"] == "first"
        assert event.id is None


async def test_r35_a_modern_stream_is_never_primed(clock, rig: Rig, front: str):
    """The modern era has no resuming, so no ids."""
    async with rig.serving(front=front) as http:
        params = {"name": "steps", "arguments": {"count": 2}, "_meta": {"progressToken": "p"}}
        async with http.open_modern("tools/call", params) as stream:
            assert (await stream.event()).json["method"] == "notifications/progress"
            await stream.rest()
            assert b"\nid:" not in b"\n" + stream.raw


@pytest.mark.parametrize("listening", [False, True], ids=["no GET", "a GET"])
async def test_r36_progress_comes_on_the_calls_own_stream(clock, rig: Rig, front: str, listening: bool):
    """Progress went to the standalone stream, and to nobody for clients that had none open."""
    async with rig.serving(front=front) as http:
        session = await http.initialize()

        async def check() -> None:
            response = await session.call("steps", {"count": 3}, progress="token")
            *reports, answer = response.messages
            assert [report["params"] for report in reports] == [
                {"progressToken": "token", "progress": step, "total": 3} for step in (1, 2, 3)
            ]
            assert "result" in answer
            assert len((await session.call("steps", {"count": 3})).messages) == 1  # no token, no progress

        if listening:
            async with session.get() as stream:
                await check()
                rig.server.notify_tools_changed()
                assert (await stream.message())["method"] == "notifications/tools/list_changed"
        else:
            await check()


ODD_TEXT = "a\u2028b\u2029c\u0085d\re\nf\tg\r\nh\x0bi\x0cj\x1ck é 𝄞 \ufeff \x00"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_r37_text_cannot_break_a_line(clock, rig: Rig, front: str, era: str):
    """Parsers split lines at U+2028, U+2029 and U+0085: half a message is no JSON, and the call looked hung."""

    @rig.server.tool
    async def tell(ctx: Context) -> str:
        await ctx.progress(1, message=ODD_TEXT)
        return ODD_TEXT

    async with rig.serving(front=front) as http:
        params = {"name": "tell", "arguments": {}, "_meta": {"progressToken": ODD_TEXT}}
        if era == "legacy":
            response = await (await http.initialize()).post("tools/call", params)
        else:
            response = await http.modern("tools/call", params)
        raw = response.body.decode()
        assert len(response.events) >= 2
        for odd in "\u2028\u2029\u0085\r\t\x0b\x0c\x1c\x00":
            assert odd not in raw, repr(odd)
        for event in response.events:
            assert "\n" not in event.data
        progress, answer = response.messages
        assert progress["params"]["message"] == ODD_TEXT
        assert progress["params"]["progressToken"] == ODD_TEXT
        assert answer["result"]["content"][0]["text"] == ODD_TEXT


@in_memory
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_r38_a_slow_reader_of_a_call_holds_up_only_itself(clock, rig: Rig, front: str, era: str):
    """Each client that did not read its stream grew a queue without end."""
    sent = 0

    @rig.server.tool
    async def flood(ctx: Context) -> str:
        nonlocal sent
        for _ in range(20_000):
            await ctx.info("x" * 1_000)
            sent += 1
        return "all"

    async with rig.serving(front=front, max_buffer=500_000, write_timeout=30.0) as http:
        session = await http.initialize()
        if era == "legacy":
            opening = session.open_call("flood")
        else:
            opening = http.open_modern(
                "tools/call", {"name": "flood", "_meta": {"io.modelcontextprotocol/logLevel": "info"}}
            )
        async with opening as stream:
            assert stream.status == 200
            await wait_all_tasks_blocked()
            assert 100 < sent < 1_500, "it waits for the client"
            began = trio.current_time()
            assert (await session.call("echo", {"text": "x"})).text == "x"
            assert trio.current_time() - began < 0.1
            # A client that goes on reading gets everything.
            for _ in range(2_000):
                assert (await stream.message())["params"]["data"] == "x" * 1_000
            # One that does not is given up; a legacy call goes on without its stream, into a log with bounds.
            await trio.sleep(60.0)
            assert http.endpoint.calls == set()
            assert (sent == 20_000) == (era == "legacy")


@in_memory
async def test_r38_a_slow_listener_is_let_go(clock, rig: Rig, front: str):
    """Changes cannot wait for a client: one that has fallen behind by the buffer's size loses its stream."""

    @rig.server.resource("big://{name}")
    async def big(name: str) -> str:
        return name

    def uri(number: int) -> str:
        return f"big://{number:04}{'x' * 1_000}"

    async with rig.serving(front=front, max_buffer=200_000, write_timeout=30.0) as http:
        slow, quick = await http.initialize(), await http.initialize()
        async with http.keep_alive() as client:
            for number in range(50):
                for session in (slow, quick):
                    assert (await session.post("resources/subscribe", {"uri": uri(number)}, on=client)).result == {}
            full = [await slow.post("resources/subscribe", {"uri": uri(number)}, on=client) for number in range(50, 70)]
            assert full[-1].error["code"] == -32602, "a session has so many bytes, and says so"
        told = []

        async def read(stream) -> None:
            while len(told) < 600:
                told.append((await stream.message())["params"]["uri"])

        async with slow.get() as stuck, quick.get() as reading, trio.open_nursery() as nursery:
            await stuck.event()
            nursery.start_soon(read, reading)
            for number in range(600):
                rig.server.notify_resource_updated(uri(number % 50))
                await wait_all_tasks_blocked()
            assert told == [uri(number % 50) for number in range(600)]
            waiting = [stream._size for stream in http.endpoint.streams]
            assert max(waiting, default=0) <= 200_000
            await trio.sleep(31.0)
            assert len(http.endpoint.streams) == 1, "the slow stream is still held"
        assert (await slow.post("tools/list")).status == 200


async def test_r40_an_open_stream_blocks_no_post(clock, rig: Rig, front: str):
    """The GET held a lock of the session, so tools/list behind it timed out."""
    async with rig.serving(front=front) as http:
        session = await http.initialize()
        answered = []

        async def call(number: int) -> None:
            name, arguments = ("hold", {}) if number == 0 else ("echo", {"text": str(number)})
            response = await session.call(name, arguments, id=number)
            assert response.answer["id"] == number
            answered.append(number)
            if len(answered) == 19:
                rig.release.set()  # not before all others are answered

        async with session.get() as stream:
            await stream.event()
            async with trio.open_nursery() as nursery:
                for number in range(20):
                    nursery.start_soon(call, number)
        assert answered[-1] == 0
        assert len(answered) == 20
