"""Change notifications: from the server, over the bus, to every open stream that wants them, once each."""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
import trio

from mcpd.errors import StoreError
from mcpd.server.changes import Change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcpd.ports import Bus
    from mcpd.server.server import Server

logger: Final = logging.getLogger("mcpd.sessions")
_TOPIC: Final = "changes"
_MAX_PENDING: Final = 10_000
_TRY_AGAIN: Final = 1.0
"""Seconds after which is tried again what the store could not do."""
_changes: Final = msgspec.msgpack.Decoder(Change)


class Subscriber(Protocol):
    """An open stream."""

    async def deliver(self, change: Change) -> None:
        """Send the notification if the stream wants it; never waits for the client."""
        ...

    async def missed(self, lists: Sequence[Change]) -> None:
        """Changes may have been lost: tell of these lists, and of each resource and task that the stream names."""
        ...


class Subscriptions:
    """The open streams of this process, and the way of a change to them and to other replicas."""

    def __init__(self, server: Server, bus: Bus) -> None:
        """Args: *server*: whose changes; *bus*: on which they travel."""
        self._server = server
        self._bus = bus
        self._subscribers: dict[Subscriber, None] = {}
        # What has changed since the last round: a set, so a thousand updates of one resource are one notification.
        self._pending: dict[Change, None] = {}
        self._arrived = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None

    def add(self, subscriber: Subscriber) -> None:
        """Deliver to this stream from now on."""
        self._subscribers[subscriber] = None

    def remove(self, subscriber: Subscriber) -> None:
        """No longer deliver to this stream."""
        self._subscribers.pop(subscriber, None)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Publish and deliver, until cancelled."""
        async with trio.open_nursery() as nursery, self._bus.subscribe(_TOPIC) as arriving:
            self._token = trio.lowlevel.current_trio_token()
            self._server.listeners.add(self.tell)
            try:
                nursery.start_soon(self._publish)
                task_status.started()
                async for raw in arriving:
                    if not raw:
                        # What was missed nobody can tell, so all that may have changed counts as changed.
                        while not await self._make_up():  # noqa: ASYNC110 - nothing says that the store is back
                            await trio.sleep(_TRY_AGAIN)
                        continue
                    try:
                        change = _changes.decode(raw)
                    except (msgspec.MsgspecError, RecursionError):
                        logger.warning("The bus brought what is no change, perhaps from another version of mcpd")
                    else:
                        await self._deliver(change)
            finally:
                self._server.listeners.discard(self.tell)

    def tell(self, change: Change) -> None:
        """Publish the change; it does not wait. Plain handlers call it from their threads."""
        if self._token is not None and not trio.lowlevel.in_trio_run():
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self.tell, change)
        elif len(self._pending) < _MAX_PENDING:
            self._pending[change] = None
            self._arrived.set()

    async def _deliver(self, change: Change) -> None:
        # A method, so that no name in the loop above keeps the last subscriber, and with it its session, alive.
        for subscriber in list(self._subscribers):
            if subscriber in self._subscribers:
                try:
                    await subscriber.deliver(change)
                except StoreError as exc:
                    logger.warning("A change could not be told: %s", exc)

    async def _make_up(self) -> bool:
        server = self._server
        lists: list[Change] = []
        if len(server.tools):
            lists.append(Change("tools"))
        if len(server.prompts):
            lists.append(Change("prompts"))
        if len(server.resources) or len(server.templates):
            lists.append(Change("resources"))
        for subscriber in list(self._subscribers):
            if subscriber in self._subscribers:
                try:
                    await subscriber.missed(lists)
                except StoreError as exc:
                    logger.warning("Changes that may have been missed could not be told: %s", exc)
                    return False
        return True

    async def _publish(self) -> None:
        untold: dict[Change, None] = {}
        while True:
            with trio.move_on_after(_TRY_AGAIN if untold else math.inf):
                await self._arrived.wait()
            self._arrived = trio.Event()
            pending, self._pending = untold | self._pending, {}
            before, untold = untold, {}
            for change in pending:
                try:
                    await self._bus.publish(_TOPIC, msgspec.msgpack.encode(change))
                except StoreError as exc:
                    # Here it is told at once, and once more with the others.
                    if len(untold) < _MAX_PENDING:
                        untold[change] = None
                    if change not in before:
                        logger.warning("A change could not be told to other replicas: %s", exc)
                        await self._deliver(change)
