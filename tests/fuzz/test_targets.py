"""Each target for a moment, with Hypothesis; `tests.fuzz.coverage` does it for hours."""

import pytest
from hypothesis import given, settings, strategies

from tests.fuzz import targets
from tests.fuzz.effort import examples
from tests.fuzz.target import TARGETS, Target, inputs

_SLOW = {"request": 40}
assert targets.__all__  # which makes them known


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_any_bytes(target: Target):
    for seed in target.seeds:
        target.check(seed)

    @settings(max_examples=examples(_SLOW.get(target.name, 300)))
    @given(strategies.data())
    def check(data: strategies.DataObject) -> None:
        target.check(data.draw(inputs(target), label="input"))

    check()
