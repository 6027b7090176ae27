"""The promises of `mcpd.ports.RecordStore`."""

from __future__ import annotations

from typing import Final

import trio
from trio.testing import assert_checkpoints

from mcpd.errors import RecordExistsError, ShareFullError, StoreFullError
from mcpd.ports import RecordStore, Share, Store
from mcpd.testing.store_contract.promises import ODD_BYTES, TTL, Replicas, kept, promise, refused, same

ODD_KEYS: Final = ("", " ", "a:b", "a/b", "{a}", "a*", "[a]?", "a\nb", "a\0b", "ä", "𝄞", "A", "a", "k" * 500)


@promise
async def create_never_overwrites(at: Replicas) -> None:
    """A second record of one key is refused, and the first stays as it was; when that is gone the key is free again."""
    records, others = at.here.records("session"), at.there.records("session")
    await records.create("a", b"one", ttl=TTL)
    kept(await refused(records.create("a", b"two", ttl=TTL), RecordExistsError), "create never overwrites")
    kept(await refused(others.create("a", b"two", ttl=TTL), RecordExistsError), "nor on another replica")
    same(await records.load("a", ttl=TTL), b"one", "the record that was there is untouched")
    await records.delete("a")
    await others.create("a", b"three", ttl=TTL)
    same(await records.load("a", ttl=TTL), b"three", "a deleted key is free")
    await at.advance(TTL + 1)
    # Another TTL than before: an expired record that was not freed yet must not be in the way.
    await records.create("a", b"four", ttl=TTL * 2)
    same(await others.load("a", ttl=TTL), b"four", "an expired key is free")
    kept(await records.delete("a"), "and what was created there can be deleted")
    same(await records.load("a", ttl=TTL), None, "and is gone then")


@promise
async def racing_creates_have_one_winner(at: Replicas) -> None:
    """Of eight that create one key at once, one succeeds, and its record is the one that is there."""
    won: list[bytes] = []

    async def race(store: Store, record: bytes) -> None:
        if not await refused(store.records("session").create("a", record, ttl=TTL), RecordExistsError):
            won.append(record)

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(race, (at.here, at.there)[number % 2], b"%d" % number)
    same(len(won), 1, "one of racing creates wins")
    same(await at.here.records("session").load("a", ttl=TTL), won[0], "and what it wrote is what is kept")


@promise
async def the_least_recently_used_gives_way(at: Replicas) -> None:
    """At the cap, the record that was used longest ago gives way; load, save and renew are uses."""
    records, others = at.here.records("session", capacity=4), at.there.records("session", capacity=4)
    for key in "abcd":
        await records.create(key, key.encode(), ttl=TTL)
        await at.advance(1)
    # From here on "d" is the one that nobody has used, though it was created last.
    await others.load("a", ttl=TTL)
    await at.advance(1)
    await records.save("b", b"B", ttl=TTL, expected=b"b")
    await at.advance(1)
    await records.renew(["c"], ttl=TTL)
    await at.advance(1)
    await records.create("e", b"e", ttl=TTL)
    await at.advance(1)
    same(await _there(records, "abcde"), "abce", "the least recently used record gives way")
    for key in "abce":
        await at.advance(1)
        await others.load(key, ttl=TTL)
    await at.advance(1)
    # A shorter life is not an earlier use.
    await records.load("a", ttl=TTL / 2)
    await at.advance(1)
    await records.create("f", b"f", ttl=TTL)
    same(await _there(records, "abcef"), "acef", "whatever TTL it was used with")
    same(await records.count(), 4, "and there are never more than the cap")


@promise
async def spare_records_do_not_give_way(at: Replicas) -> None:
    """At the cap, a record in *spare* stays; with all of them in it nothing is created until one is gone."""
    records = at.here.records("session", capacity=3)
    for key in "abc":
        await records.create(key, key.encode(), ttl=TTL)
        await at.advance(1)
    await records.create("d", b"d", ttl=TTL, spare={"a", "b"})
    await at.advance(1)
    same(await _there(records, "abcd"), "abd", "what is in spare does not give way")
    full = await refused(records.create("e", b"e", ttl=TTL, spare=set("abd")), StoreFullError)
    kept(full, "with every record in spare the store is full")
    same(await _there(records, "abde"), "abd", "then nothing is created, and nothing gives way")
    full = await refused(records.create("a", b"-", ttl=TTL, spare=set("abd")), RecordExistsError)
    kept(full, "a key that is there is said to be there, also at the cap")
    await records.delete("b")
    await records.create("e", b"e", ttl=TTL, spare=set("abd"))
    same(await _there(records, "abde"), "ade", "a deleted record makes room")
    await at.advance(TTL + 1)
    await records.create("f", b"f", ttl=TTL, spare=set("abdef"))
    same(await _there(records, "abdef"), "f", "expired records make room, in spare or not")


