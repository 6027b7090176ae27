"""What the Redis store leaves in Redis: names, TTLs, memory, round trips; and what it takes two replicas to see."""

import secrets

import msgspec
import pytest
import redis
import trio

from mcpd.errors import StoreFullError
from mcpd.ports import Inspectable
from mcpd.protocol.types import ClientCapabilities, Implementation
from mcpd.sessions.record import SessionRecord, encode_record
from tests.stores.redis_server import RedisServer, calls, keys_without_ttl, running, server, shift, until

TTL = 100.0
MAX_BYTES_PER_SESSION = 1024


class Secrets:
    """What must not be found in the name of a key, nor anywhere else in Redis."""

    session = secrets.token_urlsafe(18)
    owner = f"user-{secrets.token_hex(8)}"


def names(client: "redis.Redis", prefix: str) -> set[str]:
    return {key.decode() for key in client.scan_iter(f"{{{prefix}}}:*", count=1000)}


def prefix_of(url: str) -> str:
    return url.partition("prefix=")[2].partition("&")[0]


# -------------------------------------------------------------------------------------------------------- keys and TTLs


async def test_every_key_has_a_ttl_after_every_step(redis_server: RedisServer) -> None:
    url = redis_server.url()
    with redis_server.client() as client:
        client.flushall()

        def check() -> None:
            assert keys_without_ttl(client) == []

        async with running(url) as (store,):
            records = store.records("session", capacity=3)
            check()
            for key in "abcde":
                await records.create(key, b"1", ttl=TTL)
                check()
            await records.load("e", ttl=TTL * 3)
            check()
            await store.refresh()
            check()
            await records.save("e", b"2", ttl=TTL * 5, expected=b"1")
            check()
            await records.renew(["d", "e", "unknown"], ttl=TTL * 7)
            check()
            await records.count()
            check()
            await store.events.append("e", "1", b"x")
            check()
            await store.events.append("nobody", "1", b"x")
            check()
            await store.events.read("e", "1", after="1")
            await store.events.forget("e")
            check()
            for key in "abcdef":
                await records.delete(key)
                check()
                # Its call goes on, and has something to say.
                await store.events.append(key, "1", b"x")
                check()
                await records.renew([key], ttl=TTL)
                await records.load(key, ttl=TTL)
                await store.refresh()
                check()
            await store.ping()
        check()
        shift(client, TTL * 20)
        assert client.dbsize() == 0


async def test_the_sets_outlive_what_is_in_them(redis_server: RedisServer) -> None:
    url = redis_server.url()
    with redis_server.client() as client:
        async with running(url) as (store,):
            records = store.records("session")
            sets = [f"{{{prefix_of(url)}}}:session{end}" for end in ("", ":used")]
            await records.create("a", b"1", ttl=1)
            for use in (
                records.load("a", ttl=1000),
                records.save("a", b"2", ttl=20_000, expected=b"1"),
                records.renew(["a"], ttl=300_000),
            ):
                await use
                await store.refresh()
                longest = max(client.pttl(key) for key in names(client, prefix_of(url)) if key not in sets)
                assert all(client.pttl(key) > longest for key in sets)


