"""Signs of life on silent streams, so that neither a proxy nor the client takes them for dead."""

from __future__ import annotations

import itertools
from typing import Final, Protocol

import trio

_AT_ONCE: Final = 50
"""Streams given a sign before others have their turn: thousands that were opened together are silent together."""


class Silent(Protocol):
    """A stream that may have nothing to say for a while."""

    def beat(self) -> None:
        """Give a sign of life. Does not wait."""
        ...


class Heartbeats:
    """One task for all streams: a timer for each would cost as much memory as the rest of it."""

    def __init__(self, every: float) -> None:
        """Args: *every*: seconds of silence after which a sign is due."""
        self._every = every
        # All wait equally long, so the one that was heard of longest ago is the next one due, and stands first.
        self._due: dict[Silent, float] = {}
        self._began = trio.Event()

    def heard(self, stream: Silent) -> None:
        """The stream said something just now."""
        self._due.pop(stream, None)
        self._due[stream] = trio.current_time() + self._every
        if len(self._due) == 1:
            self._began.set()

    def forget(self, stream: Silent) -> None:
        """The stream has ended."""
        self._due.pop(stream, None)

    async def run(self) -> None:
        """Give signs when they are due, until cancelled."""
        while True:
            if not self._due:
                self._began = trio.Event()
                await self._began.wait()
            await trio.sleep_until(next(iter(self._due.values())))
            now = trio.current_time()
            first = itertools.islice(self._due.items(), _AT_ONCE)
            self._beat([stream for stream, due in first if due <= now])

    def _beat(self, silent: list[Silent]) -> None:
        # A method, so that no name in the loop above keeps the last stream alive.
        for stream in silent:
            self.heard(stream)
            stream.beat()
