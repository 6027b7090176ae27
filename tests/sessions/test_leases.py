"""Leases: who resumes a stream learns of its end, whatever became of who ran the call and of the store meanwhile."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio
from trio.testing import MockClock

from mcpd import Context, Server
from mcpd.sessions.leases import LEASE
from mcpd_stores.memory import MemoryStore
from tests.harness import Http, serving
from tests.stores.flaky import FlakyStore, Outage

GONE = "The server that ran this call is gone; call again if that is safe"


@asynccontextmanager
async def replica(outage: Outage, front: str) -> AsyncGenerator[Http]:
    """One replica on a store that others could share. Its wall clock is Trio's, so that `MockClock` rules both."""
    server = Server("s", version="1")

    @server.tool
    async def steps(ctx: Context) -> str:
        for number in range(1, 4):
            await ctx.progress(number)
            await trio.sleep(1)
        return "done"

    store = FlakyStore(MemoryStore(), outage)
    store.shared = True
    async with serving(server, front=front, store=store, state_keys=("k" * 32,)) as http:
        http.endpoint.leases._now = trio.current_time
        yield http


async def test_the_lease_of_a_call_is_gone_with_its_call(autojump_clock: MockClock, front: str) -> None:
    async with replica(outage := Outage(), front) as http:
        session = await http.initialize()
        async with session.open_call("steps", progress=1) as stream:
            await stream.message()
            leases = http.endpoint.store.records("lease")
            assert await leases.count() == 1
            assert (await stream.rest())[-1]["result"]["content"][0]["text"] == "done"
        await http.settle()
        assert await leases.count() == 0
        assert outage.seen.count("lease.create") == outage.seen.count("lease.delete") == 1


async def test_the_lease_of_a_call_is_gone_with_its_session(autojump_clock: MockClock, front: str) -> None:
    async with replica(Outage(), front) as http:
        session = await http.initialize()
        async with session.open_call("steps", progress=1) as stream:
            await stream.message()
            assert (await session.delete()).status == 204
            assert (await stream.rest())[-1]["error"]["message"] == "The session was terminated"
        await http.settle()
        assert await http.endpoint.store.records("lease").count() == 0


async def test_an_end_that_could_not_be_logged_is_an_error_to_who_resumes(
    autojump_clock: MockClock, front: str
) -> None:
    async with replica(outage := Outage(), front) as http:
        session = await http.initialize()
        async with session.open_call("steps", progress=1, id=5) as stream:
            await stream.message()
            last_id = stream.last_id
            outage.down = {"events.append"}
            # Who is still there gets it all the same.
            assert (await stream.rest())[-1]["result"]["content"][0]["text"] == "done"
        outage.down.clear()
        async with session.get(last_id) as rest, session.get(last_id) as same:
            (error,) = await rest.rest(within=LEASE + 5)
            assert (error["id"], error["error"]["message"]) == (5, GONE)
            assert await same.rest(within=5) == [error]
        assert await http.endpoint.store.records("lease").count() == 0


async def test_without_a_lease_a_stream_cannot_be_resumed(autojump_clock: MockClock, front: str) -> None:
    # If this replica died, nobody who resumed it elsewhere would ever learn of it.
    async with replica(Outage("lease.create"), front) as http:
        session = await http.initialize()
        async with session.open_call("steps", progress=1) as stream:
            messages = await stream.rest()
            assert messages[-1]["result"]["content"][0]["text"] == "done"
            assert stream.last_id is None


async def test_whose_turn_it_is_to_say_so_passes_on(autojump_clock: MockClock, front: str) -> None:
    # One of two replicas that follow the stream of a lost one takes it on itself to end it, and is lost as well.
    async with replica(Outage(), front) as http:
        leases = http.endpoint.leases
        await leases.hold("s", "1", [7])
        leases.abandon("s", "1")
        assert await leases.lost("s", "1") == []
        await trio.sleep(LEASE + 1)
        assert len(await leases.lost("s", "1")) == 1
        assert await leases.lost("s", "1") == []
        await trio.sleep(LEASE + 1)
        assert len(await leases.lost("s", "1")) == 1
        await leases.settled("s", "1")
        await trio.sleep(LEASE + 1)
        assert await leases.lost("s", "1") == []
