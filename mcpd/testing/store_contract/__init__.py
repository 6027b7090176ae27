"""The contract of `mcpd.ports.Store`, as checks that run against any store, after Trio's ``check_two_way_stream``.

With pytest and pytest-trio, a test for each promise::

    @pytest.mark.parametrize("check", store_contract.CHECKS, ids=lambda check: check.__name__)
    async def test_contract(check, autojump_clock):
        async def advance(seconds):
            autojump_clock.jump(seconds)

        await check(open_store, advance)

or all of them in a row, without pytest: ``await store_contract.check_store(open_store, advance=advance)``.

*open_store* opens two stores on one backend that holds nothing yet: two replicas. A store that cannot be shared gives
the same object twice. The checks run `Store.run` themselves. *advance* makes so many seconds pass for what is kept: it
moves Trio's clock, if that is what the store goes by, or shortens what is left to each key.

A promise that is not kept raises ``AssertionError``: the promise, what was expected and what was found. No check waits
for a deadline.
"""

from typing import Final

from mcpd.testing.store_contract import bus, events, records
from mcpd.testing.store_contract.promises import Advance as Advance
from mcpd.testing.store_contract.promises import Check as Check
from mcpd.testing.store_contract.promises import OpenStore as OpenStore

CHECKS: Final[tuple[Check, ...]] = (
    records.create_never_overwrites,
    records.racing_creates_have_one_winner,
    records.the_least_recently_used_gives_way,
    records.spare_records_do_not_give_way,
    records.with_none_for_spare_nothing_gives_way,
    records.an_owner_has_no_more_than_its_share,
    records.a_share_holds_as_long_as_its_records,
    records.records_give_way_when_asked,
    records.records_expire,
    records.load_renews,
    records.renew_keeps_alive,
    records.nothing_revives,
    records.save_compares_and_sets,
    records.racing_saves_have_one_winner,
    records.delete_says_whether_it_was_there,
    records.kinds_are_apart,
    records.keys_and_records_are_opaque,
    records.every_record_verb_is_a_checkpoint,
    events.events_are_read_in_order,
    events.event_ids_are_unique_within_a_session,
    events.events_are_opaque,
    events.unknown_events_are_none,
    events.the_last_event_finishes_its_stream,
    events.wait_wakes_up,
    events.forget_drops_a_session_events,
    events.a_stream_is_bounded,
    events.a_session_takes_its_events_along,
    events.every_event_verb_is_a_checkpoint,
    bus.each_subscriber_gets_each_message_once,
    bus.nothing_comes_after_unsubscribing,
    bus.the_bus_is_a_checkpoint,
    bus.the_store_says_what_it_is,
)
"""Every promise, one check each: ``await check(open_store, advance)``."""


async def check_store(open_store: OpenStore, *, advance: Advance) -> None:
    """Run all `CHECKS`, each on a backend of its own.

    Raises:
      AssertionError: the first promise that is not kept.
    """
    for check in CHECKS:
        await check(open_store, advance)
