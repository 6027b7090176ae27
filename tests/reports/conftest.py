"""Fixtures of the reports."""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from trio.abc import Clock
from trio.testing import MockClock

from tests.harness import living
from tests.reports.rig import PER_REQUEST, Rig
from tests.reports.storage import InMemory, InRedis, Storage
from tests.stores.redis_server import RedisServer, server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    with server() as one:
        yield one


@pytest.fixture(params=["memory", "redis"])
def storage(request: pytest.FixtureRequest) -> Storage:
    """Each store in turn; `tests.reports.storage.in_memory` leaves the second one out."""
    return InMemory() if request.param == "memory" else InRedis(request.getfixturevalue("redis_server"))


@pytest.fixture
def clock(storage: Storage) -> Clock | None:
    """For the signature of each test with a rig: the mock clock in memory, the real one on Redis, which has its own."""
    return MockClock(autojump_threshold=0) if isinstance(storage, InMemory) else None


@pytest.fixture
def rig(storage: Storage) -> Rig:
    """A server that nobody has called yet."""
    return Rig(storage)


@pytest.fixture
def leftovers(no_gc: None) -> Callable[[], dict[str, int]]:
    """How many objects of which class have outlived the exchange they were made for, without a garbage collector."""
    before = Counter(living(*PER_REQUEST))  # what the tracebacks of failed tests hold
    return lambda: dict(Counter(living(*PER_REQUEST)) - before)
