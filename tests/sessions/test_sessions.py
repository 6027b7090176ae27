"""Sessions between exchanges and under them: how long they live, who sees them, and what they may hold."""

import gc
import weakref
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from mcpd import Context, ProtocolError, Server, StoreError
from mcpd.protocol.revisions import LATEST_LEGACY, LEGACY
from mcpd.protocol.types import ClientCapabilities, Implementation
from mcpd.sessions.record import MAX_SUBSCRIPTIONS, SessionRecord, decode_record, encode_record
from mcpd.sessions.sessions import Session, Sessions
from mcpd_stores.memory import MemoryStore
from tests.harness import rpc, serving
from tests.requirements import requirement
from tests.stores.flaky import FlakyStore

IDLE = 600.0
INITIALIZATION = 60.0
WHO = Implementation("client", "1")


@asynccontextmanager
async def running(store: MemoryStore | None = None, **options: Any) -> AsyncGenerator[Sessions, None]:
    store = MemoryStore() if store is None else store
    bounds: dict[str, Any] = {"idle": IDLE, "initialization": INITIALIZATION, "capacity": 100} | options
    sessions = Sessions(store, **bounds)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        await nursery.start(sessions.run)
        yield sessions
        nursery.cancel_scope.cancel()


async def new(sessions: Sessions, principal: object = None) -> str:
    return await sessions.create(LATEST_LEGACY, ClientCapabilities(), WHO, principal)


async def there(sessions: Sessions, session_id: str) -> bool:
    """Whether the record is there; asking is no use of it."""
    return await sessions.records.save(session_id, b"-", ttl=1, expected=b"no record") or bool(
        [key for part in sessions.records._index._parts for key in part if key == session_id]  # type: ignore[attr-defined]
    )


# ----------------------------------------------------------------------------------------------------------- how long


async def test_a_session_that_is_not_used_again_lives_as_long_as_an_initialization(autojump_clock: MockClock) -> None:
    async with running() as sessions:
        used, unused = await new(sessions), await new(sessions)
        await trio.sleep(INITIALIZATION - 1)
        assert await sessions.load(used) is not None
        await trio.sleep(2)
        assert await sessions.load(unused) is None
        assert await sessions.records.count() == 1
        await trio.sleep(IDLE - 3)
        assert await sessions.load(used) is not None


async def test_a_session_that_is_never_initialized_goes_sooner(autojump_clock: MockClock, front: str) -> None:
    async with serving(Server("s"), front=front, session_idle=600.0, initialization_timeout=30.0) as http:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        opened = await http.request("POST", json=rpc("initialize", hello, id=1))
        headers = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}

        async def ping() -> int:
            return (await http.request("POST", headers=headers, json=rpc("ping", id=2))).status

        await trio.sleep(20)
        assert await ping() == 200
        await trio.sleep(29)
        assert await ping() == 200, "the time counts from its last exchange"
        await trio.sleep(31)
        assert await http.count() == 0
        assert await ping() == 404


async def test_the_initialization_timeout_is_never_longer_than_the_idle_time(autojump_clock: MockClock) -> None:
    async with running(idle=10.0) as sessions:
        session_id = await new(sessions)
        await trio.sleep(11)
        assert await sessions.load(session_id) is None


async def test_an_idle_session_is_freed(autojump_clock: MockClock) -> None:
    async with running() as sessions:
        session_id = await new(sessions)
        await sessions.load(session_id)
        await trio.sleep(IDLE - 1)
        assert await sessions.records.count() == 1
        await trio.sleep(3)
        assert await sessions.records.count() == 0
        assert not await there(sessions, session_id)


async def test_a_session_in_use_does_not_expire(autojump_clock: MockClock) -> None:
    async with running() as sessions:
        session = await sessions.load(await new(sessions))
        await trio.sleep(IDLE * 20)
        assert session is not None
        assert await session.reload() is not None
        assert sessions.busy() == 1


async def test_a_short_idle_time_is_renewed_in_time_too(autojump_clock: MockClock) -> None:
    async with running(idle=0.2, initialization=0.2) as sessions:
        session = await sessions.load(await new(sessions))
        await trio.sleep(100)
        assert session is not None
        assert await session.reload() is not None


