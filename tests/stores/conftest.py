"""One Redis and one Valkey for all the tests that leave them as they are."""

from collections.abc import Iterator

import pytest

from tests.stores.redis_server import PROGRAMS, RedisServer, server


@pytest.fixture(scope="session", params=PROGRAMS)
def any_server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    with server(name=request.param) as one:
        yield one


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    with server() as one:
        yield one
