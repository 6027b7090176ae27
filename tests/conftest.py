"""Fixtures that more than one folder of tests uses."""

import gc
from collections.abc import Iterator

import pytest

from tests.harness import FRONTS
from tests.processes import ServerProcess, fixture_server_process


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: several processes share the tests, and none should be left with one of these at the end."""
    items.sort(key=lambda item: item.get_closest_marker("chaos") is None)


@pytest.fixture(scope="session", params=FRONTS)
def fixture_server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """The fixture server over a real socket, on each front in turn: one process for all, so what a client leaves meets
    the next."""
    with fixture_server_process(env={"MCPD_FRONT": str(request.param)}) as server:
        yield server


@pytest.fixture(params=FRONTS)
def front(request: pytest.FixtureRequest) -> str:
    """Each HTTP front in turn, for `tests.harness.serving`."""
    return str(request.param)


@pytest.fixture
def no_gc() -> Iterator[None]:
    """No garbage collection during the test: what is dropped must be freed at once, without help."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
