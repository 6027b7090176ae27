"""SSE responses: what is on which stream, in which order, and how a stream is resumed."""

from typing import Any

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpd import Context, Server
from tests import wire
from tests.harness import ConnectionLost, Stream, serving
from tests.requirements import requirement
from tests.server.everything import everything

every_legacy = pytest.mark.parametrize("revision", wire.LEGACY)
RESUMABLE = [revision for revision in wire.LEGACY if revision > "2024-11-05"]


class Steps:
    """A server whose tool goes on step by step, as the test says."""

    def __init__(self) -> None:
        self.server = everything()
        self.became: list[str] = []
        self._send, self._receive = trio.open_memory_channel[str | None](1_000)

        @self.server.tool
        async def steps(ctx: Context) -> str:
            number = 0
            try:
                async for step in self._receive:
                    if step is None:
                        break
                    if step == "close":
                        await ctx.close_stream()
                    else:
                        number += 1
                        await ctx.progress(number, message=step)
            except trio.Cancelled:
                self.became.append("cancelled")
                raise
            self.became.append("done")
            return "done"

    async def go(self, *steps: str) -> None:
        for step in steps:
            await self._send.send(step)
        await wait_all_tasks_blocked()

    async def end(self) -> None:
        await self._send.send(None)


def texts(messages: list[dict[str, Any]]) -> list[Any]:
    """What the steps said (2024-11-05 has only numbers), and the text of the result."""
    return [
        message["params"].get("message", message["params"]["progress"])
        if "method" in message
        else message["result"]["content"][0]["text"]
        for message in messages
    ]


async def events(stream: Stream, count: int) -> list[Any]:
    found = [await stream.event() for _ in range(count)]
    assert None not in found
    return found


# ----- The stream of a POST


