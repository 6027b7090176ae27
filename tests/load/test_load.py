"""The load, short enough for CI; `python -m tests.load` is the long one."""

import pytest

from tests.load.run import load


@pytest.mark.load
@pytest.mark.parametrize(
    ("front", "store"), [("direct", "redis"), ("hypercorn", "memory")], ids=["direct, Redis", "hypercorn, memory"]
)
def test_a_server_is_afterwards_what_it_was_before(front: str, store: str) -> None:
    report = load(15.0, "1", front=front, store=store, clients=20, processes=2, warm_up=5.0, rate=40.0)
    print("\n".join(report.lines()))
    assert not report.wrong
    for action in ("quick", "slow", "ask", "resume, closed by the server", "resume, after a reset"):
        assert report.answered(action) > 0, action
    for way in ("politely", "without DELETE", "cancelled", "reset", "silent", "deaf"):
        assert report.left[way] > 0, way
    assert any("killed" in way for way in report.left)
