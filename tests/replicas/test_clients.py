"""The official clients, in front of a balancer that gives each of their requests to another replica."""

from collections.abc import Iterator
from functools import partial

import pytest
import trio

from tests.clients.test_clients import CASES, MCP1, MCP2, Case, _check, _command, _environment
from tests.harness import Process, process
from tests.replicas.balancer import balanced
from tests.replicas.group import STATE_KEYS
from tests.stores.redis_server import RedisServer

HERE = [case for case in CASES if case.program in {MCP1, MCP2} and case.arguments[-1] != "asyncio"]


@pytest.fixture(scope="module")
def fixtures(redis_server: RedisServer) -> Iterator[tuple[Process, Process]]:
    serve = partial(process, "tests.fixture_server:server", "--store", redis_server.url(), env=STATE_KEYS)
    with serve() as one, serve() as two:
        yield one, two


@pytest.mark.clients
@pytest.mark.parametrize("case", HERE, ids=lambda case: "-".join((case.script, *case.arguments)))
async def test_client_takes_every_step_with_two_replicas(case: Case, fixtures: tuple[Process, Process]) -> None:
    async with balanced(*fixtures) as balancer:
        command = [*_command(case), balancer.url, *case.arguments]
        await trio.to_thread.run_sync(_check, command, _environment(), case.negotiated, case.steps)
        assert min(balancer.served.values()) >= 10, balancer.served
        assert len(balancer.served) == 2
