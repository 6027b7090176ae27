"""The server that reports are replayed on: a few tools, and what became of their calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import trio

from mcpd import Context, Server
from mcpd.endpoint.reply import Reply
from mcpd.endpoint.stream import EventStream
from mcpd.fronts.asgi import AsgiExchange
from mcpd.fronts.direct.exchange import DirectExchange
from mcpd.server.call import Call
from mcpd.sessions.live import Live
from mcpd.sessions.sessions import Session
from tests.harness import Http, serving
from tests.reports.storage import InMemory, Storage

PER_REQUEST = (Call, Reply, EventStream, Live, Session, Context, AsgiExchange, DirectExchange)
"""Classes whose objects must not outlive the exchange they were made for."""


class Rig:
    """A new server, its memory, and the store it is served on."""

    def __init__(self, storage: Storage | None = None) -> None:
        """Args: *storage*: what it is served on; a server in a process of its own is told on its command line."""
        self.storage = storage or InMemory()
        self.server = server = Server("rig", version="1")
        self.ran: list[str] = []
        """What tools were told, in the order in which they began."""
        self.outcomes: Counter[str] = Counter()
        """How the calls of `wait` and `hold` ended: ``done`` or ``cancelled``."""
        self.holding = 0
        """Calls of `hold` under way."""
        self.release = trio.Event()
        """Lets all calls of `hold` go on."""
        self._begun = trio.Event()
        self._ended = trio.Event()

        @server.tool
        async def echo(text: str) -> str:
            self.ran.append(text)
            return text

        @server.tool
        async def wait(seconds: float) -> str:
            await self._guarded(partial(trio.sleep, seconds))
            return f"waited {seconds:g}"

        @server.tool
        async def hold(text: str = "held") -> str:
            self.ran.append(text)
            await self._guarded(self.release.wait)
            return text

        @server.tool
        async def stages(count: int, ctx: Context) -> str:
            await ctx.progress(1, count)
            await self._guarded(self.release.wait)
            for stage in range(2, count + 1):
                await ctx.progress(stage, count)
            return f"{count} stages"

        @server.tool
        async def steps(count: int, ctx: Context, pause: float = self.storage.pause) -> str:
            for step in range(1, count + 1):
                await ctx.progress(step, count)
                await trio.sleep(pause)
            return f"{count} steps"

        @server.resource("rig://one")
        async def one() -> str:
            return "one"

        @server.resource("rig://two")
        async def two() -> str:
            return "two"

    def serving(self, **settings: Any) -> AbstractAsyncContextManager[Http]:
        """Serve it on its store, as `tests.harness.serving` does."""
        return serving(self.server, store=self.storage.new(), **settings)

    async def _guarded(self, wait: Callable[[], Awaitable[object]]) -> None:
        self.holding += 1
        self._begun.set()
        try:
            await wait()
        except trio.Cancelled:
            self.outcomes["cancelled"] += 1
            raise
        else:
            self.outcomes["done"] += 1
        finally:
            self.holding -= 1
            self._ended.set()

    async def held(self, count: int = 1) -> None:
        """Wait until so many calls of `wait` and `hold` are under way."""
        with trio.fail_after(60):
            while self.holding < count:
                self._begun = trio.Event()
                await self._begun.wait()

    async def ended(self, outcome: str, count: int = 1) -> None:
        """Wait until so many of them have had this outcome."""
        with trio.fail_after(60):
            while self.outcomes[outcome] < count:
                self._ended = trio.Event()
                await self._ended.wait()
