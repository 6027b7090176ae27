"""How often each client may do something, on average: token buckets, which are forgotten once they are full again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mcpd.server.principal import Owner

BURST: Final = 10.0
"""Seconds whose worth of tokens a bucket holds; it holds one in any case."""
_ROUNDING: Final = 1e-6
"""Seconds that many small sums may be off."""


class Rate:
    """A token bucket for each owner. All that is kept of one is the time at which it will be full again."""

    __slots__ = ("_full_at", "_interval", "_tolerance")

    def __init__(self, per_second: float) -> None:
        """Args: *per_second*: tokens that come back in a second."""
        self._interval = 1 / per_second
        self._tolerance = max(BURST - self._interval, 0.0)
        # In the order of their last use, and each is full at most `BURST` seconds or one interval after that.
        self._full_at: dict[Owner, float] = {}

    def __len__(self) -> int:
        """How many buckets are kept."""
        return len(self._full_at)

    def take(self, owner: Owner, now: float) -> float:
        """Take one token, and return 0; or take none, and return how many seconds there will be none."""
        self._forget(now)
        full_at = max(self._full_at.pop(owner, now), now)
        wait = full_at - now - self._tolerance
        if wait > _ROUNDING:
            self._full_at[owner] = full_at
            return wait
        self._full_at[owner] = full_at + self._interval
        return 0.0

    def _forget(self, now: float) -> None:
        # Two for each one that comes: so none is kept much longer than it says something.
        for _ in range(2):
            oldest = next(iter(self._full_at), None)
            if oldest is None or self._full_at[oldest] > now:
                return
            del self._full_at[oldest]
