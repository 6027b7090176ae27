"""Random lives of sessions on two replicas, compared with a model, for as long as you like.

    python -m tests.fuzz.sessions --minutes 60 [--store redis] [--seed 1]

On the memory store Trio's mock clock rules; on Redis (`redis-server` must be on PATH) time is let pass by shortening
what its keys have left. Exit status 1 with the shortest program found that goes another way than the model.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

import hypothesis
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcpd_stores.memory import MemoryStore
from mcpd_stores.redis import RedisStore
from tests.fuzz.life import IDLE, Step, live, programs
from tests.harness import Http, mentions
from tests.stores.redis_server import RedisServer, keys_without_ttl, server, shift, until


def on_memory(program: list[Step]) -> None:
    """Two replicas in one process on one memory store."""

    async def settle(_: list[Http], condition: Callable[[], bool]) -> None:
        await wait_all_tasks_blocked()
        assert condition()

    async def let_pass(_: list[Http], seconds: float) -> None:
        await trio.sleep(seconds)

    async def run() -> None:
        store = MemoryStore()
        ids: list[str] = []
        await live(program, (store, store), settle, let_pass, ids)
        assert not mentions(store, ids[0])
        assert (store.events._bytes, store.events._sessions) == (0, {})

    trio.run(run, clock=MockClock(autojump_threshold=0))


def on_redis(redis: RedisServer, program: list[Step]) -> None:
    """Two replicas, each with a connection of its own to a real Redis, in which nothing else is."""

    async def settle(_: list[Http], condition: Callable[[], bool]) -> None:
        await until(condition, within=60.0)

    async def let_pass(https: list[Http], seconds: float) -> None:
        # Step by step, as it goes by: the index hears of what was used, and what is in use is renewed meanwhile.
        with redis.client() as client:
            for _ in range(round(seconds / 5)):
                for store in stores:
                    await store.refresh()
                await trio.to_thread.run_sync(shift, client, 5.0)
                for http in https:
                    sessions, leases = http.endpoint.sessions, http.endpoint.leases
                    await sessions.records.renew(list(sessions._live), ttl=IDLE)
                    assert leases._records is not None
                    await leases._records.renew(list(leases._held), ttl=IDLE)

    # On a busy machine the usual time-out would make an outage, of which the model knows nothing.
    url = redis.url("timeout=30")
    stores = (RedisStore(url), RedisStore(url))
    with redis.client() as client:
        client.flushall()  # what an earlier program has left that went wrong
    trio.run(live, program, stores, settle, let_pass, [])
    with redis.client() as client:
        assert not keys_without_ttl(client)
        shift(client, IDLE + 1)
        left = {key: (client.pttl(key), client.zrange(key, 0, -1)) for key in client.scan_iter()}
        assert not left, left


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--store", choices=("memory", "redis"), default="memory")
    parser.add_argument("--steps", type=int, default=40, help="how long a program may be (%(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="to repeat a run; else a new one")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}")
    # Trio takes tasks in a random order; a run can be repeated only if that is repeated as well.
    hypothesis.register_random(trio._core._run._r)
    trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING = True
    end = time.monotonic() + given.minutes * 60
    run = 0
    with ExitStack() as stack:
        check: Callable[[list[Step]], None] = on_memory
        if given.store == "redis":
            redis = stack.enter_context(server())

            def check(program: list[Step]) -> None:
                on_redis(redis, program)

        while time.monotonic() < end:
            print(
                f"{run} programs of up to {given.steps} steps, {max(0, end - time.monotonic()):.0f} s to go", flush=True
            )

            @hypothesis.seed(seed + run)
            @hypothesis.settings(max_examples=100, database=None, deadline=None, print_blob=False)
            @hypothesis.given(programs(steps=given.steps))
            def batch(program: list[Step]) -> None:
                check(program)

            batch()
            run += 100
    print(f"{run} programs, all as the model says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
