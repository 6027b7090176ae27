"""Three replicas on one Redis, for all tests that leave them as they are."""

from collections.abc import Iterator

import pytest

from tests.harness import FRONTS, Process
from tests.replicas.group import replicas
from tests.stores.redis_server import RedisServer, server


@pytest.fixture(scope="package")
def redis_server() -> Iterator[RedisServer]:
    with server() as one:
        yield one


@pytest.fixture(scope="package", params=FRONTS)
def three(request: pytest.FixtureRequest, redis_server: RedisServer) -> Iterator[list[Process]]:
    with replicas(3, redis_server.url(), "--front", str(request.param)) as started:
        yield started
