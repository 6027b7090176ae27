"""The chaos run, two minutes of it; `python -m tests.chaos` is the long one."""

import pytest

from tests.chaos import chaos


@pytest.mark.chaos
@pytest.mark.parametrize("lose_data", [False, True], ids=["data stays", "data is lost"])
async def test_every_call_ends_once_and_nothing_is_left(lose_data: bool) -> None:
    report = await chaos(60.0, seed=4 + lose_data, clients=8, lose_data=lose_data)
    print("\n".join(report.lines()))
    assert not report.wrong
    assert sum(report.outcomes["call"].values()) > 50
    assert report.outcomes["elicit"]["answered"] > 10
    assert report.outcomes["resume"]["answered"] > 10
