"""A process of official clients (`mcp` 2.3), each of which comes, calls, and leaves in one way or another.

What becomes of each call is one line of a file, written at once: the process may be killed at any moment.
"""

import json
import logging
import os
import random
import socket
import ssl
import struct
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
import httpcore2
import httpx2
from httpcore2._backends.anyio import AnyIOBackend
from mcp import Client, types
from mcp.client.streamable_http import streamable_http_client

MODES: Final = ("legacy", "auto", "2026-07-28")
LEAVING: Final = ("politely", "without DELETE", "cancelled", "reset", "silent", "deaf")
"""Ways to leave; all but the first two are in the middle of calls."""
ANSWER_WITHIN: Final = 10.0
"""Seconds the server waits for the answer to a question; when it is over for a client that has left."""
CALL_WITHIN: Final = 60.0
_TLS: Final = ssl.create_default_context()
"""One for all clients, that speak plain HTTP: to make it takes longer than a call."""


class Outcome(NamedTuple):
    """What became of one call."""

    mode: str
    action: str
    outcome: str
    """answered, cancelled (by its caller), aborted (its caller left), or failed; left: the end of a client."""
    seconds: float
    detail: str


class Orders(NamedTuple):
    """What a process of clients is to do."""

    url: str
    number: int
    """Which process this is."""
    clients: int
    seed: str
    until: float
    """When the last call may begin, by `time.monotonic`."""
    pause: float
    """Seconds between two calls of one client, on average."""
    backend: str
    log: Path


class _Stream(httpcore2.AsyncNetworkStream):
    """A connection that can be made deaf."""

    def __init__(self, inner: httpcore2.AsyncNetworkStream, wire: "Wire") -> None:
        self._inner = inner
        self._wire = wire

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._wire.deaf:
            await anyio.sleep_forever()
        return await self._inner.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        self._wire.streams.discard(self)
        await self._inner.aclose()

    async def reset(self) -> None:
        self.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class Wire(AnyIOBackend):
    """The connections of one client."""

    def __init__(self) -> None:
        self.streams: set[_Stream] = set()
        self.deaf = False

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> _Stream:
        stream = _Stream(await super().connect_tcp(host, port, timeout, local_address, socket_options), self)
        self.streams.add(stream)
        return stream

    async def reset(self) -> None:
        """End all connections as a machine does that knows nothing of them."""
        for stream in list(self.streams):
            await stream.reset()

    def http(self) -> httpx2.AsyncClient:
        """An HTTP client on these connections."""
        transport = httpx2.AsyncHTTPTransport(verify=_TLS)
        transport._pool = httpcore2.AsyncConnectionPool(network_backend=self, max_connections=20)
        return httpx2.AsyncClient(transport=transport, timeout=httpx2.Timeout(30.0, read=300.0))


