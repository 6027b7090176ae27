"""Lives of sessions beside a model of them; `tests.fuzz.sessions` tries far more."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.effort import examples
from tests.fuzz.life import Step, programs
from tests.fuzz.sessions import on_memory, on_redis
from tests.stores.redis_server import RedisServer, server


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with server() as one:
        yield one


@settings(max_examples=examples(60))
@given(programs(steps=30))
def test_sessions_live_as_the_model_says(program: list[Step]):
    on_memory(program)


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=programs(steps=25))
def test_sessions_in_redis_live_as_the_model_says(redis: RedisServer, program: list[Step]):
    on_redis(redis, program)
