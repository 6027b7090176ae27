"""The Redis store keeps the contract of `mcpd.ports.Store`, on the oldest Redis that it supports and on Valkey.

Time passes in Redis, so here `advance` shortens what is left to each key, and a key without TTL fails the check.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from mcpd.ports import Store
from mcpd.testing import store_contract
from mcpd_stores.redis import RedisStore
from tests.stores.redis_server import RedisServer, cluster, keys_without_ttl, shift


@pytest.mark.parametrize("check", store_contract.CHECKS, ids=lambda check: check.__name__)
async def test_store(any_server: RedisServer, check: store_contract.Check) -> None:
    await keeps(check, any_server, any_server.url())


async def test_a_cluster_keeps_the_contract_too() -> None:
    with cluster() as nodes:
        for number, check in enumerate(store_contract.CHECKS):
            # Each prefix is in another slot, so every node has its turn.
            owner = nodes[number % 3]
            prefix = next(
                name
                for name in (f"app{n}" for n in range(1000))
                if _slot(name) in range((number % 3) * 5461 + 1, (number % 3 + 1) * 5461)
            )
            await keeps(check, owner, f"redis+cluster://{nodes[0].address}?prefix={prefix}")


async def keeps(check: store_contract.Check, server: RedisServer, url: str) -> None:
    stores: list[RedisStore] = []
    with server.client() as client:
        client.flushall()

        @asynccontextmanager
        async def opened() -> AsyncGenerator[tuple[Store, Store], None]:
            stores[:] = RedisStore(url), RedisStore(url)
            yield stores[0], stores[1]
            assert keys_without_ttl(client) == []

        async def advance(seconds: float) -> None:
            # A store does this every second by itself.
            for store in stores:
                await store.refresh()
            shift(client, seconds)

        await check(opened, advance)


def _slot(prefix: str) -> int:
    from redis.crc import key_slot

    slot: int = key_slot(prefix.encode())
    return slot
