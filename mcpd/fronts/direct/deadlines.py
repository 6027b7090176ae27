"""Every limit of time in one place: connections say until when they wait, and one task looks who is late."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, Protocol

import trio

if TYPE_CHECKING:
    from collections.abc import Collection

NEVER: Final = inf


class Limited(Protocol):
    """What may wait until its deadline."""

    deadline: float
    """On Trio's clock; `NEVER` while there is none."""

    def expire(self) -> None:
        """It has passed. Does not wait."""
        ...


async def enforce(limited: Collection[Limited], *, every: float) -> None:
    """Expire what is late, until cancelled.

    Args:
      limited: whose members come and go.
      every: seconds between two looks, so a deadline is missed by that much at most. Looking at ten thousand takes less
      than a millisecond; a timer for each would cost more with every request.
    """
    while True:
        await trio.sleep(every)
        now = trio.current_time()
        for member in limited:
            if member.deadline <= now:
                member.expire()