@pytest.mark.parametrize("length", [0.5, 25.0, 59.0, 61.0, 950.0])
async def test_the_idle_time_counts_from_the_end_of_the_last_exchange(
    autojump_clock: MockClock, front: str, length: float
) -> None:
    server = Server("idle")

    @server.tool
    async def wait(seconds: float) -> str:
        await trio.sleep(seconds)
        return "done"

    async with serving(server, front=front, session_idle=60.0) as http:
        session = await http.initialize()
        assert (await session.call("wait", {"seconds": length}, within=1000)).text == "done"
        await trio.sleep(58)
        assert await http.count() == 1
        assert (await session.call("wait", {"seconds": length}, within=1000)).text == "done"
        await trio.sleep(62)
        assert await http.count() == 0
        assert (await session.call("wait", {"seconds": 0})).status == 404


async def test_an_open_stream_keeps_its_session_and_no_other(autojump_clock: MockClock, front: str) -> None:
    async with serving(Server("idle"), front=front, session_idle=60.0) as http:
        streaming, other = await http.initialize(), await http.initialize()
        async with streaming.get():
            await trio.sleep(1000)
            assert await http.count() == 1
            assert (await other.post("ping")).status == 404
        began = trio.current_time()
        assert (await streaming.post("ping")).status == 200
        await trio.sleep(59)
        assert await http.count() == 1
        await trio.sleep(5)
        assert await http.count() == 0
        assert trio.current_time() - began < 66


async def test_a_resumed_stream_keeps_its_session(autojump_clock: MockClock, front: str) -> None:
    server = Server("idle")

    @server.tool
    async def wait(seconds: float, ctx: Context) -> str:
        await ctx.progress(1)
        await trio.sleep(seconds)
        return "done"

    async with serving(server, front=front, session_idle=60.0) as http:
        session = await http.initialize()
        async with session.open_call("wait", {"seconds": 500}, progress=1) as stream:
            await stream.message()
            stream.cut()
        async with session.get(stream.last_id) as resumed:
            assert (await resumed.message(within=600))["result"]["content"][0]["text"] == "done"
        assert (await session.post("ping")).status == 200


# -------------------------------------------------------------------------------------------------------- who sees it


async def test_ids_are_unguessable_and_visible_ascii(autojump_clock: MockClock) -> None:
    async with running() as sessions:
        ids = {await new(sessions) for _ in range(50)}
        assert len(ids) == 50
        assert all(len(id_) == 24 and id_.isascii() and id_.isprintable() for id_ in ids)


@pytest.mark.parametrize("odd", ["", "x", "a" * 24 + "\n", "a" * 25, "Ä" * 24, "../" * 8, "a" * 23 + "*", "a" * 10_000])
async def test_what_is_no_id_is_not_even_looked_up(autojump_clock: MockClock, odd: str) -> None:
    async with running() as sessions:
        await sessions.records.create(
            odd, encode_record(SessionRecord("2025-11-25", ClientCapabilities(), WHO)), ttl=60
        )
        assert await sessions.load(odd) is None


@requirement("F102", "F103")
async def test_another_principals_session_is_not_there(autojump_clock: MockClock) -> None:
    async with running() as sessions:
        session_id = await new(sessions, {"sub": "alice"})
        assert await sessions.load(session_id, {"sub": "bob"}) is None
        assert await sessions.load(session_id) is None
        mine = await sessions.load(session_id, {"sub": "alice"})
        assert mine is not None
        assert mine.id == session_id
        # Not even in the store does the ID stand for itself, nor the principal in clear.
        [key] = [key for part in sessions.records._index._parts for key in part]  # type: ignore[attr-defined]
        assert key != session_id
        assert "alice" not in key


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"\xc1",
        b"{}",
        msgspec.msgpack.encode(["2025-11-25"]),
        msgspec.msgpack.encode(["2099-01-01", {}, {"name": "c", "version": "1"}]),
        msgspec.msgpack.encode(["2026-07-28", {}, {"name": "c", "version": "1"}]),
    ],
)
async def test_a_record_we_cannot_read_is_a_session_we_do_not_know(autojump_clock: MockClock, record: bytes) -> None:
    async with running() as sessions:
        await sessions.records.create("a" * 24, record, ttl=60)
        assert await sessions.load("a" * 24) is None
        assert sessions.busy() == 0