class Visitor:
    """One client after the other."""

    def __init__(self, name: str, orders: Orders, chance: random.Random, tell: Callable[[Outcome], None]) -> None:
        self._name = name
        self._orders = orders
        self._chance = chance
        self._tell = tell
        self._words = 0
        self._mode = ""
        self._leaving = False
        self._may_reset = False
        self._wire = Wire()

    async def run(self) -> None:
        """Visit again and again."""
        await anyio.sleep(self._chance.uniform(0, self._orders.pause))
        while not self._over:
            await self._visit(self._chance.choice(MODES), self._chance.choice(LEAVING))

    @property
    def _over(self) -> bool:
        return time.monotonic() > self._orders.until

    async def _visit(self, mode: str, leaving: str) -> None:
        self._mode, self._leaving, self._may_reset, self._wire = mode, False, True, Wire()
        try:
            # The scope is inside: of what it catches, errors of connections that are gone may remain.
            with anyio.CancelScope() as scope:
                async with self._wire.http() as http:
                    transport = streamable_http_client(
                        self._orders.url, http_client=http, terminate_on_close=leaving == "politely"
                    )
                    async with Client(
                        transport, mode=mode, elicitation_callback=_answer, read_timeout_seconds=CALL_WITHIN
                    ) as client:
                        await self._stay(client, legacy=client.protocol_version < "2026")
                        if leaving not in {"politely", "without DELETE"}:
                            await self._leave(client, leaving, scope)
        except Exception as exc:  # noqa: BLE001 - whatever a client raises is what became of it
            if not self._leaving:
                self._tell(Outcome(mode, "visit", "failed", 0.0, repr(exc)))
                return
        self._tell(Outcome(mode, leaving, "left", 0.0, ""))

    async def _stay(self, client: Client, *, legacy: bool) -> None:
        actions = [self._quick, self._quick, self._several, self._list, self._slow, self._ask, self._cancel]
        actions += [self._resume, self._reset] if legacy else [self._listen]
        for _ in range(self._chance.randint(1, 5)):
            if self._over:
                return
            await self._chance.choice(actions)(client)
            await anyio.sleep(min(self._chance.expovariate(1 / self._orders.pause), 6.0))

    async def _leave(self, client: Client, how: str, scope: anyio.CancelScope) -> None:
        """Go in the middle of something."""
        actions = [self._flood] if how == "deaf" else [self._quick, self._slow, self._ask, self._hold]
        async with anyio.create_task_group() as group:
            for _ in range(self._chance.randint(1, 3)):
                group.start_soon(self._chance.choice(actions), client)
            await anyio.sleep(self._chance.choice([0, 0.001, 0.01, 0.1, 1.0]) * self._chance.random())
            self._leaving = True
            if how in {"silent", "deaf"}:
                self._wire.deaf = True
                await anyio.sleep(self._chance.uniform(2, 8))
            if how != "cancelled":
                await self._wire.reset()
            scope.cancel()

    # ----- What a client does

    async def _quick(self, client: Client) -> None:
        word = self._word()
        await self._one("quick", word, partial(client.call_tool, "echo", {"text": word}))

    async def _several(self, client: Client) -> None:
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(self._quick, client)

    async def _list(self, client: Client) -> None:
        async def names() -> str:
            listed = await client.list_tools(cache_mode="bypass")
            return " ".join(sorted(tool.name for tool in listed.tools))

        await self._one("list", "ask echo flood hold reconnect spell", names)

    async def _slow(self, client: Client) -> None:
        word, heard = self._word(), _Progress()
        arguments = {"word": word, "pause": self._chance.choice([0.02, 0.1, 0.2])}
        await self._one("slow", word, partial(client.call_tool, "spell", arguments, progress_callback=heard))
        if heard.out_of_order:
            self._tell(Outcome(self._mode, "slow", "failed", 0.0, f"progress came out of order: {heard.out_of_order}"))

    async def _ask(self, client: Client) -> None:
        first, last = self._word(), self._word()
        arguments = {"first": first, "last": last, "timeout": ANSWER_WITHIN}
        await self._one("ask", f"<{first}> <{last}>", partial(client.call_tool, "ask", arguments))

    async def _cancel(self, client: Client) -> None:
        began = time.monotonic()
        with anyio.move_on_after(self._chance.uniform(0, 0.5)) as scope:
            await client.call_tool("hold", {"word": self._word(), "seconds": 8.0})
        outcome = "cancelled" if scope.cancelled_caught else "failed"
        self._tell(Outcome(self._mode, "cancel", outcome, time.monotonic() - began, ""))

    async def _resume(self, client: Client) -> None:
        word = self._word()
        arguments = {"word": word, "pause": self._chance.uniform(0, 2)}
        call = partial(client.call_tool, "reconnect", arguments, progress_callback=_Progress())
        await self._one("resume, closed by the server", word, call)

    async def _reset(self, client: Client) -> None:
        if not self._may_reset:
            return  # the SDK opens its GET stream once more, and no more
        self._may_reset = False
        word = self._word()

        async def lose(done: float, total: float | None, message: str | None) -> None:
            if done == 3:
                await self._wire.reset()

        call = partial(client.call_tool, "spell", {"word": word, "pause": 0.1}, progress_callback=lose)
        await self._one("resume, after a reset", word, call)

    async def _listen(self, client: Client) -> None:
        async with client.listen(tools_list_changed=True):
            await self._quick(client)
            await anyio.sleep(self._chance.uniform(0, 2))

    async def _hold(self, client: Client) -> None:
        word = self._word()
        await self._one("hold", word, partial(client.call_tool, "hold", {"word": word, "seconds": 3.0}))

    async def _flood(self, client: Client) -> None:
        word = self._word()
        arguments = {"word": word, "count": 1_000}
        await self._one("flood", word, partial(client.call_tool, "flood", arguments, progress_callback=_Progress()))

    # -----

    def _word(self) -> str:
        """No other call has this one."""
        self._words += 1
        return f"{self._name}-{self._words}"

    async def _one(self, action: str, expected: str, call: Callable[[], Awaitable[Any]]) -> None:
        """Call, and tell what became of it."""
        began = time.monotonic()
        outcome, detail = "aborted", ""
        try:
            result = await call()
            found = result if isinstance(result, str) else result.content[0].text
            outcome, detail = ("answered", "") if found == expected else ("failed", f"{expected!r} got {found!r}")
        except Exception as exc:  # noqa: BLE001 - as above
            if not self._leaving:
                outcome, detail = "failed", repr(exc)
        finally:
            self._tell(Outcome(self._mode, action, outcome, time.monotonic() - began, detail))


class _Progress:
    """Hears progress, which only grows."""

    def __init__(self) -> None:
        self._last = 0.0
        self.out_of_order = ""

    async def __call__(self, done: float, total: float | None, message: str | None) -> None:
        if done <= self._last:
            self.out_of_order = f"{done} after {self._last}"
        self._last = done


async def _answer(context: Any, params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": f"<{params.message}>"})


def run(orders: Orders) -> None:
    """Be that process."""
    logging.disable()  # an SDK that loses its connection has much to say
    anyio.run(_everybody, orders, backend=orders.backend)


async def _everybody(orders: Orders) -> None:
    log = os.open(orders.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tell(outcome: Outcome) -> None:
        os.write(log, json.dumps(outcome).encode() + b"\n")

    async with anyio.create_task_group() as group:
        for client in range(orders.clients):
            name = f"{orders.number}.{client}"
            group.start_soon(Visitor(name, orders, random.Random(f"{orders.seed} {name}"), tell).run)
    os.close(log)
