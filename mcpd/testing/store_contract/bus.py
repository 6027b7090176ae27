"""The promises of `mcpd.ports.Bus`, and of the `Store` itself."""

from __future__ import annotations

import trio
from trio.testing import assert_checkpoints, wait_all_tasks_blocked

from mcpd.testing.store_contract.promises import ODD_BYTES, PATIENCE, TTL, Replicas, kept, promise, same


@promise
async def each_subscriber_gets_each_message_once(at: Replicas) -> None:
    """What is published reaches all who are subscribed to its topic, here and on other replicas, and nobody else."""
    async with (
        at.here.bus.subscribe("a") as one,
        at.here.bus.subscribe("a") as two,
        at.there.bus.subscribe("a") as three,
        at.there.bus.subscribe("b") as other,
        at.here.bus.subscribe("*") as odd,
    ):
        sent = [*ODD_BYTES, b"from there"]
        for message in ODD_BYTES:
            await at.here.bus.publish("a", message)
        await at.there.bus.publish("a", b"from there")
        await at.here.bus.publish("b", b"b")
        await at.here.bus.publish("*", b"odd")
        await at.here.bus.publish("nobody", b"-")
        for channel, wanted in ((one, sent), (two, sent), (three, sent), (other, [b"b"]), (odd, [b"odd"])):
            same(sorted(await _receive(channel, len(wanted))), sorted(wanted), "each message once, of its topic")


@promise
async def nothing_comes_after_unsubscribing(at: Replicas) -> None:
    """Who has left gets nothing more, and disturbs nobody who stays or comes back."""
    async with at.there.bus.subscribe("a") as staying:
        async with at.here.bus.subscribe("a") as leaving:
            await at.there.bus.publish("a", b"1")
            same(await _receive(leaving, 1), [b"1"], "who is subscribed receives")
        await at.here.bus.publish("a", b"2")
        same(sorted(await _receive(staying, 2)), [b"1", b"2"], "who stays receives, from who has left too")
        try:
            late = leaving.receive_nowait()
        except (trio.WouldBlock, trio.ClosedResourceError, trio.EndOfChannel):
            pass
        else:
            same(late, None, "who has left receives nothing")
        async with at.here.bus.subscribe("a") as back:
            await at.there.bus.publish("a", b"3")
            same(await _receive(back, 1), [b"3"], "who comes back gets what is published from then on")


@promise
async def the_bus_is_a_checkpoint(at: Replicas) -> None:
    """Publishing and subscribing let other tasks run and can be cancelled."""
    with assert_checkpoints():
        await at.here.bus.publish("a", b"1")
    with assert_checkpoints():
        async with at.here.bus.subscribe("a"):
            pass


@promise
async def the_store_says_what_it_is(at: Replicas) -> None:
    """It has a name to show, answers a ping, and gives the same parts each time."""
    kept(
        bool(at.here.name) and "@" not in at.here.name, f"a store has a name without credentials, not {at.here.name!r}"
    )
    await at.here.ping()
    await at.there.ping()
    await at.here.records("session", capacity=2).create("a", b"1", ttl=TTL)
    same(await at.here.records("session", capacity=2).load("a", ttl=TTL), b"1", "one kind is one set of records")


async def _receive(channel: trio.MemoryReceiveChannel[bytes], number: int) -> list[bytes]:
    """So many messages, and whatever else there is at once."""
    found: list[bytes] = []
    with trio.move_on_after(PATIENCE):
        while len(found) < number:
            found.append(await channel.receive())
        await wait_all_tasks_blocked()
    while channel.statistics().current_buffer_used:
        found.append(channel.receive_nowait())
    return found