@promise
async def an_owner_has_no_more_than_its_share(at: Replicas) -> None:
    """An owner that has its share makes room itself: its own least recently used record gives way, nobody else's."""
    records, others = at.here.records("session", capacity=9), at.there.records("session", capacity=9)
    ada, bob = Share("ada", 2), Share("bob", 2)
    await records.create("o", b"o", ttl=TTL * 5)
    for key, share in (("x", bob), ("a", ada), ("b", ada)):
        await at.advance(1)
        await records.create(key, key.encode(), ttl=TTL * 5, share=share)
    await at.advance(1)
    await others.load("a", ttl=TTL * 5)
    await at.advance(1)
    await others.create("c", b"c", ttl=TTL, share=ada)
    same(await _there(records, "oxabc"), "oxac", "the least recently used one of the owner gives way, on any replica")
    full = await refused(others.create("d", b"d", ttl=TTL, spare={"a", "c"}, share=ada), ShareFullError)
    kept(full, "with all of its records in spare an owner can create nothing")
    same(await _there(records, "oxacd"), "oxac", "then nothing gives way")
    full = await refused(records.create("a", b"-", ttl=TTL, spare={"a", "c"}, share=ada), RecordExistsError)
    kept(full, "a key that is there is said to be there, also for who has its share")
    await records.create("y", b"y", ttl=TTL, spare={"a", "c"}, share=bob)
    same(await _there(records, "oxyac"), "oxyac", "another owner has its own share")
    await others.delete("a")
    await records.create("d", b"d", ttl=TTL * 9, spare={"c", "d"}, share=ada)
    same(await _there(records, "cd"), "cd", "a deleted record makes room")
    await records.load("d", ttl=TTL * 9)
    await at.advance(TTL + 1)
    await records.create("e", b"e", ttl=TTL, spare=None, share=ada)
    full = await refused(records.create("f", b"f", ttl=TTL, spare=None, share=ada), ShareFullError)
    kept(full, "an expired record makes room, and only that")


@promise
async def a_share_holds_as_long_as_its_records(at: Replicas) -> None:
    """However often they are renewed: no index of an owner's records expires before them."""
    records, others = at.here.records("session"), at.there.records("session")
    share = Share("ada", 2)
    await records.create("a", b"a", ttl=TTL, share=share)
    await records.create("b", b"b", ttl=TTL, share=share)
    for _ in range(12):
        await at.advance(TTL * 0.6)
        await others.load("a", ttl=TTL)
        await records.renew(["b"], ttl=TTL)
    full = await refused(others.create("c", b"c", ttl=TTL, spare=None, share=share), ShareFullError)
    kept(full, "the owner still has its share")
    await at.advance(TTL * 0.6)
    await records.create("c", b"c", ttl=TTL, spare={"b"}, share=share)
    same(await _there(records, "abc"), "bc", "and makes room in it")


@promise
async def with_none_for_spare_nothing_gives_way(at: Replicas) -> None:
    """At the cap, with None for *spare*, nothing is created until a record is deleted or has expired."""
    records = at.here.records("session", capacity=2)
    await records.create("a", b"a", ttl=TTL, spare=None)
    await records.create("b", b"b", ttl=TTL * 3, spare=None)
    await at.advance(TTL - 10)
    full = await refused(records.create("c", b"c", ttl=TTL, spare=None), StoreFullError)
    kept(full, "with nothing that may give way the store is full")
    await at.advance(20)
    await records.create("c", b"c", ttl=TTL, spare=None)
    same(await _there(records, "abc"), "bc", "to be refused renews nothing, and what has expired makes room")
    await records.delete("b")
    await records.create("d", b"d", ttl=TTL, spare=None)
    same(await _there(records, "abcd"), "cd", "and so does what was deleted")
    await records.evict(2, spare=None)
    same(await _there(records, "abcd"), "cd", "None spares all when records are asked to give way as well")


@promise
async def records_give_way_when_asked(at: Replicas) -> None:
    """On request the least recently used give way, but none in *spare*; or the store does nothing, and says so."""
    records = at.here.records("session")
    for key in "abcdef":
        await records.create(key, key.encode(), ttl=TTL)
        await at.advance(1)
    gone = await records.evict(2, spare={"a", "c"})
    if gone == 0:
        same(await _there(records, "abcdef"), "abcdef", "a store that evicts nothing says 0")
        return
    same(gone, 2, "as many give way as asked for")
    same(await _there(records, "abcdef"), "acef", "the least recently used ones, and none in spare")
    same(await records.evict(10, spare={"a"}), 3, "no more give way than there are, and the number is told")
    same(await _there(records, "abcdef"), "a", "what is in spare stays")


