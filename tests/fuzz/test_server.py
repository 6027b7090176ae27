"""Hostile messages to a real server for some seconds; `tests.fuzz.server` sends them for hours."""

from tests.fuzz.server import fuzz, servers


async def test_no_message_is_too_much(front: str):
    with servers([front]) as (target,):
        await fuzz([target], 6.0, 3, 1, lambda _: None)
        assert target.outcomes.wrong == []
        assert target.outcomes.statuses["200"] > 20
        assert target.outcomes.statuses["stream"] > 0
        assert target.outcomes.statuses["400"] > 20
