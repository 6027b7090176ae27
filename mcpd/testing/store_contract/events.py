"""The promises of `mcpd.ports.EventLog`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import trio
from trio.testing import assert_checkpoints, wait_all_tasks_blocked

from mcpd.ports import Event, EventLog
from mcpd.testing.store_contract.promises import ODD_BYTES, PATIENCE, TTL, Replicas, kept, promise, same

MAX_EVENTS: Final = 10_000
"""However a store bounds its event log, it keeps fewer events of one stream than this."""
NOTHING_YET: Final[tuple[list[Event], bool]] = ([], False)
NOTHING_MORE: Final[tuple[list[Event], bool]] = ([], True)
NO_EVENTS_ID: Final = ("", " ", "0", "-1", "+1", "1e3", "x", "\N{FULLWIDTH DIGIT ONE}", "9" * 30, "*", "-", "$")


@promise
async def events_are_read_in_order(at: Replicas) -> None:
    """Reading gives what followed, in order, to every replica; it consumes nothing."""
    log = at.here.events
    ids = [await log.append("s", "1", b"%d" % number) for number in range(20)]
    same(len(set(ids)), 20, "each event has an id of its own")
    for reader in (at.here.events, at.there.events, at.here.events):
        same(await _read(reader, "s", "1", ids[0]), list(zip(ids[1:], _numbers(1, 20), strict=True)), "all of it")
        same(await _read(reader, "s", "1", ids[17]), list(zip(ids[18:], (b"18", b"19"), strict=True)), "the rest")
        same(await _read(reader, "s", "1", ids[19]), [], "nothing has followed the last one yet")
    id_ = await at.there.events.append("s", "1", b"next")
    same(await _read(log, "s", "1", ids[19]), [(id_, b"next")], "what another replica appends follows")


@promise
async def event_ids_are_unique_within_a_session(at: Replicas) -> None:
    """Streams of a session share the ids: "globally unique across all streams within that session" (basic/transports).

    So an id of one stream is nothing to another stream, nor to another session.
    """
    ids: dict[str, list[str]] = {"1": [], "2": [], "0": []}
    for number in range(10):
        for stream, given in ids.items():
            log = (at.here, at.there)[number % 2].events
            given.append(await log.append("s", stream, stream.encode()))
    same(len({id_ for given in ids.values() for id_ in given}), 30, "an id is unique within the session")
    for stream, given in ids.items():
        same(await _read(at.here.events, "s", stream, given[7]), [(id_, stream.encode()) for id_ in given[8:]], "own")
        for other in ids:
            if other != stream:
                same(await at.here.events.read("s", other, after=given[7]), None, "an id of another stream")
    await at.here.events.append("t", "1", b"1")
    same(await at.here.events.read("t", "1", after=ids["1"][0]), None, "an id of another session")


@promise
async def events_are_opaque(at: Replicas) -> None:
    """Data is any bytes, the empty ones (a priming event) too; sessions and streams are any strings."""
    first = await at.here.events.append("s", "1", b"")
    ids = [await at.here.events.append("s", "1", data) for data in ODD_BYTES]
    same(await _read(at.there.events, "s", "1", first), list(zip(ids, ODD_BYTES, strict=True)), "bytes come back")
    # Joined carelessly, these pairs would name the same stream.
    for pair in (("a", "b:c"), ("a:b", "c"), ("a:b:c", ""), ("", "a:b:c")):
        first = await at.here.events.append(*pair, b"0")
        await at.here.events.append(*pair, repr(pair).encode())
        found = await _read(at.there.events, *pair, first)
        same([data for _, data in found], [repr(pair).encode()], f"the events of {pair!r} are its own")


@promise
async def unknown_events_are_none(at: Replicas) -> None:
    """Reading after what is no event of the stream gives None, whatever it looks like; it is not an error."""
    log = at.here.events
    same(await log.read("unknown", "1", after="1"), None, "an unknown session")
    id_ = await log.append("s", "1", b"1")
    await log.append("s", "1", b"2")
    same(await log.read("s", "unknown", after=id_), None, "an unknown stream")
    for odd in (*NO_EVENTS_ID, f"0{id_}", f" {id_}", f"{id_} ", f"{id_}.0", f"{id_}-0"):
        same(await log.read("s", "1", after=odd), None, f"{odd!r} is no event")


@promise
async def the_last_event_finishes_its_stream(at: Replicas) -> None:
    """A reader is told when nothing will follow, and other streams go on."""
    first = await at.here.events.append("s", "1", b"")
    other = await at.here.events.append("s", "2", b"")
    same(await _rest(at.there.events, "s", "1", first), NOTHING_YET, "a stream is open until its last event")
    last = await at.here.events.append("s", "1", b"end", last=True)
    same(await _rest(at.there.events, "s", "1", first), ([(last, b"end")], True), "after its last event it is finished")
    same(await _rest(at.there.events, "s", "1", last), NOTHING_MORE, "nothing follows the last event")
    same(await _rest(at.there.events, "s", "2", other), NOTHING_YET, "another stream is not finished")
    with trio.fail_after(PATIENCE):
        await at.there.events.wait("s", "1", after=last)


@promise
async def wait_wakes_up(at: Replicas) -> None:
    """Waiting ends with the next event, with the last one, and when the events are dropped; never later."""
    first = await at.here.events.append("s", "1", b"")
    second = await at.here.events.append("s", "1", b"1")
    with trio.fail_after(PATIENCE):
        await at.there.events.wait("s", "1", after=first)
        await at.there.events.wait("s", "unknown", after=first)
    for last in (False, True):
        async with _waiting(at.there.events, "s", "1", second), _waiting(at.here.events, "s", "1", second):
            second = await at.here.events.append("s", "1", b"2", last=last)
    again = await at.here.events.append("s", "2", b"")
    async with _waiting(at.there.events, "s", "2", again):
        await at.here.events.forget("s")


@promise
async def forget_drops_a_session_events(at: Replicas) -> None:
    """All streams of the session are gone, no other session's, and new ones can be begun."""
    one, two, other = [await at.here.events.append(*of, b"") for of in (("s", "1"), ("s", "2"), ("t", "1"))]
    await at.there.events.forget("s")
    await at.there.events.forget("unknown")
    same(await at.here.events.read("s", "1", after=one), None, "a forgotten stream")
    same(await at.there.events.read("s", "2", after=two), None, "a forgotten stream")
    same(await _rest(at.here.events, "t", "1", other), NOTHING_YET, "another session's stream")
    new = await at.here.events.append("s", "1", b"")
    kept(new not in {one, two}, "an id is never given twice")
    same(await _rest(at.here.events, "s", "1", new), NOTHING_YET, "a session can begin again")