async def test_names_tell_nothing(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        client.flushall()
        async with running(redis_server.url()) as (store,):
            key = f"{Secrets.owner}.{Secrets.session}"
            await store.records("session").create(key, b"1", ttl=TTL)
            await store.records("session").renew([key], ttl=TTL)
            await store.events.append(key, "1", b"x")
            found = b"\n".join(
                list(client.scan_iter())
                + [member for name in client.scan_iter(_type="zset") for member in client.zrange(name, 0, -1)]
            )
            assert len(found.splitlines()) >= 7
            for secret in (Secrets.owner, Secrets.session, Secrets.session[:12]):
                assert secret.encode() not in found


async def test_applications_with_different_prefixes_do_not_see_each_other(redis_server: RedisServer) -> None:
    async with running(redis_server.url(), redis_server.url()) as (one, two):
        await one.records("session").create("a", b"1", ttl=TTL)
        id_ = await one.events.append("a", "1", b"x")
        assert await two.records("session").load("a", ttl=TTL) is None
        assert await two.records("session").count() == 0
        assert await two.events.read("a", "1", after=id_) is None
        async with two.bus.subscribe("t") as messages:
            await one.bus.publish("t", b"1")
            await two.bus.publish("t", b"2")
            assert await messages.receive() == b"2"


@pytest.mark.parametrize("kind", ["", "Session", "a:b", "events", "bus", "x" * 40])
async def test_a_kind_is_a_short_name(redis_server: RedisServer, kind: str) -> None:
    async with running(redis_server.url()) as (store,):
        with pytest.raises(ValueError, match="short name"):
            store.records(kind)


# ----------------------------------------------------------------------------------------------- round trips and memory


async def test_a_load_is_one_command(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        async with running(redis_server.url()) as (store,):
            records = store.records("session")
            await records.create("a", b"1", ttl=TTL)
            client.config_resetstat()
            for _ in range(100):
                await records.load("a", ttl=TTL)
            assert calls(client, "getex") == 100
            assert calls(client, "evalsha") <= 2  # what the second brings, for all loads together
            assert sum(int(stat["calls"]) for stat in client.info("commandstats").values()) < 120


async def test_creating_and_saving_are_one_command_each(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        async with running(redis_server.url()) as (store,):
            records = store.records("session", capacity=1)
            await records.create("a", b"1", ttl=TTL)
            await records.save("a", b"2", ttl=TTL, expected=b"1")
            await records.delete("a")
            client.config_resetstat()
            await records.create("a", b"1", ttl=TTL)
            await records.save("a", b"2", ttl=TTL, expected=b"1")
            await records.delete("a")
            assert calls(client, "evalsha") == 3
            assert calls(client, "eval") == 0


async def test_an_idle_session_takes_a_kibibyte_at_most() -> None:
    number = 3000
    record = encode_record(
        SessionRecord(
            "2025-11-25",
            msgspec.convert(
                {"sampling": {}, "elicitation": {"form": {}}, "roots": {"listChanged": True}}, ClientCapabilities
            ),
            Implementation(name="claude-desktop", version="1.25.4", title="Claude Desktop"),
            initialized=True,
        )
    )
    # With the allocator that Redis is used with; the Valkey from PyPI has another.
    with server() as one, one.client() as client:
        async with running(one.url()) as (store,):
            records = store.records("session", capacity=number)
            before = client.info("memory")["used_memory"]
            for index in range(number):
                key = secrets.token_urlsafe(18)
                await records.create(key, record, ttl=TTL * 100)
                if index % 100 == 0:
                    await records.renew([key], ttl=TTL * 100)
                # What most clients do first: open the stream, which is primed with an event.
                await store.events.append(key, "0", b"")
            assert await records.count() == number
            each = (client.info("memory")["used_memory"] - before) / number
            assert each <= MAX_BYTES_PER_SESSION, f"{each:.0f} bytes"
            keys = {key.partition(b":")[2].partition(b":")[0]: key for key in client.scan_iter(count=10_000)}
            assert client.memory_usage(keys[b"events"]) < 200


# --------------------------------------------------------------------------------------------------------- two replicas


async def test_what_another_replica_has_in_use_does_not_give_way(redis_server: RedisServer) -> None:
    url = redis_server.url()
    async with running(url, url) as (one, two):
        here, there = (store.records("session", capacity=3) for store in (one, two))
        for key in "abc":
            await here.create(key, b"1", ttl=TTL)
        # The others have been used since; but a call of "a" is running there.
        await there.renew(["a"], ttl=TTL)
        await here.load("b", ttl=TTL)
        await here.load("c", ttl=TTL)
        await here.create("d", b"1", ttl=TTL, spare={"b"})
        assert [await here.load(key, ttl=TTL) for key in "abcd"] == [b"1", b"1", None, b"1"]
        await there.renew(["b", "d"], ttl=TTL)
        with pytest.raises(StoreFullError, match="All 3 records are in use"):
            await here.create("e", b"1", ttl=TTL)
        # It is over there, and nobody has renewed them since.
        with redis_server.client() as client:
            shift(client, TTL / 2)
        await here.create("e", b"1", ttl=TTL)
        assert here.dropped.evicted == 2


async def test_what_was_just_used_elsewhere_does_not_give_way(redis_server: RedisServer) -> None:
    url = redis_server.url()
    with redis_server.client() as client:
        async with running(url, url) as (one, two):
            here, there = (store.records("session", capacity=2) for store in (one, two))
            for key in "ab":
                await here.create(key, b"1", ttl=TTL)
                shift(client, 1)
            # The sets will hear of this within a second. That is too late.
            await there.load("a", ttl=TTL)
            await here.create("c", b"1", ttl=TTL)
            assert [await here.load(key, ttl=TTL) for key in "abc"] == [b"1", None, b"1"]


async def test_nothing_gives_way_to_who_spares_all(redis_server: RedisServer) -> None:
    async with running(redis_server.url()) as (store,):
        records = store.records("handle", capacity=1)
        await records.create("a", b"1", ttl=TTL)
        with pytest.raises(StoreFullError):
            await records.create("b", b"1", ttl=TTL, spare=None)
        with redis_server.client() as client:
            shift(client, TTL + 1)
        await records.create("b", b"1", ttl=TTL, spare=None)


async def test_a_session_that_gives_way_takes_its_events_along(redis_server: RedisServer) -> None:
    async with running(redis_server.url()) as (store,):
        records = store.records("session", capacity=1)
        await records.create("a", b"1", ttl=TTL)
        id_ = await store.events.append("a", "1", b"")
        await records.create("b", b"1", ttl=TTL)
        assert await store.events.read("a", "1", after=id_) is None


async def test_a_lower_capacity_is_respected_at_the_next_start(redis_server: RedisServer) -> None:
    url = redis_server.url()
    async with running(url) as (store,):
        for number in range(20):
            await store.records("session", capacity=20).create(str(number), b"", ttl=TTL)
    async with running(url) as (store,):
        records = store.records("session", capacity=5)
        await records.create("new", b"", ttl=TTL)
        assert await records.count() == 5
        assert records.dropped == (0, 16)


async def test_the_sets_do_not_keep_what_has_expired(redis_server: RedisServer) -> None:
    url = redis_server.url()
    with redis_server.client() as client:
        async with running(url) as (store,):
            records = store.records("session", capacity=10_000)
            for number in range(100):
                await records.create(f"old {number}", b"", ttl=TTL)
            await records.create("long", b"", ttl=TTL * 10)
            shift(client, TTL + 1)
            for number in range(60):
                await records.create(f"new {number}", b"", ttl=TTL)
            for end in ("", ":used"):
                assert client.zcard(f"{{{prefix_of(url)}}}:session{end}") == 61
            assert records.dropped == (100, 0)
            assert await records.count() == 61
            shift(client, TTL)
            assert await records.count() == 1
            assert records.dropped == (160, 0)


async def test_sets_that_were_lost_are_made_again(redis_server: RedisServer) -> None:
    # Somebody's FLUSH, or a Redis that evicts what it likes.
    url = redis_server.url()
    with redis_server.client() as client:
        async with running(url) as (store,):
            records = store.records("session", capacity=2)
            for key in "ab":
                await records.create(key, b"1", ttl=TTL)
            client.delete(*(f"{{{prefix_of(url)}}}:session{end}" for end in ("", ":used")))
            await records.load("a", ttl=TTL)
            await records.renew(["b"], ttl=TTL)
            await store.refresh()
            assert await records.count() == 2
            await records.create("c", b"1", ttl=TTL)
            assert await records.load("a", ttl=TTL) is None


async def test_a_full_store_of_busy_sessions_is_decided_quickly(redis_server: RedisServer) -> None:
    async with running(redis_server.url()) as (store,):
        records = store.records("session", capacity=2000)
        keys = [str(number) for number in range(2000)]
        for start in range(0, 2000, 200):  # not all at once, or the last would have no answer in time on a busy machine
            async with trio.open_nursery() as nursery:
                for key in keys[start : start + 200]:
                    nursery.start_soon(lambda key=key: records.create(key, b"", ttl=TTL))
        await records.renew(keys[:1000], ttl=TTL)
        with trio.fail_after(5):
            with pytest.raises(StoreFullError):
                await records.create("new", b"", ttl=TTL, spare=set(keys[1000:]))
            await records.create("new", b"", ttl=TTL, spare=set(keys[1001:]))
        assert await records.load(keys[1000], ttl=TTL) is None


# ------------------------------------------------------------------------------------------------------ looking into it


async def test_pages_miss_nothing_that_is_there_all_the_time(redis_server: RedisServer) -> None:
    async with running(redis_server.url()) as (store,):
        records = store.records("session")
        assert isinstance(records, Inspectable)
        assert await records.page("", limit=10) == ([], "")
        keys = [f"key {number}" for number in range(250)]
        for key in keys:
            await records.create(key, key.encode(), ttl=TTL)
        # Many share one deadline, to the millisecond.
        await records.renew(keys[:200], ttl=TTL)
        seen: list[str] = []
        cursor = ""
        for step in range(100):
            found, cursor = await records.page(cursor, limit=7)
            seen += [kept.record.decode() for kept in found]
            assert all(0 < kept.left <= 2 * TTL and records.name(kept.record.decode()) == kept.name for kept in found)
            if not cursor:
                break
            # What the cursor stands at is used, or deleted, before the next page.
            last = found[-1].record.decode()
            if step % 3 == 0:
                await records.renew([last], ttl=TTL * 2)
            elif step % 3 == 1:
                await records.delete(last)
        assert set(seen) == set(keys)
        assert len(seen) <= 250 + 20  # those that were used come again


async def test_who_looks_uses_nothing(redis_server: RedisServer) -> None:
    url = redis_server.url()
    with redis_server.client() as client:
        async with running(url, url) as (one, two):
            records, sight = one.records("session"), two.records("session")
            await records.create("a", b"1", ttl=TTL)
            shift(client, TTL / 2)
            ((kept,), _) = await sight.page("", limit=10)
            assert kept == (records.name("a"), b"1", pytest.approx(TTL / 2, abs=2))
            found = await sight.peek(kept.name)
            assert found is not None
            assert found.left <= kept.left
            shift(client, TTL / 2 + 1)
            assert await sight.page("", limit=10) == ([], "")
            assert await sight.peek(kept.name) is None
            assert await records.load("a", ttl=TTL) is None


async def test_what_is_removed_takes_its_events_along(redis_server: RedisServer) -> None:
    async with running(redis_server.url()) as (store,):
        records = store.records("session")
        await records.create("a", b"1", ttl=TTL)
        id_ = await store.events.append("a", "1", b"")
        name = records.name("a")
        assert await records.remove(name)
        assert not await records.remove(name)
        assert await store.events.read("a", "1", after=id_) is None
        assert (await records.load("a", ttl=TTL), await records.count()) == (None, 0)


@pytest.mark.parametrize("name", ["", "a", "*", "x" * 22 + "\n", "x" * 23, "{}:session:" + "x" * 22, "é" * 22])
async def test_what_is_no_name_and_no_cursor(name: str, redis_server: RedisServer) -> None:
    async with running(redis_server.url()) as (store,):
        records = store.records("session")
        assert await records.peek(name) is None
        assert not await records.remove(name)
        for cursor in {name, f"1.{name}", f"{name}.{'x' * 22}"} - {""}:
            with pytest.raises(ValueError, match="is no cursor of this store"):
                await records.page(cursor, limit=1)


# --------------------------------------------------------------------------------------------------------------- events


async def test_a_waiter_hears_of_an_event_from_another_replica_at_once(redis_server: RedisServer) -> None:
    url = redis_server.url()
    async with running(url, url) as (one, two):
        first = await one.events.append("s", "1", b"")
        woken = trio.Event()

        async def wait() -> None:
            await two.events.wait("s", "1", after=first)
            woken.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            with redis_server.client() as client:
                await until(lambda: client.pubsub_channels(f"*{prefix_of(url)}*:events:*"))
            # Another stream's event is nothing to them.
            await one.events.append("s", "2", b"")
            await one._link.call("PING")
            await two._subscriptions.call("PING")
            assert not woken.is_set()
            began = trio.current_time()
            await one.events.append("s", "1", b"x")
            await woken.wait()
            assert trio.current_time() - began < 1
        with redis_server.client() as client:
            await two._subscriptions.call("PING")
            assert client.pubsub_channels(f"*{prefix_of(url)}*:events:*") == []


async def test_a_waiter_whose_message_was_lost_looks_for_itself(redis_server: RedisServer) -> None:
    async with running(redis_server.url()) as (store,):
        store.events.poll = 0.1
        first = await store.events.append("s", "1", b"")
        with trio.fail_after(2):
            await store.events.wait("s", "1", after=first)


async def test_a_session_keeps_so_many_bytes_of_events(redis_server: RedisServer) -> None:
    url = redis_server.url("event_bytes=100000")
    with redis_server.client() as client:
        async with running(url) as (store,):
            await store.records("session").create("s", b"", ttl=TTL)
            ids = [await store.events.append("s", str(number % 3), bytes(1000)) for number in range(300)]
            (log,) = (key for key in names(client, prefix_of(url)) if ":events:" in key)
            assert client.memory_usage(log) < 2 * 100_000
            assert await store.events.read("s", "0", after=ids[0]) is None
            found = await store.events.read("s", "0", after=ids[-60])
            assert found is not None
            assert [event.id for event in found[0]] == ids[-57::3]
            assert 200 < store.events.dropped < 240
            # One that is larger than all is there for who is reading now.
            before = await store.events.append("s", "0", b"")
            big = await store.events.append("s", "0", bytes(200_000))
            assert await store.events.read("s", "0", after=before) is None
            assert await store.events.read("s", "0", after=big) == ([], False)


async def test_a_subscriber_hears_again_after_its_connection_was_lost(redis_server: RedisServer) -> None:
    async with running(redis_server.url()) as (store,), store.bus.subscribe("t") as messages:
        with redis_server.client() as client:
            client.client_kill_filter(_type="pubsub")
        with trio.fail_after(5):
            # It is told that something may have been lost; from then on nothing is.
            assert await messages.receive() == b""
            await store.bus.publish("t", b"x")
            assert await messages.receive() == b"x"


async def test_who_lags_behind_is_told_that_something_is_lost(redis_server: RedisServer) -> None:
    async with (
        running(redis_server.url()) as (store,),
        store.bus.subscribe("t") as sleepy,
        store.bus.subscribe("t") as awake,
    ):
        for number in range(10_005):
            await store.bus.publish("t", b"%d" % number)
            assert await awake.receive() == b"%d" % number
        assert [sleepy.receive_nowait() for _ in range(10_000)] == [b"%d" % number for number in range(10_000)]
        assert sleepy.receive_nowait() == b""
        assert store.bus.dropped == 5
        await store.bus.publish("t", b"on")
        assert await sleepy.receive() == b"on"


async def test_the_bus_leaves_nothing_behind(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        async with running(redis_server.url()) as (store,):
            for number in range(30):
                with trio.move_on_after(0 if number % 2 else 10) as scope:
                    async with store.bus.subscribe(str(number % 3)), store.bus.subscribe(str(number % 3)):
                        scope.cancel()
                        await trio.lowlevel.checkpoint()
            await store._subscriptions.call("PING")
            assert store.bus._channels == {}
            assert client.pubsub_channels() == []
