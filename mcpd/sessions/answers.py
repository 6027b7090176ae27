"""Answers of clients that come in at another replica than the one that asked.

The bus brings them at once, but it may lose them: while its connection is being made again, for one. So a question that
is open stands in the store as well, as an empty record; whoever is given the answer puts it there, and who asked looks
for it from time to time. An answer to what nobody asked finds no record, and leaves none. Only stores that replicas
share need this.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from mcpd.errors import StoreError
from mcpd.protocol.jsonrpc import Message, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mcpd.ports import Store
    from mcpd.protocol.jsonrpc import RequestId
    from mcpd.sessions.live import Live

logger: Final = logging.getLogger("mcpd.sessions")
LOOK_EVERY: Final = 5.0
"""Seconds between two looks for answers that the bus may have lost."""
_KEEP: Final = 30.0
_OPEN: Final = b""


class Answers:
    """The open questions of this replica, as others see them."""

    def __init__(self, store: Store) -> None:
        """Args: *store*: where they stand."""
        self._records = store.records("question") if store.shared else None

    async def expect(self, session: str, question: RequestId) -> None:
        """Something is going to be asked here."""
        if self._records is not None:
            with suppress(StoreError):  # then only the bus can bring the answer
                await self._records.create(_key(session, question), _OPEN, ttl=_KEEP)

    async def keep(self, session: str, answer: Message) -> None:
        """An answer has come here to what was asked elsewhere, or nowhere; the first one counts."""
        if self._records is not None and isinstance(answer.id, str | int):
            await self._records.save(_key(session, answer.id), encode(answer), ttl=_KEEP, expected=_OPEN)

    async def forget(self, session: str, question: RequestId) -> None:
        """It is no longer open. Without this its record would be gone soon as well."""
        if self._records is not None:
            with trio.move_on_after(1.0, shield=True), suppress(StoreError):
                await self._records.delete(_key(session, question))

    async def look(self, live: Live) -> None:
        """Hand over the answers that others have put into the store.

        Raises:
          StoreError: it cannot be reached.
        """
        records = self._records
        if records is None:
            return
        for question in live.questions.waiting:
            data = await records.load(_key(live.key, question), ttl=_KEEP)
            if data:
                live.questions.answer(msgspec.json.decode(data, type=Message))

    async def run(self, lives: Callable[[], Iterable[Live]]) -> None:
        """Look, again and again, until cancelled. Args: *lives*: the sessions in use here."""
        while self._records is not None:
            await trio.sleep(LOOK_EVERY)
            with suppress(StoreError):  # it is away
                await self._look_all(lives())

    async def _look_all(self, lives: Iterable[Live]) -> None:
        # A method, so that no name in the loop above keeps the last session in use.
        for live in lives:
            await self.look(live)


def _key(session: str, question: RequestId) -> str:
    return f"{session}.{question}"
