"""A Redis that says no: each time the error says why, and what to do about it. And Redis in company."""

from collections.abc import Iterator

import pytest
import trio

from mcpd.errors import StoreError
from mcpd_stores.redis import RedisStore
from tests.stores.redis_server import RedisServer, calls, cluster, raw, replicated, running, sentinel, server, until
from tests.stores.test_redis_link import WITHIN

PERMISSIONS = "+@read +@write +@scripting +@pubsub +@connection +time"  # as the error says


@pytest.fixture(scope="module")
def locked() -> Iterator[RedisServer]:
    users = {
        "mcpd": ["~{app}:*", "resetchannels", "&{app}:*", *PERMISSIONS.split()],
        "reader": ["~*", "allchannels", "+@read", "+@connection"],
        "stranger": ["~{other}:*", "allchannels", *PERMISSIONS.split()],
        "mute": ["~*", "resetchannels", "+@all"],
    }
    with server() as one, one.client() as client:
        raw(client, "ACL", "SETUSER", "default", "resetpass", ">secret")
        for user, rules in users.items():
            raw(client, "ACL", "SETUSER", user, "reset", "on", ">pw", *rules)
        yield one


@pytest.mark.parametrize("login", ["", "mcpd:wrong@", ":wrong@", "nobody:pw@"])
async def test_who_cannot_log_in_is_told_where_the_password_goes(locked: RedisServer, login: str) -> None:
    with pytest.raises(StoreError, match=r"Cannot connect to redis://.*wrong user name or password") as found:
        await RedisStore(locked.url(login=login)).run()
    assert "pw" not in str(found.value).replace("wrong", "")


@pytest.mark.parametrize("user", ["reader", "stranger", "mute"])
async def test_who_lacks_a_permission_is_told_at_the_start(locked: RedisServer, user: str) -> None:
    with pytest.raises(StoreError, match=r"ACL SETUSER <user> ~\{<prefix>\}:\*"):
        await RedisStore(f"redis://{user}:pw@{locked.address}?prefix=app").run()


async def test_the_permissions_that_the_error_names_are_enough(locked: RedisServer) -> None:
    async with running(f"redis://mcpd:pw@{locked.address}?prefix=app") as (store,):
        records = store.records("session", capacity=1)
        await records.create("a", b"1", ttl=60)
        await records.create("b", b"1", ttl=60)
        await records.save("b", b"2", ttl=60, expected=b"1")
        await store.refresh()
        assert await records.count() == 1


async def test_a_password_that_changes_is_noticed_when_the_connection_is_made_anew(locked: RedisServer) -> None:
    with locked.client(password="secret") as client:
        raw(client, "ACL", "SETUSER", "passing", "on", ">pw", "~*", "allchannels", "+@all")
        async with running(f"redis://passing:pw@{locked.address}?prefix=app") as (store,):
            raw(client, "ACL", "SETUSER", "passing", "resetpass", ">new")
            await store.ping()
            raw(client, "CLIENT", "KILL", "USER", "passing")
            with pytest.raises(StoreError, match="wrong user name or password"):
                for _ in range(10):
                    await store.ping()
                    await trio.sleep(0.05)
            raw(client, "ACL", "SETUSER", "passing", "resetpass", ">pw")
            with trio.fail_after(2):
                while True:
                    try:
                        await store.ping()
                        break
                    except StoreError:
                        await trio.sleep(0.05)


async def test_a_redis_that_is_not_there_is_said_at_the_start() -> None:
    began = trio.current_time()
    with pytest.raises(StoreError, match=r"Cannot connect to redis://127.0.0.1:1/0: .*Connection refused.*running"):
        await RedisStore("redis://127.0.0.1:1/0").run()
    with pytest.raises(StoreError, match=r"Cannot connect to unix:///nowhere: "):
        await RedisStore("unix:///nowhere").run()
    assert trio.current_time() - began < WITHIN


async def test_full_memory_is_an_error_for_new_records_only() -> None:
    with server("--maxmemory-policy", "noeviction") as one, one.client() as client:
        async with running(one.url()) as (store,):
            records = store.records("session")
            await records.create("a", b"1", ttl=60)
            client.config_set("maxmemory", 1)
            for attempt in (records.create("b", b"1", ttl=60), records.save("a", b"2", ttl=60, expected=b"1")):
                with pytest.raises(StoreError, match="memory is full; raise its maxmemory"):
                    await attempt
            # Who is there already stays and can leave.
            assert await records.load("a", ttl=60) == b"1"
            await records.renew(["a"], ttl=60)
            await store.refresh()
            assert await records.count() == 1
            await store.bus.publish("t", b"")
            assert await records.delete("a")
            client.config_set("maxmemory", 0)
            await records.create("b", b"1", ttl=60)


async def test_a_replica_is_refused_at_the_start_and_noticed_later() -> None:
    with replicated() as (primary, replica), replica.client() as client:
        with pytest.raises(StoreError, match="read-only replica; give the URL of its primary"):
            await RedisStore(replica.url()).run()
        client.replicaof("NO", "ONE")
        async with running(replica.url()) as (store,):
            records = store.records("session")
            await records.create("a", b"1", ttl=60)
            client.replicaof("127.0.0.1", primary.port)
            with pytest.raises(StoreError, match="read-only replica"):
                await records.create("b", b"1", ttl=60)
            client.replicaof("NO", "ONE")
            with trio.fail_after(5):
                while True:
                    try:
                        await records.create("c", b"1", ttl=60)
                        break
                    except StoreError:
                        await trio.sleep(0.05)


