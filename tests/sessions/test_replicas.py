"""Two replicas on one store: a session that was opened at one is served by the other, and what is live is told."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
from msgspec import Struct
from trio.testing import MockClock, wait_all_tasks_blocked

from mcpd import Context, Server
from mcpd.sessions.signals import Signal
from mcpd_stores.memory import MemoryStore
from tests.harness import Http, Session, serving


class Name(Struct):
    name: str


class Replica:
    """One of several processes that serve the same server, as far as they know of each other: only by the store."""

    def __init__(self) -> None:
        self.server = server = Server("replica", version="1")
        self.cancelled = 0
        self.running = 0

        @server.tool
        async def hold(ctx: Context) -> str:
            await ctx.progress(1)
            self.running += 1
            try:
                await trio.sleep(500)
            except trio.Cancelled:
                self.cancelled += 1
                raise
            finally:
                self.running -= 1
            return "held"

        @server.tool
        async def ask(ctx: Context) -> str:
            result = await ctx.elicit("Who are you?", Name)
            return f"{result.action} {result.content and result.content.name}"

        @server.tool
        async def count(ctx: Context) -> int:
            assert ctx.session is not None
            value: int = await ctx.session.update("n", lambda n: n + 1, 0)
            return value

        @server.resource("replica://one")
        async def one() -> str:
            return "one"


@asynccontextmanager
async def two(**settings: Any) -> AsyncGenerator[tuple[tuple[Replica, Http], tuple[Replica, Http], MemoryStore], None]:
    store = MemoryStore()
    a, b = Replica(), Replica()
    async with (
        serving(a.server, store=store, **settings) as http_a,
        serving(b.server, store=store, **settings) as http_b,
    ):
        yield (a, http_a), (b, http_b), store


def at(http: Http, session: Session) -> Session:
    """The same session, as the client of another replica."""
    return Session(http, session.id, session.version, session.init)


async def test_any_replica_serves_any_session(autojump_clock: MockClock, front: str) -> None:
    async with two(front=front) as ((_, here), (_, there), _):
        session = await here.initialize()
        for n, http in enumerate([here, there, there, here], 1):
            assert (await at(http, session).call("count")).result["structuredContent"] == {"result": n}
        assert await here.count() == await there.count() == 1


async def test_state_is_changed_as_one_step_from_everywhere(autojump_clock: MockClock, front: str) -> None:
    async with two(front=front) as ((_, here), (_, there), _):
        session = await here.initialize()
        answers: list[int] = []

        async def call(http: Http) -> None:
            answers.append((await at(http, session).call("count")).result["structuredContent"]["result"])

        async with trio.open_nursery() as nursery:
            for n in range(20):
                nursery.start_soon(call, (here, there)[n % 2])
        assert sorted(answers) == list(range(1, 21))


async def test_an_answer_may_come_by_another_replica(autojump_clock: MockClock, front: str) -> None:
    async with two(front=front) as ((_, here), (_, there), _):
        session = await here.initialize(capabilities={"elicitation": {}})
        async with session.open_call("ask") as stream:
            question = await stream.message()
            assert question["method"] == "elicitation/create"
            answer = {"action": "accept", "content": {"name": "Ada"}}
            posted = await at(there, session).send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
            assert posted.status == 202
            assert (await stream.message())["result"]["content"][0]["text"] == "accept Ada"


async def test_an_answer_of_another_session_is_none(autojump_clock: MockClock, front: str) -> None:
    async with two(front=front) as ((_, here), (_, there), _):
        session = await here.initialize(capabilities={"elicitation": {}})
        stranger = await there.initialize(capabilities={"elicitation": {}})
        async with session.open_call("ask") as stream:
            question = await stream.message()
            for http in (here, there):
                forged = {"action": "accept", "content": {"name": "Mallory"}}
                posted = await at(http, stranger).send({"jsonrpc": "2.0", "id": question["id"], "result": forged})
                assert posted.status == 202
            await trio.sleep(5)
            await session.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
            assert (await stream.message())["result"]["content"][0]["text"] == "decline None"


async def test_a_call_may_be_cancelled_by_another_replica(autojump_clock: MockClock, front: str) -> None:
    async with two(front=front) as ((replica, here), (_, there), _):
        session = await here.initialize()
        async with session.open("tools/call", {"name": "hold", "arguments": {}}, id=7) as stream:
            await wait_all_tasks_blocked()
            posted = await at(there, session).notify("notifications/cancelled", {"requestId": 7})
            assert posted.status == 202
            assert [message for message in await stream.rest() if "method" not in message] == []
        assert (replica.cancelled, replica.running) == (1, 0)


async def test_only_the_named_call_of_the_session_is_cancelled(autojump_clock: MockClock, front: str) -> None:
    async with two(front=front) as ((replica, here), (_, there), _):
        session, stranger = await here.initialize(), await there.initialize()
        async with session.open("tools/call", {"name": "hold", "arguments": {}}, id=7) as stream:
            for id_ in (8, "7", None):
                await at(there, session).notify("notifications/cancelled", {"requestId": id_})
            await stranger.notify("notifications/cancelled", {"requestId": 7})
            await trio.sleep(5)
            assert (replica.cancelled, replica.running) == (0, 1)
            await session.delete()
            await stream.rest()


async def test_the_end_of_a_session_ends_it_everywhere(autojump_clock: MockClock, front: str) -> None:
    async with two(front=front) as ((replica, here), (_, there), store):
        session = await here.initialize()
        async with session.get() as listening, session.open_call("hold") as calling:
            await trio.sleep(3)
            assert replica.running == 1
            assert (await at(there, session).delete()).status == 204
            began = trio.current_time()
            assert await listening.rest() == []
            [answer] = await calling.rest()
            assert "error" in answer
            assert trio.current_time() - began < 1
        assert replica.running == 0
        for http in (here, there):
            assert (await at(http, session).post("ping")).status == 404
            assert (await at(http, session).delete()).status == 404
            assert http.endpoint.sessions.busy() == 0
        assert store.events._sessions == {}
        assert await here.count() == 0


async def test_a_session_that_is_in_use_at_one_replica_does_not_expire_for_the_other(
    autojump_clock: MockClock,
    front: str,
) -> None:
    async with two(front=front, session_idle=60.0) as ((_, here), (_, there), _):
        session = await here.initialize()
        async with session.get():
            await trio.sleep(1000)
            assert (await at(there, session).post("ping")).status == 200


async def test_changes_are_told_by_every_replica(autojump_clock: MockClock, front: str) -> None:
    async with two(front=front) as ((one, here), (other, there), _):
        session, elsewhere = await here.initialize(), await there.initialize()
        await at(there, session).post("resources/subscribe", {"uri": "replica://one"})
        async with session.get() as stream, elsewhere.get() as stream_there:
            other.server.notify_resource_updated("replica://one")
            other.server.notify_tools_changed()
            told = [await stream.message() for _ in range(2)]
            assert [message["method"] for message in told] == [
                "notifications/resources/updated",
                "notifications/tools/list_changed",
            ]
            assert (await stream_there.message())["method"] == "notifications/tools/list_changed"
            one.server.notify_prompts_changed()
            for each in (stream, stream_there):
                assert (await each.message())["method"] == "notifications/prompts/list_changed"


async def test_a_stream_may_be_resumed_at_another_replica(autojump_clock: MockClock, front: str) -> None:
    async with two(front=front) as ((_, here), (_, there), _):
        session = await here.initialize()
        async with session.open_call("hold", progress=1) as stream:
            assert (await stream.message())["method"] == "notifications/progress"
            stream.cut()
        async with at(there, session).get(stream.last_id) as resumed:
            assert (await resumed.message(within=600))["result"]["content"][0]["text"] == "held"
            assert await resumed.event() is None


async def test_a_replica_that_is_told_nonsense_lives_on(autojump_clock: MockClock, front: str) -> None:
    # Another version of mcpd may share the bus during an upgrade.
    async with two(front=front) as ((_, here), (_, there), store):
        session = await here.initialize(capabilities={"elicitation": {}})
        async with session.open_call("ask") as stream:
            question = await stream.message()
            key = session.id
            for message in (
                b"",
                b"\xc1",
                msgspec.msgpack.encode({"sender": "x"}),
                msgspec.msgpack.encode(["x", "pause", key, None]),
                msgspec.msgpack.encode(["x", "answer", key, None]),
                msgspec.msgpack.encode(["x", "answer", key, b"\xc1"]),
                msgspec.msgpack.encode(["x", "cancel", key, [1, 2]]),
                msgspec.msgpack.encode(["x", "cancel", key, {"a": 1}]),
                msgspec.msgpack.encode(Signal("x", "end", "another session")),
            ):
                await store.bus.publish("sessions", message)
                await store.bus.publish("changes", message)
            await trio.sleep(5)
            answer = {"action": "accept", "content": {"name": "Ada"}}
            await at(there, session).send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
            assert (await stream.message())["result"]["content"][0]["text"] == "accept Ada"


@pytest.mark.parametrize("who", ["here", "there"])
async def test_nothing_of_a_session_is_left_when_its_end_meets_a_new_stream(
    autojump_clock: MockClock, front: str, who: str
) -> None:
    async with two(front=front) as ((_, here), (_, there), store):
        for delay in range(80):
            session = await here.initialize()
            ender = at(here if who == "here" else there, session)

            async def listen(session: Session = session) -> None:
                async with session.get() as stream:
                    if stream.status == 200:
                        await stream.rest()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(listen)
                for _ in range(delay):
                    await trio.lowlevel.checkpoint()
                assert (await ender.delete()).status == 204
            await wait_all_tasks_blocked()
            assert store.events._sessions == {}, f"after {delay} steps"
        assert await here.count() == 0
