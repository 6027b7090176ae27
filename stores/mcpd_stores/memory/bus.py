"""The bus within this process."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class MemoryBus:
    """`mcpd.ports.Bus` for the endpoints of one process that share a store."""

    def __init__(self, *, backlog: int = 10_000) -> None:
        """Args: *backlog*: how many messages a subscriber may lag behind; what goes beyond is dropped."""
        self._backlog = backlog
        self._topics: dict[str, set[trio.MemorySendChannel[bytes]]] = {}
        self.dropped = 0

    async def publish(self, topic: str, message: bytes) -> None:
        """Send to all who are subscribed now."""
        await trio.lowlevel.checkpoint()
        for subscriber in list(self._topics.get(topic, ())):
            waiting = subscriber.statistics().current_buffer_used
            if waiting < self._backlog:
                subscriber.send_nowait(message)
                continue
            self.dropped += 1
            if waiting == self._backlog:
                subscriber.send_nowait(b"")  # in the one place that is kept for it: something has been lost

    @asynccontextmanager
    async def subscribe(self, topic: str) -> AsyncGenerator[trio.MemoryReceiveChannel[bytes], None]:
        """Receive what is published while this is open."""
        await trio.lowlevel.checkpoint()
        send, receive = trio.open_memory_channel[bytes](self._backlog + 1)
        self._topics.setdefault(topic, set()).add(send)
        async with send, receive:
            try:
                yield receive
            finally:
                # Before it is closed, which takes a moment in which others may publish.
                self._topics[topic].discard(send)
                if not self._topics[topic]:
                    del self._topics[topic]
