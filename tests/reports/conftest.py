"""Fixtures of the reports."""

from collections import Counter
from collections.abc import Callable

import pytest

from tests.harness import living
from tests.reports.rig import PER_REQUEST, Rig


@pytest.fixture
def rig() -> Rig:
    """A server that nobody has called yet."""
    return Rig()


@pytest.fixture
def leftovers(no_gc: None) -> Callable[[], dict[str, int]]:
    """How many objects of which class have outlived the exchange they were made for, without a garbage collector."""
    before = Counter(living(*PER_REQUEST))  # what the tracebacks of failed tests hold
    return lambda: dict(Counter(living(*PER_REQUEST)) - before)
