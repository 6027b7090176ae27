"""The shared connection when all is well, when callers leave, and when Redis goes away and comes back."""

import random
import ssl
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import redis
import trio
import trustme
from trio.testing import wait_all_tasks_blocked

from mcpd.errors import StoreError
from mcpd_stores.redis import RedisStore, link
from mcpd_stores.redis.dial import Line
from mcpd_stores.redis.replies import ReplyError
from tests.stores.redis_server import Proxy, RedisServer, proxy, running, server, until

WITHIN = 1.0  # seconds; so soon a caller hears that Redis is away
BACK_WITHIN = 2.0  # seconds; the longest back-off is 0.5, the rest is for a slow machine


@asynccontextmanager
async def through_proxy(
    redis_server: RedisServer, options: str = "", *, delay: float = 0.0
) -> AsyncGenerator[tuple[RedisStore, Proxy]]:
    async with proxy(redis_server.port, delay=delay) as between:
        url = redis_server.url(options).replace(str(redis_server.port), str(between.port))
        async with running(url) as (store,):
            yield store, between


async def eventually_pings(store: RedisStore) -> None:
    with trio.fail_after(BACK_WITHIN):
        while True:
            try:
                await store.ping()
            except StoreError:
                await trio.sleep(0.02)
            else:
                return


# -------------------------------------------------------------------------------------------------------------- sharing


async def test_replies_reach_who_asked_while_callers_are_cancelled(redis_server: RedisServer) -> None:
    # A reply that a cancelled caller no longer waits for must not be taken for the next caller's.
    answered = cancelled = 0

    async def ask(store: RedisStore, number: int) -> None:
        nonlocal answered, cancelled
        rng = random.Random(number)
        for round_ in range(60):
            token = b"%d:%d" % (number, round_)
            with trio.move_on_after(rng.choice([0, 0.005, 0.02, 0.03, 1])):
                assert await store._link.call("ECHO", token) == token
                answered += 1
                continue
            cancelled += 1

    async with through_proxy(redis_server, delay=0.02) as (store, _), trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(ask, store, number)
    assert answered > 500
    assert cancelled > 500
    assert not store._link._sent
    assert not store._link._unsent
    assert store._link._bytes == 0


async def test_what_many_send_goes_out_together(redis_server: RedisServer) -> None:
    async with through_proxy(redis_server, delay=0.05) as (store, _):
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(500):
                nursery.start_soon(store._link.call, "PING")
        assert trio.current_time() - began < 0.5  # one after the other they would take 25 s


async def test_a_command_whose_caller_left_before_it_was_sent_is_not_sent(redis_server: RedisServer) -> None:
    async with running(redis_server.url()) as (store,):
        with trio.CancelScope() as scope:
            scope.cancel()
            await store._link.call("SET", "{never}", "x", "PX", 1000)
        assert await store._link.call("EXISTS", "{never}") == 0
        assert store._link._bytes == 0


async def test_large_and_binary_replies_come_whole(redis_server: RedisServer) -> None:
    async with running(redis_server.url()) as (store,):
        data = random.Random(1).randbytes(3_000_000)
        assert await store._link.call("ECHO", data) == data
        with pytest.raises(ReplyError, match="wrong number of arguments"):
            await store._link.call("ECHO")
        assert await store._link.call("ECHO", b"\r\n$-1\r\n") == b"\r\n$-1\r\n"


