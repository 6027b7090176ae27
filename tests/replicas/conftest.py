"""Three replicas on one Redis, for all tests that leave them as they are."""

from collections.abc import Iterator

import pytest

from tests.harness import Process
from tests.replicas.group import replicas
from tests.stores.redis_server import RedisServer, server


@pytest.fixture(scope="package")
def redis_server() -> Iterator[RedisServer]:
    with server() as one:
        yield one


@pytest.fixture(scope="package")
def three(redis_server: RedisServer) -> Iterator[list[Process]]:
    with replicas(3, redis_server.url()) as started:
        yield started