@promise
async def records_expire(at: Replicas) -> None:
    """A record past its deadline is gone for every verb, and not counted."""
    records, others = at.here.records("session"), at.there.records("session")
    await records.create("short", b"1", ttl=TTL)
    await records.create("long", b"2", ttl=TTL * 3)
    await at.advance(TTL - 10)
    same(await records.count(), 2, "a record lives until its deadline")
    await at.advance(20)
    same(await records.count(), 1, "what has expired is not counted")
    same(await others.load("short", ttl=TTL), None, "an expired record is not loaded")
    kept(not await records.save("short", b"3", ttl=TTL, expected=b"1"), "nor saved")
    kept(not await records.delete("short"), "nor deleted")
    same(await others.load("long", ttl=TTL), b"2", "another record's deadline is its own")


@promise
async def load_renews(at: Replicas) -> None:
    """What is loaded lives for the TTL given, from now on; loading does not revive."""
    records, others = at.here.records("session"), at.there.records("session")
    await records.create("a", b"1", ttl=TTL)
    for store in (records, others, records):
        await at.advance(TTL * 0.6)
        same(await store.load("a", ttl=TTL), b"1", "load renews")
    await records.load("a", ttl=TTL / 10)
    await at.advance(TTL / 5)
    same(await records.load("a", ttl=TTL), None, "and gives the TTL it is called with, also a shorter one")
    same(await records.load("unknown", ttl=TTL), None, "an unknown record is not loaded")


@promise
async def renew_keeps_alive(at: Replicas) -> None:
    """What is renewed lives for the TTL given, from now on."""
    records, others = at.here.records("session"), at.there.records("session")
    for key in "abc":
        await records.create(key, key.encode(), ttl=TTL / 2)
    for store in (records, others, records):
        await at.advance(TTL * 0.4)
        await store.renew(["a", "b"], ttl=TTL / 2)
    same(await _there(records, "abc"), "ab", "renew keeps alive what it names, and nothing else")
    many = [str(number) for number in range(1_500)]
    await records.renew({*many, "a"}, ttl=TTL * 2)
    await records.renew([], ttl=TTL)
    same(await records.count(), 2, "renewing what is not there creates nothing")


@promise
async def nothing_revives(at: Replicas) -> None:
    """What was deleted or has expired stays away, whoever renews, loads or saves it."""
    records, others = at.here.records("session"), at.there.records("session")
    await records.create("deleted", b"1", ttl=TTL)
    await records.create("expired", b"1", ttl=TTL)
    await others.delete("deleted")
    await at.advance(TTL + 1)
    for store in (records, others):
        await store.renew(["deleted", "expired"], ttl=TTL)
        for key in ("deleted", "expired"):
            kept(not await store.save(key, b"2", ttl=TTL, expected=b"1"), f"save does not revive what is {key}")
            same(await store.load(key, ttl=TTL), None, f"renew does not revive what is {key}")
    same(await records.count(), 0, "nothing is left")


@promise
async def save_compares_and_sets(at: Replicas) -> None:
    """Save replaces exactly what the caller has seen, and renews; else it does nothing at all."""
    records, others = at.here.records("session"), at.there.records("session")
    await records.create("a", b"1", ttl=TTL)
    kept(await records.save("a", b"2", ttl=TTL, expected=b"1"), "save replaces what is expected")
    kept(not await others.save("a", b"3", ttl=TTL, expected=b"1"), "but not what somebody else has changed")
    same(await others.load("a", ttl=TTL), b"2", "and then leaves it as it is")
    kept(await records.save("a", b"2", ttl=TTL, expected=b"2"), "a save may change nothing")
    for almost in (b"", b"2 ", b"\0"):
        kept(not await records.save("a", b"-", ttl=TTL, expected=almost), f"{almost!r} is not b'2'")
    kept(not await records.save("unknown", b"1", ttl=TTL, expected=b""), "save creates nothing")
    same(await records.load("unknown", ttl=TTL), None, "save creates nothing")
    await at.advance(TTL * 0.6)
    await records.save("a", b"4", ttl=TTL, expected=b"2")
    await at.advance(TTL * 0.6)
    kept(not await records.save("a", b"-", ttl=TTL, expected=b"no"), "a failed save")
    same(await records.load("a", ttl=TTL / 2), b"4", "save renews")
    await at.advance(TTL * 0.4)
    await records.save("a", b"-", ttl=TTL, expected=b"no")
    await at.advance(TTL * 0.4)
    same(await records.load("a", ttl=TTL), None, "a save that failed does not renew")