@requirement("D63", "D68", "D72", "E77", "J155", "G123", "L168", "J159")
@pytest.mark.parametrize("revision", wire.REVISIONS)
async def test_what_precedes_a_result_makes_its_response_a_stream(revision, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        if revision == wire.MODERN:
            meta = {"progressToken": "t", "io.modelcontextprotocol/logLevel": "debug"}
            response = await http.call("report", {"steps": 2}, meta=meta, id="r")
        else:
            session = await http.initialize(revision)
            response = await session.call("report", {"steps": 2}, progress="t", id="r")
        assert response.status == 200
        assert response.headers["content-type"] == "text/event-stream"
        assert "no-cache" in response.headers["cache-control"]
        assert response.headers["x-accel-buffering"] == "no"
        messages = [wire.check(revision, "tools/call", message) for message in response.messages]
        assert [message.get("method", message.get("id")) for message in messages] == [
            "notifications/progress",
            "notifications/message",
            "notifications/progress",
            "notifications/message",
            "r",
        ]
        for event in response.events:
            assert event.type == "message"
            assert "\n" not in event.data
            # 2024-11-05 knows no ids; a modern stream has none: it is not resumed.
            assert (event.id is not None) == (revision in RESUMABLE)


@requirement("D63")
@pytest.mark.parametrize("revision", wire.REVISIONS)
async def test_who_takes_only_json_gets_only_the_result(revision, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        headers = {"Accept": "application/json"}
        if revision == wire.MODERN:
            response = await http.call("report", {"steps": 2}, meta={"progressToken": "t"}, headers=headers)
        else:
            session = await http.initialize(revision)
            response = await session.call("report", {"steps": 2}, progress="t", headers=headers)
        assert len(response.messages) == 1
        assert wire.check(revision, "tools/call", response.json)["result"]["content"][0]["text"] == "reported"


@requirement("D69", "D63")
@pytest.mark.parametrize("revision", wire.REVISIONS)
async def test_a_long_call_becomes_a_stream_that_is_kept_alive(revision, front, autojump_clock):
    server = Server("s")

    @server.tool
    async def slow() -> str:
        await trio.sleep(100)
        return "done"

    async with serving(server, front=front, heartbeat=15.0) as http:
        if revision == wire.MODERN:
            opened = http.open_modern("tools/call", {"name": "slow"})
        else:
            opened = (await http.initialize(revision)).open_call("slow")
        began = trio.current_time()
        async with opened as stream:
            assert trio.current_time() - began < 5, "a proxy has given up by now"
            answer = await stream.message(within=200)
            assert await stream.rest() == []
            assert answer["result"]["content"][0]["text"] == "done"
            gaps = [b - a for a, b in zip(stream.heartbeats, stream.heartbeats[1:], strict=False)]
            assert len(stream.heartbeats) >= 5
            assert max(gaps) <= 15.5


@requirement("E78", "E80", "E82")
@every_legacy
async def test_a_stream_is_primed_where_the_revision_knows_of_it(revision, front, autojump_clock):
    """A client before 2025-11-25 would take an event without data for an empty message."""
    async with serving(everything(), front=front, retry=2.5) as http:
        session = await http.initialize(revision)
        response = await session.call("report", {"steps": 1}, progress="t")
        first = response.events[0]
        if revision == "2025-11-25":
            assert (first.data, first.retry) == ("", 2500)
            assert first.id
        else:
            assert all(event.data for event in response.events)
        async with session.get() as stream:
            http.endpoint.dispatcher.server.notify_tools_changed()
            (event,) = await events(stream, 1)
            assert (event.data == "") == (revision == "2025-11-25")


@requirement("E83", "E84", "D72")
async def test_event_ids_are_unique_in_the_session_and_name_their_stream(front, autojump_clock):
    server = everything()
    async with serving(server, front=front) as http:
        session = await http.initialize()
        by_stream: list[list[str]] = []
        for _ in range(5):
            response = await session.call("report", {"steps": 3}, progress="t")
            by_stream.append([event.id for event in response.events])
        async with session.get() as stream:
            found = await events(stream, 1)
            for _ in range(3):
                server.notify_tools_changed()
                found += await events(stream, 1)
            by_stream.append([event.id for event in found])
        ids = [each for ids in by_stream for each in ids]
        assert len(set(ids)) == len(ids)
        prefixes = [{each.rpartition(".")[0] for each in ids} for ids in by_stream]
        assert all(len(prefix) == 1 for prefix in prefixes)
        assert len(set().union(*prefixes)) == len(by_stream)


@requirement("E92")
async def test_events_come_in_the_order_in_which_they_were_sent(front, autojump_clock):
    server = Server("s")

    @server.tool
    async def many(ctx: Context) -> str:
        for n in range(500):
            await ctx.progress(n, message=f"{n} " + "x" * (n * 37 % 4_000))
        return "done"

    async with serving(server, front=front) as http:
        session = await http.initialize()
        async with session.open_call("many", progress="t") as stream:
            messages = await stream.rest()
    assert [message["params"]["progress"] for message in messages[:-1]] == list(range(500))


@requirement("E77", "U270", "D70", "A15")
async def test_questions_go_out_on_the_stream_of_their_call_and_nowhere_else(front, autojump_clock):
    server = everything()

    class Name(msgspec.Struct):
        name: str

    @server.tool
    async def ask(ctx: Context) -> str:
        return repr((await ctx.elicit("Who?", Name)).content)

    async with serving(server, front=front) as http:
        session = await http.initialize(capabilities={"elicitation": {}})
        async with (
            session.get() as listening,
            session.open_call("ask", id="a") as one,
            session.open_call("ask", id="b") as two,
        ):
            questions = [wire.check("2025-11-25", None, await stream.message()) for stream in (one, two)]
            assert questions[0]["id"] != questions[1]["id"]
            for question, name in ((questions[1], "second"), (questions[0], "first")):
                answer = {"action": "accept", "content": {"name": name}}
                response = await session.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
                assert response.status == 202
            assert texts(await one.rest()) == ["Name(name='first')"]
            assert texts(await two.rest()) == ["Name(name='second')"]
            server.notify_tools_changed()
            assert (await listening.message())["method"] == "notifications/tools/list_changed"


@requirement("F104", "I142", "F101")
async def test_nobody_else_can_answer_a_question(front, autojump_clock):
    server = everything()

    class Name(msgspec.Struct):
        name: str

    @server.tool
    async def ask(ctx: Context) -> str:
        return repr((await ctx.elicit("Who?", Name)).content)

    async with serving(server, front=front) as http:
        session = await http.initialize(capabilities={"elicitation": {}})
        other = await http.initialize(capabilities={"elicitation": {}})
        async with session.open_call("ask") as stream:
            question = await stream.message()
            for name, who in (("intruder", other), ("owner", session)):
                answer = {"jsonrpc": "2.0", "id": question["id"]}
                result = {"action": "accept", "content": {"name": name}}
                assert (await who.send(answer | {"result": result})).status == 202
            assert texts(await stream.rest()) == ["Name(name='owner')"]


# ----- The standalone stream


@requirement("E73", "E74", "D62")
async def test_a_get_is_a_stream_or_says_why_not(front, autojump_clock):
    async with serving(everything(), front=front) as http:
        session = await http.initialize()
        async with session.get() as stream:
            assert stream.status == 200
            assert stream.headers["content-type"] == "text/event-stream"
            assert stream.headers["x-accel-buffering"] == "no"
        for accept in ("application/json", "text/html", "", "text/event-stream;q=0"):
            response = await http.request("GET", headers=session.headers({"Accept": accept}))
            assert response.status == 406
        response = await http.request("GET", headers={"Accept": "text/event-stream"})
        assert response.status == 405
        assert "GET" not in response.headers["allow"]


@requirement("E75", "E76", "M184", "N206", "O214", "N203", "N204", "J159")
@every_legacy
async def test_the_standalone_stream_tells_of_changes_and_of_nothing_else(revision, front, autojump_clock):
    steps = Steps()
    async with serving(steps.server, front=front) as http:
        session = await http.initialize(revision)
        async with session.get() as stream:
            async with session.open_call("steps", progress="t") as call:
                await steps.go("one")
                await call.message()
                await steps.end()
                await call.rest()
            await session.post("resources/subscribe", {"uri": "note://1"})
            said = []
            for change in (
                steps.server.notify_tools_changed,
                steps.server.notify_prompts_changed,
                steps.server.notify_resources_changed,
                lambda: steps.server.notify_resource_updated("note://1"),
            ):
                change()
                said.append(wire.check(revision, None, await stream.message()))
            assert [message["method"] for message in said] == [
                "notifications/tools/list_changed",
                "notifications/prompts/list_changed",
                "notifications/resources/list_changed",
                "notifications/resources/updated",
            ]
            assert said[-1]["params"]["uri"] == "note://1"
            await session.post("resources/unsubscribe", {"uri": "note://1"})
            steps.server.notify_resource_updated("note://1")
            steps.server.notify_tools_changed()
            assert (await stream.message())["method"] == "notifications/tools/list_changed"


@requirement("F104", "D70", "N203")
async def test_each_session_is_told_once_and_only_what_it_asked_for(front, autojump_clock):
    server = everything()
    async with serving(server, front=front) as http:
        one, two = await http.initialize(), await http.initialize()
        await one.post("resources/subscribe", {"uri": "note://1"})
        async with one.get() as first, two.get() as second:
            server.notify_resource_updated("note://1")
            server.notify_tools_changed()
            assert (await first.message())["method"] == "notifications/resources/updated"
            assert (await first.message())["method"] == "notifications/tools/list_changed"
            assert (await second.message())["method"] == "notifications/tools/list_changed"
            with pytest.raises(trio.TooSlowError):
                await first.message(within=40)
            with pytest.raises(trio.TooSlowError):
                await second.message(within=40)


@requirement("E88", "D70")
async def test_a_second_standalone_stream_takes_the_place_of_the_first(front, autojump_clock):
    server = everything()
    async with serving(server, front=front) as http:
        session = await http.initialize()
        async with session.get() as first, session.get() as second:
            assert await first.rest() == []
            server.notify_tools_changed()
            assert (await second.message())["method"] == "notifications/tools/list_changed"


async def test_a_legacy_stream_hears_nothing_of_tasks(front, autojump_clock):
    server = everything()

    @server.tool(task="optional")
    async def job() -> str:
        return "done"

    async with serving(server, front=front) as http:
        session = await http.initialize()
        async with session.get() as stream:
            started = await session.post("tools/call", {"name": "job", "arguments": {}, "task": {}})
            task = started.result["task"]["taskId"]
            await session.post("tasks/result", {"taskId": task})
            await wait_all_tasks_blocked()
            server.notify_tools_changed()
            assert (await stream.message())["method"] == "notifications/tools/list_changed"


async def test_a_plain_handler_may_change_what_is_offered(front):
    server = everything()

    @server.tool
    def grow() -> str:
        server.add_tool(lambda: "new", name="grown")
        return "done"

    async with serving(server, front=front) as http:
        session = await http.initialize()
        async with session.get() as stream:
            assert (await session.call("grow")).result["content"][0]["text"] == "done"
            assert (await stream.message())["method"] == "notifications/tools/list_changed"
            assert (await session.call("grown")).result["content"][0]["text"] == "new"


# ----- Losing and resuming


@requirement("E81", "E85", "E76", "E86", "E92")
@pytest.mark.parametrize("revision", RESUMABLE)
async def test_a_lost_stream_is_resumed_where_it_was_and_its_call_has_gone_on(revision, front, autojump_clock):
    steps = Steps()
    async with serving(steps.server, front=front) as http:
        session = await http.initialize(revision)
        async with session.get(), session.open_call("steps", progress="t", id="s") as stream:
            await steps.go("one", "two")
            await stream.message()
            last = stream.last_id
            stream.cut()
        await steps.go("three")
        assert steps.became == []
        async with session.get(last) as resumed:
            assert resumed.status == 200
            assert texts([await resumed.message(), await resumed.message()]) == ["two", "three"]
            await steps.go("four")
            assert texts([await resumed.message()]) == ["four"]
            await steps.end()
            (answer,) = await resumed.rest()
            assert wire.check(revision, "tools/call", answer)["id"] == "s"
        assert steps.became == ["done"]
        # What was read can be read again, also when all is over.
        async with session.get(last) as again:
            assert texts(await again.rest()) == ["two", "three", "four", "done"]


@requirement("E85", "E86")
async def test_a_stream_is_resumed_from_each_of_its_events(front, autojump_clock):
    async with serving(everything(), front=front) as http:
        session, other = await http.initialize(), await http.initialize()
        response = await session.call("report", {"steps": 3}, progress="t")
        await session.call("report", {"steps": 5}, progress="u")  # another stream, whose events must not be seen
        found = response.events
        for index, event in enumerate(found):
            async with session.get(event.id) as stream:
                rest = await stream.rest()
            assert rest == [each.json for each in found[index + 1 :]]
            async with other.get(event.id) as stream:
                assert stream.status == 400, "another session's events"


@requirement("E87", "E86", "D62")
@pytest.mark.parametrize(
    "last", ["", "x", ".", "0.", "0.999", "0.x", "nonsense.1", "9" * 5_000, "a.b.c", "-1.-1", "0.-1"]
)
async def test_an_event_that_nobody_knows_is_refused(last, front, autojump_clock):
    async with serving(everything(), front=front) as http:
        session = await http.initialize()
        async with session.get(last) as stream:
            assert stream.status == 400


@requirement("E85", "E92")
@pytest.mark.parametrize("revision", RESUMABLE)
async def test_the_standalone_stream_is_resumed_with_what_was_missed(revision, front, autojump_clock):
    server = everything()
    async with serving(server, front=front) as http:
        session = await http.initialize(revision)
        async with session.get() as stream:
            server.notify_tools_changed()
            await stream.message()
            server.notify_prompts_changed()
            await stream.message()
            ids = stream.last_id
        async with session.get(ids) as stream:
            server.notify_resources_changed()
            assert (await stream.message())["method"] == "notifications/resources/list_changed"


@requirement("E79", "E80", "E81")
async def test_a_handler_may_close_the_connection_and_the_client_comes_back(front, autojump_clock):
    steps = Steps()
    async with serving(steps.server, front=front) as http:
        session = await http.initialize()
        async with session.open_call("steps", progress="t") as stream:
            await steps.go("one", "close", "two")
            assert stream.status == 200
            first = await stream.event()
            assert (first.data, first.retry is not None) == ("", True), (
                "an id and a time to come back, before the close"
            )
            assert texts(await stream.rest()) == ["one"]
            last = stream.last_id
        assert steps.became == []
        async with session.get(last) as resumed:
            await steps.end()
            assert texts(await resumed.rest()) == ["two", "done"]


@pytest.mark.parametrize("revision", [*wire.LEGACY[:-1], wire.MODERN])
async def test_where_it_could_not_come_back_the_connection_stays_open(revision, front, autojump_clock):
    steps = Steps()
    async with serving(steps.server, front=front) as http:
        if revision == wire.MODERN:
            opened = http.open_modern("tools/call", {"name": "steps"}, meta={"progressToken": "t"})
        else:
            opened = (await http.initialize(revision)).open_call("steps", progress="t")
        async with opened as stream:
            await steps.go("one", "close", "two")
            await steps.end()
            assert texts(await stream.rest()) == [*([1, 2] if revision == "2024-11-05" else ["one", "two"]), "done"]


@requirement("E81")
@every_legacy
async def test_a_lost_connection_is_no_cancellation(revision, front, autojump_clock):
    steps = Steps()
    async with serving(steps.server, front=front) as http:
        session = await http.initialize(revision)
        async with session.open_call("steps", progress="t") as stream:
            await steps.go("one")
            await stream.message()
            stream.cut()
        await trio.sleep(300)
        assert steps.became == []
        await steps.go("two")
        await steps.end()
        await wait_all_tasks_blocked()
        assert steps.became == ["done"]


@requirement("E82", "G127")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25"])
async def test_resumability_can_be_off_and_is_where_the_revision_has_none(revision, front, autojump_clock):
    async with serving(everything(), front=front, resumable=False) as http:
        session = await http.initialize(revision)
        response = await session.call("report", {"steps": 2}, progress="t")
        assert all(event.id is None and event.data for event in response.events)


@requirement("E85")
@pytest.mark.parametrize("times", [1, 2])
async def test_more_than_a_buffer_may_have_been_missed(times, front, autojump_clock):
    server = everything()
    async with serving(server, front=front, max_buffer=2_000) as http:
        session = await http.initialize()
        async with session.get() as stream:
            first = (await stream.event()).id
            for _ in range(100):
                server.notify_tools_changed()
                await stream.message()
        for _ in range(times):
            async with session.get(first, window=500) as stream:
                server.notify_prompts_changed()
                await trio.sleep(1)
                missed = [(await stream.message())["method"] for _ in range(101)]
                assert missed[:100] == ["notifications/tools/list_changed"] * 100
                assert missed[100] == "notifications/prompts/list_changed"
                server.notify_resources_changed()
                if times == 1:
                    assert (await stream.message())["method"] == "notifications/resources/list_changed"


# ----- A client that does not read


async def test_a_client_that_reads_slowly_gets_everything(front, autojump_clock):
    server = Server("s")

    @server.tool
    async def flood(ctx: Context) -> str:
        for n in range(200):
            await ctx.progress(n, message="x" * 10_000)
        return "done"

    async with serving(server, front=front, max_buffer=50_000) as http:
        session = await http.initialize()
        async with session.open_call("flood", progress="t", window=10_000) as stream:
            messages = []
            while "id" not in (message := await stream.message()):
                messages.append(message["params"]["progress"])
                await trio.sleep(0.1)
    assert messages == list(range(200))


async def test_a_client_that_never_reads_changes_is_dropped(front, autojump_clock):
    server = everything()
    async with serving(server, front=front, max_buffer=5_000, write_timeout=10.0) as http:
        session = await http.initialize()
        async with session.get(window=500) as stream:
            for _ in range(500):
                server.notify_tools_changed()
                await wait_all_tasks_blocked()
            await trio.sleep(60)
            with pytest.raises((ConnectionLost, AssertionError)):
                for _ in range(500):
                    await stream.message()
        assert (await session.post("ping")).result == {}