def test_a_record_of_a_later_version_can_be_read() -> None:
    fields = msgspec.msgpack.decode(encode_record(SessionRecord("2025-11-25", ClientCapabilities(), WHO)))
    found = decode_record(msgspec.msgpack.encode([*fields, {"new": "field"}]))
    assert found is not None
    assert found.revision == "2025-11-25"


@pytest.mark.parametrize("revision", LEGACY)
async def test_what_was_negotiated_stays(autojump_clock: MockClock, revision: str) -> None:
    async with running() as sessions:
        capabilities = msgspec.convert({"sampling": {}, "roots": {"listChanged": True}}, ClientCapabilities)
        session_id = await sessions.create(LEGACY[revision], capabilities, Implementation("c", "2", title="C"))
        session = await sessions.load(session_id)
        assert session is not None
        assert session.revision is LEGACY[revision]
        assert session.record.capabilities == capabilities
        assert session.record.client_info == Implementation("c", "2", title="C")
        assert not session.record.initialized


# ------------------------------------------------------------------------------------------------------- what it holds


async def opened(sessions: Sessions) -> Session:
    session = await sessions.load(await new(sessions))
    assert session is not None
    return session


async def test_state_is_kept_by_key(autojump_clock: MockClock) -> None:
    async with running() as sessions:
        session = await opened(sessions)
        assert await session.get("a") is None
        assert await session.get("a", 5) == 5
        await session.set("a", {"deep": [1, None, "ä", 1.5, True]})
        await session.set("", 0)
        again = await sessions.load(session.id)
        assert again is not None
        assert await again.get("a") == {"deep": [1, None, "ä", 1.5, True]}
        assert await again.get("", 7) == 0
        await session.set("a", None)
        assert await again.get("a", "default") == "default"


async def test_update_gives_the_new_value_and_the_default_once(autojump_clock: MockClock) -> None:
    async with running() as sessions:
        session = await opened(sessions)
        assert await session.update("n", lambda n: n + 1, 10) == 11
        assert await session.update("n", lambda n: n + 1, 10) == 12
        assert await session.update("n", lambda _: None) is None
        assert await session.get("n") is None


async def test_a_change_that_fails_changes_nothing(autojump_clock: MockClock) -> None:
    async with running() as sessions:
        session = await opened(sessions)
        await session.set("n", 1)
        with pytest.raises(ZeroDivisionError):
            await session.update("n", lambda n: n / 0)
        with pytest.raises(TypeError):
            await session.set("n", object())
        assert await session.get("n") == 1


async def test_state_is_bounded(autojump_clock: MockClock) -> None:
    async with running(max_bytes=1_000) as sessions:
        session = await opened(sessions)
        await session.set("small", "x" * 100)
        with pytest.raises(ValueError, match="1000"):
            await session.set("big", "x" * 1_000)
        assert await session.get("big") is None
        assert await session.get("small") == "x" * 100


async def test_what_a_client_says_of_itself_is_bounded(autojump_clock: MockClock) -> None:
    async with running(max_bytes=1_000) as sessions:
        with pytest.raises(ProtocolError, match="1000") as caught:
            await sessions.create(LATEST_LEGACY, ClientCapabilities(), Implementation("c" * 1_000, "1"))
        assert caught.value.code == -32602
        assert await sessions.records.count() == 0


async def test_subscriptions_are_bounded_and_kept_once(autojump_clock: MockClock) -> None:
    async with running(max_bytes=1_000_000) as sessions:
        session = await opened(sessions)
        for _ in range(3):
            await session.subscribe("a://0")
        for number in range(1, MAX_SUBSCRIPTIONS):
            await session.subscribe(f"a://{number}")
        with pytest.raises(ProtocolError, match=str(MAX_SUBSCRIPTIONS)):
            await session.subscribe("a://more")
        await session.subscribe("a://0")
        await session.unsubscribe("a://1")
        await session.unsubscribe("a://unknown")
        await session.subscribe("a://more")
        record = await session.reload()
        assert record is not None
        assert len(record.subscriptions) == len(set(record.subscriptions)) == MAX_SUBSCRIPTIONS


