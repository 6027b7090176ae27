"""The store fails: who asks then is told so and may try again, nothing is half done, and the server lives on."""

import json

import pytest
import trio
from trio.testing import MockClock

from mcpd import Context, Server, StoreError
from mcpd_stores.memory import MemoryStore
from tests.harness import serving
from tests.harness.messages import rpc
from tests.stores.flaky import FlakyStore, Outage


@pytest.fixture
def server() -> Server:
    server = Server("faults", version="1")

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def wait(seconds: float) -> str:
        await trio.sleep(seconds)
        return "done"

    @server.tool
    async def steps(seconds: float, ctx: Context) -> str:
        for step in range(5):
            await ctx.progress(step, 5)
            await trio.sleep(seconds / 5)
        return "done"

    @server.tool
    async def remember(value: int, ctx: Context) -> int:
        assert ctx.session is not None
        await ctx.session.set("value", value)
        return value

    @server.tool
    async def recall(ctx: Context) -> int:
        assert ctx.session is not None
        value: int = await ctx.session.get("value", -1)
        return value

    @server.resource("faults://one")
    async def one() -> str:
        return "one"

    return server


INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "c", "version": "1"},
}


async def test_a_session_that_cannot_be_created_is_503_and_none(
    autojump_clock: MockClock, front: str, server: Server
) -> None:
    outage = Outage("session.create")
    async with serving(server, front=front, store=FlakyStore(MemoryStore(), outage)) as http:
        response = await http.request("POST", json=rpc("initialize", INITIALIZE, id=7))
        assert response.status == 503
        assert int(response.headers["retry-after"]) > 0
        assert "mcp-session-id" not in response.headers
        assert response.error["code"] == -32603
        assert response.json["id"] == 7
        assert "10.1.2.3" not in response.body.decode()
        assert await http.count() == 0
        outage.down.clear()
        session = await http.initialize()
        assert (await session.call("echo", {"text": "back"})).text == "back"
        assert await http.count() == 1


@pytest.mark.parametrize("what", ["POST", "notification", "GET", "DELETE"])
async def test_a_session_that_cannot_be_loaded_is_503(
    autojump_clock: MockClock, front: str, server: Server, what: str
) -> None:
    outage = Outage()
    async with serving(server, front=front, store=FlakyStore(MemoryStore(), outage)) as http:
        session = await http.initialize()
        outage.down.add("session.load")
        if what == "POST":
            response = await session.call("echo", {"text": "a"})
        elif what == "notification":
            response = await session.notify("notifications/initialized")
        elif what == "GET":
            fields = [*session.headers(), ("Accept", "text/event-stream")]
            response = await http.request("GET", headers=fields)
        else:
            response = await session.delete()
        # 404 would make the client throw its session away.
        assert response.status == 503
        assert int(response.headers["retry-after"]) > 0
        assert "10.1.2.3" not in response.body.decode()
        outage.down.clear()
        assert (await session.call("echo", {"text": "back"})).text == "back"


async def test_an_outage_does_not_concern_modern_requests(
    autojump_clock: MockClock, front: str, server: Server
) -> None:
    down = [f"session.{verb}" for verb in ("create", "load", "save", "renew", "delete")]
    async with serving(
        server, front=front, store=FlakyStore(MemoryStore(), Outage(*down, "events.append", "bus.publish"))
    ) as http:
        assert (await http.call("echo", {"text": "here"})).text == "here"


async def test_ready_says_whether_the_store_can_be_used(autojump_clock: MockClock, front: str, server: Server) -> None:
    outage = Outage("ping")
    async with serving(server, front=front, store=FlakyStore(MemoryStore(), outage)) as http:
        assert (await http.request("GET", "/ready")).status == 503
        assert (await http.request("GET", "/health")).status == 200
        outage.down.clear()
        assert (await http.request("GET", "/ready")).status == 200


async def test_a_renewal_that_fails_is_survived(autojump_clock: MockClock, front: str, server: Server) -> None:
    outage = Outage()
    async with serving(server, front=front, store=FlakyStore(MemoryStore(), outage), session_idle=60.0) as http:
        session = await http.initialize()
        async with trio.open_nursery() as nursery:

            async def repair() -> None:
                await trio.sleep(30)
                outage.down.clear()

            outage.down.add("session.renew")
            nursery.start_soon(repair)
            # The store is back before the idle time is over, so the long call keeps its session.
            assert (await session.call("wait", {"seconds": 300}, within=400)).text == "done"
        assert outage.seen.count("session.renew") > 5
        assert (await session.call("echo", {"text": "still there"})).text == "still there"


