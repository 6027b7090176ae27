"""What handlers and the protocol change of a legacy session, wherever its record is: in a store, or in a connection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import msgspec

from mcpd.errors import INVALID_PARAMS, ProtocolError
from mcpd.protocol.jsonrpc import encode
from mcpd.sessions.record import MAX_SUBSCRIPTIONS, SessionRecord, add_task

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mcpd.protocol.types import LoggingLevel


class RecordedSession(ABC):
    """A session by its record: all of `mcpd.server.call.LegacySession` but its ID and its end."""

    __slots__ = ()

    @abstractmethod
    async def _current(self) -> SessionRecord:
        """The record as it is now."""

    @abstractmethod
    async def _change(self, apply: Callable[[SessionRecord], object]) -> None:
        """Change the record as one step. *apply* may run more than once.

        Raises:
          ValueError: the record would grow past its bound; it stays as it is.
        """

    async def get(self, key: str, default: Any = None) -> Any:
        """The value kept under *key* as of now, or *default*."""
        found = (await self._current()).state.get(key)
        return default if found is None else msgspec.json.decode(found)

    async def set(self, key: str, value: Any) -> None:
        """Keep *value*; None removes it."""
        await self.update(key, lambda _: value)

    async def update(self, key: str, change: Callable[[Any], Any], default: Any = None) -> Any:
        """Replace the value by what *change* makes of it, as one step."""
        new: Any = None

        def apply(record: SessionRecord) -> None:
            nonlocal new
            found = record.state.get(key)
            new = change(default if found is None else msgspec.json.decode(found))
            if new is None:
                record.state.pop(key, None)
            else:
                record.state[key] = encode(new)

        await self._change(apply)
        return new

    async def initialized(self) -> None:
        """The client has finished its side of the initialization."""
        await self._change(lambda record: setattr(record, "initialized", True))

    async def set_log_level(self, level: LoggingLevel) -> None:
        """Send no log message below *level* from now on."""
        await self._change(lambda record: setattr(record, "log_level", level))

    async def subscribe(self, uri: str) -> None:
        """Tell the session of updates of *uri*."""

        def add(record: SessionRecord) -> None:
            if uri not in record.subscriptions:
                if len(record.subscriptions) >= MAX_SUBSCRIPTIONS:
                    raise ProtocolError(INVALID_PARAMS, f"A session has at most {MAX_SUBSCRIPTIONS} subscriptions")
                record.subscriptions.append(uri)

        try:
            await self._change(add)
        except ValueError as exc:
            raise ProtocolError(INVALID_PARAMS, f"No room for another subscription: {exc}") from None

    async def unsubscribe(self, uri: str) -> None:
        """No longer tell the session of updates of *uri*."""

        def remove(record: SessionRecord) -> None:
            if uri in record.subscriptions:
                record.subscriptions.remove(uri)

        await self._change(remove)

    async def add_task(self, task_id: str, *, gone: Collection[str]) -> bool:
        """The task is one of the session's, and those *gone* are no more; False when it has as many as it may."""
        added = False

        def add(record: SessionRecord) -> None:
            nonlocal added
            added = add_task(record, task_id, gone)

        await self._change(add)
        return added

    async def task_ids(self) -> list[str]:
        """The session's tasks, the oldest first; some may be gone."""
        return (await self._current()).tasks
