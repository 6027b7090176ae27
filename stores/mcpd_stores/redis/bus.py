"""`mcpd.ports.Bus` on Redis's pub/sub, over a connection of its own: messages do not wait behind replies."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import trio

from mcpd_stores.redis.replies import ReplyError, explain

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from mcpd_stores.redis.link import Link
    from mcpd_stores.redis.names import Names

logger: Final = logging.getLogger("mcpd.redis")

_BACKLOG: Final = 10_000


class RedisBus:
    """Messages between replicas. What is published while a subscriber's connection is away is lost to it."""

    def __init__(self, names: Names) -> None:
        """Args: *names*: how channels are called. The connections come with `use`."""
        self._names = names
        self._channels: dict[bytes, set[trio.MemorySendChannel[bytes]]] = {}
        self._again: set[bytes] = set()
        self._link: Link
        self._subscriptions: Link
        self.dropped = 0

    def use(self, link: Link, subscriptions: Link) -> None:
        """Args: *link*: for what is published; *subscriptions*: for what is received."""
        self._link = link
        self._subscriptions = subscriptions

    async def publish(self, topic: str, message: bytes) -> None:
        """Send to all who are subscribed now, in any replica.

        Raises:
          StoreError: Redis did not take it, or may not have.
        """
        try:
            await self._link.call("PUBLISH", self._names.channel(topic), message)
        except ReplyError as exc:
            raise explain(exc) from exc

    @asynccontextmanager
    async def subscribe(self, topic: str) -> AsyncGenerator[trio.MemoryReceiveChannel[bytes], None]:
        """Receive what is published while this is open.

        Raises:
          StoreError: Redis cannot be reached now, or refuses it.
        """
        async with self.listen(self._names.channel(topic)) as receive:
            yield receive

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncGenerator[trio.MemoryReceiveChannel[bytes], None]:
        """The same for a channel by its full name."""
        name = channel.encode()
        send, receive = trio.open_memory_channel[bytes](_BACKLOG + 1)
        subscribers = self._channels.setdefault(name, set())
        subscribers.add(send)
        async with send, receive:
            try:
                # Also when others are subscribed already: then it only confirms.
                await self._subscriptions.call("SUBSCRIBE", name)
                yield receive
            except ReplyError as exc:
                raise explain(exc) from exc
            finally:
                # Before the channel is closed, which takes a moment in which messages may come.
                subscribers.discard(send)
                if not subscribers:
                    del self._channels[name]
                    self._subscriptions.post("UNSUBSCRIBE", name)

    def resubscribe(self, link: Link) -> None:
        """There is a new connection: it knows of no subscription yet, and messages have been missed."""
        self._again = set(self._channels)
        for name in self._channels:
            link.post("SUBSCRIBE", name)

    def push(self, message: list[Any]) -> bool:
        """Take what Redis sent unasked; False when it confirms a subscription, which is the reply to that command."""
        kind = message[0]
        if kind == b"message":
            self._deliver(message[1], message[2])
            return True
        if kind == b"subscribe" and message[1] in self._again:
            # From here on nothing is missed; what was missed before, subscribers have to look up.
            self._again.discard(message[1])
            self._deliver(message[1], b"")
        return kind not in {b"subscribe", b"unsubscribe"}

    def _deliver(self, channel: bytes, message: bytes) -> None:
        for subscriber in self._channels.get(channel, ()):
            waiting = subscriber.statistics().current_buffer_used
            if waiting < _BACKLOG:
                subscriber.send_nowait(message)
                continue
            self.dropped += 1
            if waiting == _BACKLOG:
                subscriber.send_nowait(b"")  # in the one place that is kept for it: something has been lost
