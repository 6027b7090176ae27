"""What becomes of changes while the bus is away."""

import logging

import pytest
import trio
from trio.testing import MockClock

from mcpd import Server
from mcpd.server.changes import Change
from mcpd.sessions import subscriptions
from mcpd.sessions.subscriptions import Subscriptions
from mcpd_stores.memory import MemoryStore
from tests.stores.flaky import FlakyStore, Outage


async def test_no_more_is_kept_for_later_than_there_may_be_at_once(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "mcpd.sessions")
    monkeypatch.setattr(subscriptions, "_MAX_PENDING", 50)
    outage = Outage("bus.publish")
    store = FlakyStore(MemoryStore(), outage)
    told = Subscriptions(Server("s"), store.bus)
    async with trio.open_nursery() as nursery:
        await nursery.start(told.run)
        for number in range(40 * 5):
            told.tell(Change("resource", f"a://{number}"))
            if number % 40 == 39:
                await trio.sleep(0.1)
        await trio.sleep(10)
        async with store.bus.subscribe(subscriptions._TOPIC) as arriving:
            outage.down.clear()
            outage.seen.clear()
            await trio.sleep(2)
            assert arriving.statistics().current_buffer_used == 50
        assert outage.seen.count("bus.publish") == 50
        nursery.cancel_scope.cancel()