async def test_scripts_are_told_again_to_who_has_forgotten_them(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        async with running(redis_server.url()) as (store,):
            records = store.records("session")
            client.script_flush()
            async with trio.open_nursery() as nursery:
                for number in range(20):
                    nursery.start_soon(lambda number=number: records.create(str(number), b"", ttl=60))
            assert await records.count() == 20


async def test_a_redis_that_is_loading_says_so(redis_server: RedisServer) -> None:
    # What it is like for others is in test_redis_link: here only the words.
    from mcpd_stores.redis.replies import ReplyError, explain

    loading = explain(ReplyError("LOADING Redis is loading the dataset in memory"))
    assert "still loading its data" in str(loading)
    inside = "ERR Error running script (call to f_0): @user_script:1: -OOM command not allowed when used memory > ..."
    assert "raise its maxmemory" in str(explain(ReplyError(inside)))
    assert str(explain(ReplyError("ERR syntax error"))) == "Redis answered ERR syntax error"


# -------------------------------------------------------------------------------------------------------------- company


async def test_sentinel_leads_to_the_primary_and_to_the_next_one() -> None:
    with replicated() as (primary, replica), sentinel(primary, "main") as port:
        async with running(f"redis+sentinel://127.0.0.1:1,127.0.0.1:{port}/main?prefix=app") as (store,):
            records = store.records("session")
            async with store.bus.subscribe("t") as messages:
                await records.create("a", b"1", ttl=60)
                with replica.client() as client:
                    await until(lambda: client.keys("{app}:session:*"))
                primary.kill()
                failed = 0
                with trio.fail_after(30):
                    while True:
                        began = trio.current_time()
                        try:
                            assert await records.load("a", ttl=60) == b"1"
                            await records.create("b", b"2", ttl=60)
                            break
                        except StoreError:
                            failed += 1
                            assert trio.current_time() - began < WITHIN
                            await trio.sleep(0.1)
                assert failed
                # The subscription has moved along.
                with trio.fail_after(5):
                    while not messages.statistics().current_buffer_used:
                        await store.bus.publish("t", b"x")
                        await trio.sleep(0.1)


async def test_sentinel_that_does_not_know_the_service_is_said() -> None:
    with replicated() as (primary, _), sentinel(primary, "main") as port:
        store = RedisStore(f"redis+sentinel://127.0.0.1:{port}/other")
        with pytest.raises(StoreError, match="No master found for 'other'"):
            await store.run()


async def test_a_slot_that_moves_to_another_node_is_followed() -> None:
    with cluster() as nodes:
        url = f"redis+cluster://127.0.0.1:1,{nodes[2].address}?prefix=app"
        async with running(url) as (store,):
            records = store.records("session")
            await records.create("a", b"1", ttl=60)
            clients = [node.client() for node in nodes]
            slot = int(raw(clients[0], "CLUSTER", "KEYSLOT", "{app}"))
            ids = [raw(client, "CLUSTER", "MYID").decode() for client in clients]
            source = next(n for n in range(3) if raw(clients[n], "CLUSTER", "COUNTKEYSINSLOT", slot))
            target = (source + 1) % 3
            raw(clients[target], "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
            raw(clients[source], "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
            # Half-way: what is not here (any more) is asked for there.
            keys = raw(clients[source], "CLUSTER", "GETKEYSINSLOT", slot, 100)
            assert len(keys) == 3
            raw(clients[source], "MIGRATE", "127.0.0.1", nodes[target].port, "", 0, 5000, "KEYS", *keys)
            assert await records.load("a", ttl=60) == b"1"
            assert await records.load("b", ttl=60) is None
            assert await records.count() == 1
            assert await records.save("a", b"2", ttl=60, expected=b"1")
            for client in (clients[target], clients[source], clients[3 - source - target]):
                raw(client, "CLUSTER", "SETSLOT", slot, "NODE", ids[target])
            # Moved: the commands of now, and all later ones, go there.
            loaded: list[bytes | None] = []

            async def load() -> None:
                loaded.append(await records.load("a", ttl=60))

            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    nursery.start_soon(load)
            assert loaded == [b"2"] * 50
            before = [calls(clients[source], "evalsha"), calls(clients[target], "evalsha")]
            await records.create("b", b"1", ttl=60)
            assert [calls(clients[source], "evalsha"), calls(clients[target], "evalsha")] == [before[0], before[1] + 1]
            for client in clients:
                client.close()


async def test_one_is_not_the_other() -> None:
    with cluster() as nodes, pytest.raises(StoreError, match=r"part of a cluster; use redis\+cluster://"):
        # Of two nodes one at least does not have the slot.
        for node in nodes[:2]:
            async with running(f"redis://{node.address}?prefix=app"):
                pass
    with server() as one, pytest.raises(StoreError, match="cluster support disabled"):
        await RedisStore(f"redis+cluster://{one.address}").run()
