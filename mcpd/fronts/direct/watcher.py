"""One epoll that tells of every client's end.

A connection whose task runs a handler does not read, so it would not notice that its client is gone; and a read could
not notice it either behind a pipelined request. Here each socket is registered once, for its end only and
edge-triggered, so it costs nothing while the connection lives.
"""

from __future__ import annotations

import select
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

AVAILABLE = sys.platform == "linux"
"""Elsewhere `mcpd.fronts.direct.transport.WatchedTransport` reads ahead instead."""


class Watcher:
    """Watches sockets for the end of what is at the other end."""

    def __init__(self) -> None:
        self._callbacks: dict[int, Callable[[bool], object]] = {}
        self._epoll = select.epoll()

    def add(self, descriptor: int, lost: Callable[[bool], object]) -> None:
        """Call *lost* when the client has closed (with False) and when the connection is broken (with True)."""
        self._callbacks[descriptor] = lost
        self._epoll.register(descriptor, select.EPOLLRDHUP | select.EPOLLET)

    def discard(self, descriptor: int, lost: Callable[[bool], object]) -> None:
        """Watch it no more. It may be closed already, and its number another connection's."""
        if self._callbacks.get(descriptor) == lost:
            del self._callbacks[descriptor]
            with suppress(OSError):
                self._epoll.unregister(descriptor)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
            for descriptor, events in self._epoll.poll(0):
                lost = self._callbacks.get(descriptor)
                if lost is not None:
                    lost(bool(events & (select.EPOLLHUP | select.EPOLLERR)))

    def close(self) -> None:
        """Free the epoll, once there is nothing to watch any more."""
        self._epoll.close()