@promise
async def racing_saves_have_one_winner(at: Replicas) -> None:
    """Of eight that replace the same bytes at once, one succeeds."""
    await at.here.records("session").create("a", b"", ttl=TTL)
    won: list[bytes] = []

    async def race(store: Store, record: bytes) -> None:
        if await store.records("session").save("a", record, ttl=TTL, expected=b""):
            won.append(record)

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(race, (at.here, at.there)[number % 2], b"%d" % number)
    same(len(won), 1, "one of racing saves wins")
    same(await at.there.records("session").load("a", ttl=TTL), won[0], "and what it wrote is what is kept")


@promise
async def delete_says_whether_it_was_there(at: Replicas) -> None:
    """Delete is idempotent, and of several that delete at once one is told that it was there."""
    records, others = at.here.records("session"), at.there.records("session")
    await records.create("a", b"1", ttl=TTL)
    kept(await others.delete("a"), "delete says that the record was there")
    kept(not await records.delete("a"), "and that it was not")
    kept(not await records.delete("unknown"), "and that it never was")
    await records.create("a", b"1", ttl=TTL)
    told: list[bool] = []

    async def race(store: RecordStore) -> None:
        told.append(await store.delete("a"))

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(race, (records, others)[number % 2])
    same(sorted(told), [False] * 7 + [True], "one of racing deletes is told that it was there")


@promise
async def kinds_are_apart(at: Replicas) -> None:
    """The same key in two kinds is two records; a kind's capacity is its own."""
    sessions, handles = at.here.records("session", capacity=2), at.here.records("handle")
    await sessions.create("a", b"session", ttl=TTL)
    await handles.create("a", b"handle", ttl=TTL * 3)
    for key in "bcd":
        await handles.create(key, b"handle", ttl=TTL * 3)
    same(await at.there.records("session").load("a", ttl=TTL), b"session", "a kind has its own records")
    same(await at.there.records("handle").load("a", ttl=TTL * 3), b"handle", "a kind has its own records")
    same((await sessions.count(), await handles.count()), (1, 4), "a kind is counted, and bounded, on its own")
    await sessions.delete("a")
    await sessions.renew(["b"], ttl=TTL)
    same(await handles.load("a", ttl=TTL * 3), b"handle", "a kind is deleted from on its own")
    await at.advance(TTL * 2)
    same(await handles.count(), 4, "a kind has its own deadlines")


@promise
async def keys_and_records_are_opaque(at: Replicas) -> None:
    """A key is any string and a record any bytes, the empty ones too; nothing in them means anything."""
    records, others = at.here.records("session"), at.there.records("session")
    for key in ODD_KEYS:
        await records.create(key, key.encode(), ttl=TTL)
    same(await records.count(), len(ODD_KEYS), "different keys are different records")
    for key in ODD_KEYS:
        same(await others.load(key, ttl=TTL), key.encode(), f"the record of {key!r}")
    await records.renew(ODD_KEYS, ttl=TTL)
    for key in ODD_KEYS:
        kept(await others.delete(key), f"the record of {key!r} is deleted")
    same(await records.count(), 0, "and nothing else was there")
    await records.create("a", b"first", ttl=TTL)
    before = b"first"
    for record in ODD_BYTES:
        kept(await others.save("a", record, ttl=TTL, expected=before), f"{before[:9]!r} is as it was saved")
        same(await records.load("a", ttl=TTL), record, "bytes come back as they were saved")
        before = record


@promise
async def every_record_verb_is_a_checkpoint(at: Replicas) -> None:
    """Each verb lets other tasks run and can be cancelled, also when there is nothing to wait for."""
    records = at.here.records("session", capacity=1)
    with assert_checkpoints():
        await records.create("a", b"1", ttl=TTL)
    with assert_checkpoints():
        await refused(records.create("a", b"1", ttl=TTL), RecordExistsError)
    with assert_checkpoints():
        await refused(records.create("b", b"1", ttl=TTL, spare={"a"}), StoreFullError)
    for key in ("a", "unknown"):
        with assert_checkpoints():
            await records.load(key, ttl=TTL)
        with assert_checkpoints():
            await records.save(key, b"1", ttl=TTL, expected=b"1")
        with assert_checkpoints():
            await records.save(key, b"2", ttl=TTL, expected=b"0")
        with assert_checkpoints():
            await records.renew([key], ttl=TTL)
        with assert_checkpoints():
            await records.delete(key)
    with assert_checkpoints():
        await records.renew([], ttl=TTL)
    with assert_checkpoints():
        await records.count()
    with assert_checkpoints():
        await records.evict(1)
    with assert_checkpoints():
        await at.here.ping()


async def _there(records: RecordStore, keys: str) -> str:
    """Which of *keys* there are; each of them is used by this."""
    return "".join([key for key in keys if await records.load(key, ttl=TTL) is not None])