async def test_a_call_outlives_a_store_that_stays_away(autojump_clock: MockClock, front: str, server: Server) -> None:
    outage = Outage()
    async with serving(
        server, front=front, store=FlakyStore(MemoryStore(), outage), session_idle=60.0, resumable=False
    ) as http:
        session = await http.initialize()
        outage.down |= {"session.renew", "session.save"}
        assert (await session.call("wait", {"seconds": 40})).text == "done"
        # The last exchange ended with a renewal that failed too, and that is a warning and no error of the request.
        outage.down.clear()
        assert (await session.call("echo", {"text": "b"})).text == "b"


@pytest.mark.parametrize("verb", ["session.load", "session.save"])
async def test_a_handler_sees_that_the_state_cannot_be_reached(
    autojump_clock: MockClock, front: str, server: Server, verb: str
) -> None:
    outage = Outage()
    seen: list[Exception] = []

    @server.tool
    async def careful(ctx: Context) -> str:
        assert ctx.session is not None
        outage.down.add(verb)
        try:
            await ctx.session.update("n", lambda n: n + 1, 0)
        except StoreError as exc:
            seen.append(exc)
            return "kept calm"
        return "what?"

    async with serving(server, front=front, store=FlakyStore(MemoryStore(), outage)) as http:
        session = await http.initialize()
        assert (await session.call("careful")).text == "kept calm"
        assert len(seen) == 1


async def test_a_handler_that_does_not_look_gets_an_error_that_says_try_again(
    autojump_clock: MockClock, front: str, server: Server
) -> None:
    outage = Outage()
    async with serving(server, front=front, store=FlakyStore(MemoryStore(), outage), allow_errors=True) as http:
        session = await http.initialize()
        outage.down.add("session.save")
        response = await session.call("remember", {"value": 1})
        assert "10.1.2.3" not in response.body.decode()
        answer = response.answer
        # Whether as a result or as an error: the client is told, and the value is not there.
        assert "error" in answer or answer["result"]["isError"]
        outage.down.clear()
        assert (await session.call("recall")).text == "-1"


async def test_a_stream_that_cannot_be_logged_still_brings_its_result(
    autojump_clock: MockClock, front: str, server: Server
) -> None:
    outage = Outage()
    async with serving(server, front=front, store=FlakyStore(MemoryStore(), outage)) as http:
        session = await http.initialize()
        outage.down.add("events.append")
        # It takes longer than `stream_after`: it would become a stream, which has to be logged.
        response = await session.call("wait", {"seconds": 5})
        assert response.text == "done"


async def test_progress_comes_also_when_the_stream_could_not_be_logged_from_its_start(
    autojump_clock: MockClock, front: str, server: Server
) -> None:
    outage = Outage()
    async with serving(server, front=front, store=FlakyStore(MemoryStore(), outage)) as http:
        session = await http.initialize()
        outage.down.add("events.append")
        async with session.open_call("steps", {"seconds": 10}, progress="p") as stream:
            messages = await stream.rest()
        assert [m["params"]["progress"] for m in messages if "method" in m] == [0, 1, 2, 3, 4]
        assert "result" in messages[-1]
        # What cannot be resumed has no event ids, and must not be closed by the server in the hope that it will be.
        assert stream.last_id is None


async def test_a_stream_that_was_cancelled_while_it_opened_holds_nobody_up(
    autojump_clock: MockClock, front: str, server: Server
) -> None:
    slow = trio.Event()

    async def hook(verb: str) -> None:
        if verb == "events.append" and not slow.is_set():
            await slow.wait()

    async with serving(server, front=front, store=FlakyStore(MemoryStore(), hook)) as http:
        session = await http.initialize()
        async with trio.open_nursery() as nursery:
            responses: list[int] = []

            async def call() -> None:
                responses.append((await session.post("tools/call", steps, id=5)).status)

            steps = {"name": "steps", "arguments": {"seconds": 10}, "_meta": {"progressToken": "p"}}
            nursery.start_soon(call)
            # By now the handler waits for the log, and behind it whoever turns slow responses into streams.
            await trio.sleep(3)
            await session.notify("notifications/cancelled", {"requestId": 5})
            await trio.sleep(3)
            slow.set()
        # The next slow call becomes a stream after a second, as it should.
        async with session.open_call("wait", {"seconds": 30}, within=5) as stream:
            assert stream.headers["content-type"] == "text/event-stream"
            assert "result" in await stream.message()


async def test_a_result_that_comes_while_its_stream_opens_is_sent_once(
    autojump_clock: MockClock, front: str, server: Server
) -> None:
    async def hook(verb: str) -> None:
        if verb == "events.append":
            await trio.sleep(2)

    async with serving(server, front=front, store=FlakyStore(MemoryStore(), hook)) as http:
        session = await http.initialize()
        # After one second it begins to become a stream, which takes until the third; the result is there after two.
        response = await session.call("wait", {"seconds": 2})
        assert response.text == "done"
        assert response.status == 200