async def test_state_of_a_session_that_has_ended_cannot_be_changed(autojump_clock: MockClock) -> None:
    async with running() as sessions:
        session = await opened(sessions)
        await session.set("n", 1)
        assert await sessions.end(session)
        for verb in (session.get("n"), session.set("n", 2), session.subscribe("a://b"), session.initialized()):
            with pytest.raises(StoreError, match="ended"):
                await verb
        assert await sessions.records.count() == 0
        assert await session.reload() is None


async def test_twenty_calls_count_to_twenty(autojump_clock: MockClock, front: str) -> None:
    server = Server("count")
    tries = 0

    @server.tool
    async def count(ctx: Context) -> int:
        assert ctx.session is not None

        def add(n: int) -> int:
            nonlocal tries
            tries += 1
            return n + 1

        value: int = await ctx.session.update("n", add, 0)
        return value

    async with serving(server, front=front) as http:
        session = await http.initialize()
        answers: list[int] = []

        async def call() -> None:
            answers.append((await session.call("count")).result["structuredContent"]["result"])

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(call)
        assert sorted(answers) == list(range(1, 21))
        assert tries > 20  # else nobody was in anybody's way, and this proves nothing


# --------------------------------------------------------------------------------------------------------- what is live


async def test_what_is_live_is_gone_with_its_last_user(no_gc: None, autojump_clock: MockClock) -> None:
    async with running() as sessions:
        session_id = await new(sessions)
        first = await sessions.load(session_id)
        second = await sessions.load(session_id)
        assert first is not None
        assert second is not None
        assert first.live is second.live
        gone = weakref.ref(first.live)
        del first
        assert sessions.busy() == 1
        del second
        assert gone() is None
        assert sessions.busy() == 0


async def test_looking_for_what_is_not_there_leaves_nothing(no_gc: None, autojump_clock: MockClock) -> None:
    async with running() as sessions:
        before = len(gc.get_objects())
        for number in range(500):
            assert await sessions.load(f"{number:024}") is None
        assert sessions.busy() == 0
        assert len(gc.get_objects()) - before < 50


async def test_at_the_cap_what_is_in_use_stays(autojump_clock: MockClock) -> None:
    async with running(capacity=3) as sessions:
        oldest = await opened(sessions)
        ids = [await new(sessions) for _ in range(10)]
        assert await oldest.reload() is not None
        assert await sessions.records.count() == 3
        assert [await sessions.load(id_) is not None for id_ in ids[-3:]] == [False, True, True]


@pytest.mark.parametrize("what", ["listening", "calling", "told of a change"])
async def test_what_was_being_logged_when_a_session_ended_is_not_kept(
    autojump_clock: MockClock, front: str, what: str
) -> None:
    server = Server("race")

    @server.tool
    async def steps(ctx: Context) -> str:
        for step in range(1000):
            await ctx.progress(step)
        return "done"

    held = trio.Event()
    gate = trio.Event()

    async def hook(verb: str) -> None:
        if verb == "events.append" and slow:
            held.set()
            await gate.wait()

    slow = what != "told of a change"
    inner = MemoryStore()
    async with serving(server, front=front, store=FlakyStore(inner, hook)) as http:
        session = await http.initialize()

        async def use() -> None:
            if what == "calling":
                await session.call("steps", progress=1)
            else:
                async with session.get() as stream:
                    if stream.status == 200:
                        await stream.rest()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(use)
            if what == "told of a change":
                await trio.sleep(1)
                slow = True
                server.notify_tools_changed()
            await held.wait()
            # The DELETE comes in between; what waits at the log's door must not stay there for ever.
            assert (await session.delete()).status == 204
            assert inner.events._sessions == {}
            gate.set()
        await trio.sleep(1)
        assert inner.events._sessions == {}
        assert http.endpoint.sessions.busy() == 0