async def test_who_finds_no_room_waits_and_then_fails(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_MAX_CALLS", 10)
    async with through_proxy(redis_server, "timeout=0.5", delay=0.1) as (store, between):
        async with trio.open_nursery() as nursery:
            for _ in range(40):
                nursery.start_soon(store.ping)
            await wait_all_tasks_blocked()
            assert len(store._link._sent) + len(store._link._unsent) == 10
        between.black_hole = True
        outcomes: list[str] = []

        async def fail() -> None:
            with pytest.raises(StoreError) as found:
                await store.ping()
            outcomes.append(str(found.value))

        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(40):
                nursery.start_soon(fail)
        assert trio.current_time() - began < 2 * WITHIN
        assert len(outcomes) == 40
        between.black_hole = False
        await eventually_pings(store)
        assert store._link._bytes == 0


async def test_the_socket_of_a_redis_py_connection_is_where_we_take_it_from(redis_server: RedisServer) -> None:
    connection = redis.Connection(port=redis_server.port)
    connection.connect()
    line = Line(connection)
    assert line.socket.getpeername() == ("127.0.0.1", redis_server.port)
    line.close()
    assert line.socket.fileno() == -1


# ------------------------------------------------------------------------------------------------- not running any more


async def test_a_store_that_is_not_running_refuses_at_once() -> None:
    store = RedisStore("redis://127.0.0.1:1")
    with pytest.raises(StoreError, match="not running"):
        await store.records("session").load("a", ttl=1)


async def test_a_store_that_was_closed_lets_nobody_wait(redis_server: RedisServer) -> None:
    failed: list[str] = []

    async def ask(store: RedisStore) -> None:
        with pytest.raises(StoreError) as found:
            await store._link.call("ECHO", "x")
        failed.append(str(found.value))

    async with trio.open_nursery() as nursery, through_proxy(redis_server, "timeout=30") as (store, between):
        between.black_hole = True
        for _ in range(5):
            nursery.start_soon(ask, store)
        await wait_all_tasks_blocked()
    assert failed == ["The Redis store is closed"] * 5
    with pytest.raises(StoreError, match="closed"):
        await store.ping()
    with pytest.raises(StoreError, match="closed"):
        async with store.bus.subscribe("a"):
            pass


# ----------------------------------------------------------------------------------------------------------- going away


async def test_a_killed_redis_is_missed_soon_and_found_again() -> None:
    with server() as one:
        async with running(one.url()) as (store,):
            records = store.records("session")
            await records.create("a", b"1", ttl=60)
            one.kill()
            for _ in range(20):
                began = trio.current_time()
                with pytest.raises(StoreError, match=r"Connection refused|is lost"):
                    await records.load("a", ttl=60)
                assert trio.current_time() - began < WITHIN
            one.start()
            await eventually_pings(store)
            assert await records.load("a", ttl=60) is None  # it kept nothing on disk
            await records.create("a", b"2", ttl=60)  # and has to be told the scripts again
            assert await records.load("a", ttl=60) == b"2"


async def test_while_it_is_away_nobody_waits_in_vain() -> None:
    with server() as one:
        async with running(one.url()) as (store,):
            one.kill()
            with pytest.raises(StoreError):
                await store.ping()
            await trio.sleep(1.5)
            began = time.perf_counter()
            for _ in range(100):
                with pytest.raises(StoreError, match="Connection refused"):
                    await store.ping()
            assert time.perf_counter() - began < WITHIN  # all hundred of them


async def test_a_redis_that_hangs_is_missed_soon_and_found_again() -> None:
    with server() as one:
        async with running(one.url()) as (store,):
            records = store.records("session")
            await records.create("a", b"1", ttl=60)
            one.pause()
            for _ in range(3):
                began = trio.current_time()
                with pytest.raises(StoreError, match=r"answer within 0\.8 s|Cannot connect"):
                    await records.load("a", ttl=60)
                assert trio.current_time() - began < WITHIN
            one.resume()
            await eventually_pings(store)
            assert await records.load("a", ttl=60) == b"1"


async def test_a_redis_that_does_not_read_holds_nobody_up() -> None:
    with server() as one:
        async with running(one.url()) as (store,):
            one.pause()
            longest = 0.0

            async def tick() -> None:
                nonlocal longest
                while True:
                    began = time.perf_counter()
                    await trio.sleep(0.01)
                    longest = max(longest, time.perf_counter() - began)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(tick)
                with pytest.raises(StoreError):
                    await store._link.call("ECHO", bytes(20_000_000))  # more than the socket takes
                nursery.cancel_scope.cancel()
            assert longest < 0.4
            one.resume()
            await eventually_pings(store)


async def test_a_connection_that_is_open_at_one_end_only_is_given_up(redis_server: RedisServer) -> None:
    async with through_proxy(redis_server) as (store, between):
        between.black_hole = True
        before = store._link._scope
        began = trio.current_time()
        with pytest.raises(StoreError, match=r"did not answer within 0\.8 s"):
            await store.ping()
        assert trio.current_time() - began < WITHIN
        between.black_hole = False
        await eventually_pings(store)
        assert store._link._scope is not before


async def test_a_node_that_is_to_be_left_is_left_even_if_it_owes_an_answer(redis_server: RedisServer) -> None:
    async with through_proxy(redis_server) as (store, between):
        between.black_hole = True
        with trio.move_on_after(0.05):
            await store.ping()
        # As after a READONLY, that came before the answer which will not come.
        store._link._leaving = True
        store._link._heard = trio.current_time()
        between.black_hole = False
        before = store._link._scope
        with pytest.raises(StoreError):
            await store.ping()
        await eventually_pings(store)
        assert store._link._scope is not before


async def test_an_idle_connection_is_watched_too(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "SILENCE", 0.1)
    async with through_proxy(redis_server, "timeout=0.2") as (store, between):
        await trio.sleep(0.5)
        assert store._subscriptions._scope is not None
        between.black_hole = True
        # Nobody asks for anything; all the same it is noticed.
        await until(lambda: store._subscriptions._scope is None)
        between.black_hole = False
        await eventually_pings(store)


async def test_what_may_be_repeated_is_repeated_when_the_connection_breaks(redis_server: RedisServer) -> None:
    async with through_proxy(redis_server, "timeout=5", delay=0.1) as (store, between):
        records = store.records("session")
        await records.create("a", b"1", ttl=60)
        done: list[object] = []

        async def load() -> None:
            done.append(await records.load("a", ttl=60))

        async def save() -> None:
            with pytest.raises(StoreError, match="whether the command was executed is not known"):
                await records.save("a", b"2", ttl=60, expected=b"1")
            done.append("not known")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(load)
            nursery.start_soon(save)
            await trio.sleep(0.03)  # both are on their way
            between.cut()
        assert "not known" in done
        assert {b"1", b"2"} & set(done)


async def test_what_was_not_sent_yet_goes_out_on_the_next_connection(redis_server: RedisServer) -> None:
    async with through_proxy(redis_server, "timeout=5") as (store, between):
        between.cut()
        await until(lambda: store._link._scope is None)
        with trio.fail_after(BACK_WITHIN):
            assert await store._link.call("ECHO", "x") == b"x"


async def test_something_else_than_redis_is_recognized() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        store = RedisStore(f"redis://127.0.0.1:{listener.socket.getsockname()[1]}")
        with pytest.raises(StoreError, match="Cannot connect to redis://"):
            await store.run()
        nursery.cancel_scope.cancel()


# ----------------------------------------------------------------------------------------------------------- other ways


async def test_a_unix_socket(redis_server: RedisServer) -> None:
    async with running(f"unix://{redis_server.socket}?prefix=unix&db=3") as (store,):
        await store.records("session").create("a", b"1", ttl=60)
        with redis_server.client(db=3) as client:
            assert client.keys("{unix}:*")
            client.flushdb()


async def test_tls(redis_server: RedisServer) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    async with proxy(redis_server.port, tls=context) as between:
        with authority.cert_pem.tempfile() as ca:
            async with running(f"rediss://localhost:{between.port}?prefix=tls&timeout=30&ssl_ca_certs={ca}") as (
                store,
            ):
                records = store.records("session")
                # Larger than a TLS record, and than our buffer.
                data = random.Random(1).randbytes(1_000_000)
                await records.create("a", data, ttl=60)
                async with trio.open_nursery() as nursery:
                    for _ in range(20):
                        nursery.start_soon(load_same, records, data)
            # Its name is not the one in the certificate.
            store = RedisStore(f"rediss://127.0.0.1:{between.port}?ssl_ca_certs={ca}")
            with pytest.raises(StoreError, match="certificate"):
                await store.run()
            async with running(
                f"rediss://127.0.0.1:{between.port}?prefix=tls&ssl_ca_certs={ca}&ssl_check_hostname=no"
            ) as (store,):
                await store.ping()
        with pytest.raises(StoreError, match="certificate verify failed"):
            await RedisStore(f"rediss://localhost:{between.port}").run()
        async with running(f"rediss://localhost:{between.port}?ssl_cert_reqs=none") as (store,):
            await store.ping()


async def load_same(records: object, data: bytes) -> None:
    assert await records.load("a", ttl=60) == data  # type: ignore[attr-defined]