async def test_a_log_that_fails_in_the_middle_of_a_stream_does_not_leave_the_client_waiting(
    autojump_clock: MockClock, front: str, server: Server
) -> None:
    outage = Outage()
    async with serving(server, front=front, store=FlakyStore(MemoryStore(), outage), allow_errors=True) as http:
        session = await http.initialize()
        async with session.open_call("steps", {"seconds": 10}, progress="p") as stream:
            assert (await stream.message())["method"] == "notifications/progress"
            outage.down.add("events.append")
            with trio.fail_after(60):
                messages = await stream.rest()
        # One answer, as ever: the result, or an error that says why there is none.
        assert len([message for message in messages if "method" not in message]) == 1
        outage.down.clear()
        assert (await session.call("echo", {"text": "back"})).text == "back"


async def test_a_bus_that_is_down_does_not_take_the_server_along(
    autojump_clock: MockClock, front: str, server: Server
) -> None:
    outage = Outage()
    async with serving(server, front=front, store=FlakyStore(MemoryStore(), outage)) as http:
        session = await http.initialize()
        async with session.get() as stream:
            outage.down.add("bus.publish")
            server.notify_tools_changed()
            await trio.sleep(5)
            assert (await session.call("echo", {"text": "alive"})).text == "alive"
            assert (await session.notify("notifications/cancelled", {"requestId": 99})).status in {202, 503}
            outage.down.clear()
            server.notify_prompts_changed()
            told = {(await stream.message())["method"]}
            assert told <= {"notifications/tools/list_changed", "notifications/prompts/list_changed"}


@pytest.mark.parametrize("verb", ["events.append", "session.load"])
async def test_a_change_that_cannot_be_delivered_does_not_take_the_server_along(
    autojump_clock: MockClock, front: str, server: Server, verb: str
) -> None:
    outage = Outage()
    async with serving(server, front=front, store=FlakyStore(MemoryStore(), outage)) as http:
        session = await http.initialize()
        await session.post("resources/subscribe", {"uri": "faults://one"})
        other = await http.initialize()
        async with session.get(), other.get() as stream:
            outage.down.add(verb)
            server.notify_tools_changed()
            server.notify_resource_updated("faults://one")
            await trio.sleep(5)
            outage.down.clear()
            assert (await session.call("echo", {"text": "alive"})).text == "alive"
            server.notify_prompts_changed()
            while (await stream.message())["method"] != "notifications/prompts/list_changed":
                pass


async def test_a_session_ends_here_even_if_its_events_cannot_be_dropped(
    autojump_clock: MockClock, front: str, server: Server
) -> None:
    outage = Outage()
    async with serving(server, front=front, store=FlakyStore(MemoryStore(), outage)) as http:
        session = await http.initialize()
        async with trio.open_nursery() as nursery:
            answers: list[dict[str, object]] = []

            async def call() -> None:
                answers.append(
                    (await session.call("wait", {"seconds": 1000}, headers={"Accept": "application/json"})).answer
                )

            nursery.start_soon(call)
            await trio.sleep(0.5)
            outage.down |= {"events.forget", "bus.publish"}
            began = trio.current_time()
            assert (await session.delete()).status in {204, 503}
            outage.down.clear()
        # The record is gone, so nobody can end the session again: what runs for it must not go on.
        assert trio.current_time() - began < 5
        assert "error" in answers[0]
        assert (await session.call("echo", {"text": "a"})).status == 404


async def test_a_store_that_cannot_start_stops_the_server_with_its_reason(
    autojump_clock: MockClock, front: str, server: Server
) -> None:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - alone or in a group of nurseries
        async with serving(server, front=front, store=FlakyStore(MemoryStore(), Outage("run"))):
            pytest.fail("it must not serve")
    error: BaseException = caught.value
    while isinstance(error, BaseExceptionGroup):
        assert len(error.exceptions) == 1
        error = error.exceptions[0]
    assert isinstance(error, StoreError)
    assert "run" in str(error)


async def test_errors_are_json_rpc_whatever_fails(autojump_clock: MockClock, front: str, server: Server) -> None:
    outage = Outage()
    async with serving(server, front=front, store=FlakyStore(MemoryStore(), outage)) as http:
        session = await http.initialize()
        for verb in ("session.load", "session.save", "session.delete", "bus.publish", "events.forget"):
            outage.down = {verb}
            for response in (
                await session.post("logging/setLevel", {"level": "error"}),
                await session.post("resources/subscribe", {"uri": "faults://one"}),
                await session.notify("notifications/cancelled", {"requestId": 1}),
            ):
                if response.body:
                    found = json.loads(response.body)
                    assert found["jsonrpc"] == "2.0"
                    assert ("error" in found) != ("result" in found)
                assert "10.1.2.3" not in response.body.decode()
                assert response.status in {200, 202, 503}