@promise
async def a_stream_is_bounded(at: Replicas) -> None:
    """However long a stream gets, the oldest events give way, the newest stay, and there is no gap between."""
    log = at.here.events
    ids = [await log.append("s", "1", b"%d" % number) for number in range(MAX_EVENTS)]
    same(await at.there.events.read("s", "1", after=ids[0]), None, f"of {MAX_EVENTS} events the oldest is dropped")
    rest = await _read(at.there.events, "s", "1", ids[-5])
    same(rest, list(zip(ids[-4:], _numbers(MAX_EVENTS - 4, MAX_EVENTS), strict=True)), "the newest stay")
    some = ids[:: MAX_EVENTS // 100]
    found = [await log.read("s", "1", after=id_) is not None for id_ in some]
    same(found, sorted(found), "the oldest give way first")


@promise
async def a_session_takes_its_events_along(at: Replicas) -> None:
    """Events live no longer than their session's record: the log is dropped with it."""
    await at.here.records("session").create("s", b"1", ttl=TTL)
    id_ = await at.here.events.append("s", "1", b"")
    for _ in range(3):
        await at.advance(TTL * 0.6)
        await at.here.records("session").renew(["s"], ttl=TTL)
    same(await _rest(at.there.events, "s", "1", id_), NOTHING_YET, "while the session lives, so do its events")
    await at.advance(TTL + 1)
    for _ in range(60):
        # Not at once: whoever sweeps may do so now and then.
        await at.advance(60)
        await wait_all_tasks_blocked()
    same(await at.here.events.read("s", "1", after=id_), None, "when it has expired, they are dropped within the hour")


@promise
async def every_event_verb_is_a_checkpoint(at: Replicas) -> None:
    """Each verb lets other tasks run and can be cancelled, also when there is nothing to wait for."""
    log = at.here.events
    with assert_checkpoints():
        id_ = await log.append("s", "1", b"")
    with assert_checkpoints():
        await log.append("s", "1", b"1", last=True)
    for after in (id_, "unknown"):
        with assert_checkpoints():
            await log.read("s", "1", after=after)
        with trio.fail_after(PATIENCE), assert_checkpoints():
            await log.wait("s", "1", after=after)
    with assert_checkpoints():
        await log.read("unknown", "1", after=id_)
    with trio.fail_after(PATIENCE), assert_checkpoints():
        await log.wait("unknown", "1", after=id_)
    with assert_checkpoints():
        await log.forget("s")
    with assert_checkpoints():
        await log.forget("s")


async def _rest(log: EventLog, session: str, stream: str, after: str) -> tuple[list[Event], bool] | None:
    found = await log.read(session, stream, after=after)
    return None if found is None else ([*found[0]], found[1])


async def _read(log: EventLog, session: str, stream: str, after: str) -> list[tuple[str, bytes]]:
    found = await log.read(session, stream, after=after)
    if found is None:
        raise AssertionError(f"event {after!r} of stream {stream!r} is not known (any more)")
    return [(event.id, event.data) for event in found[0]]


@asynccontextmanager
async def _waiting(log: EventLog, session: str, stream: str, after: str) -> AsyncGenerator[None, None]:
    """While this is open somebody waits; what is done in it must wake them up."""
    woken = trio.Event()

    async def wait() -> None:
        await log.wait(session, stream, after=after)
        woken.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        yield
        with trio.move_on_after(PATIENCE):
            await woken.wait()
        nursery.cancel_scope.cancel()
    kept(woken.is_set(), "who waits wakes up")


def _numbers(start: int, end: int) -> tuple[bytes, ...]:
    return tuple(b"%d" % number for number in range(start, end))
