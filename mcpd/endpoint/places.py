"""What all clients share, and how much of it each of them may take at once: calls in flight, open streams."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from mcpd.errors import LimitError

if TYPE_CHECKING:
    from collections.abc import Generator

    from mcpd.server.meter import Meter
    from mcpd.server.principal import Owner
    from mcpd.settings import Settings


class Places:
    """So many places for all, and so many for each. Only who has one now is known here."""

    __slots__ = ("_each", "_most", "_names", "_owners", "_rejected", "_taken", "_what")

    def __init__(self, what: str, settings: Settings, meter: Meter) -> None:
        """Args: *what*: ``calls`` or ``streams``; *settings*: have the bounds; *meter*: counts what is refused."""
        self._what = what
        self._names = (f"max_{what}", f"max_{what}_per_principal")
        self._most: int = getattr(settings, self._names[0])
        self._each = settings.per_principal(what)
        self._rejected = meter.rejected[what]
        self._taken = 0
        self._owners: dict[Owner, int] = {}

    def take(self, owner: Owner, number: int = 1, *, leaving: int = 0) -> None:
        """Take places, all or none; each is to be left again. As many as *leaving* are about to be left already.

        Raises:
          LimitError: there are not so many, or not for *owner*.
        """
        own = self._owners.get(owner, 0) + number
        if self._each is not None and own - leaving > self._each:
            self._rejected["principal"] += 1
            message = f"This client has its share of {self._each} {self._what}; end some, or try again later"
            raise LimitError(message, limit=self._names[1], own=True)
        if self._taken + number - leaving > self._most:
            self._rejected["full"] += 1
            raise LimitError(f"There are too many {self._what}; try again later", limit=self._names[0])
        self._owners[owner] = own
        self._taken += number

    @contextmanager
    def held(self, owner: Owner, *, leaving: int = 0) -> Generator[None]:
        """A place while this is open. Arguments and errors are those of `take`."""
        self.take(owner, leaving=leaving)
        try:
            yield
        finally:
            self.leave(owner)

    def leave(self, owner: Owner, number: int = 1) -> None:
        """Leave places that were taken."""
        self._taken -= number
        # Who took none, for a batch without requests, may not be known any more.
        own = self._owners.get(owner, 0) - number
        if own:
            self._owners[owner] = own
        else:
            self._owners.pop(owner, None)
