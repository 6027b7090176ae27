"""A peer of a server in this process that sends what it is told to, and checks whatever comes back.

It is the other end of `mcpd.serve_stdio`, on streams in memory: every message travels as a line of bytes.
"""

import itertools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio
from trio.testing import memory_stream_one_way_pair, wait_all_tasks_blocked

from mcpd import Server, serve_stdio
from tests import wire

MCP = "io.modelcontextprotocol/"
Answerer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class Peer:
    """One end of a connection. Every message of the server is checked against *revision* before a test sees it."""

    def __init__(self, revision: str, capabilities: Mapping[str, Any], answerers: Mapping[str, Answerer]) -> None:
        self.revision = revision
        self.capabilities = dict(capabilities)
        self.answerers = dict(answerers)
        self.sent: list[dict[str, Any]] = []
        """Notifications and requests of the server, the oldest first."""
        self.answers: list[dict[str, Any]] = []
        """Its responses."""
        self.init: dict[str, Any] = {}
        """The result of ``initialize``."""
        self.ids = itertools.count(1)
        self._methods: dict[Any, str] = {}
        self._waiting: dict[Any, tuple[trio.Event, list[dict[str, Any]]]] = {}
        self.to_server, self.stdin = memory_stream_one_way_pair()
        self.stdout, self.from_server = memory_stream_one_way_pair()

    async def send(self, message: Any) -> None:
        """Send any message, or bytes as they are."""
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        await self.to_server.send_all(data + b"\n")

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        id: Any = None,
        meta: Mapping[str, Any] | None = None,
        within: float = 5,
    ) -> dict[str, Any]:
        """Send a request and wait for its response, whole; *within* seconds it must be there."""
        id = next(self.ids) if id is None else id  # noqa: A001 - as everywhere
        answered, answers = self._waiting[id] = (trio.Event(), [])
        await self.send(self.request(method, params, id=id, meta=meta))
        with trio.fail_after(within):
            await answered.wait()
        del self._waiting[id]
        return answers[0]

    def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, id: Any, meta: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """A request as `ask` sends it; on a modern connection with its envelope."""
        self._methods[id] = method
        whole: dict[str, Any] = dict(params or {})
        if self.revision == wire.MODERN:
            envelope = {MCP + "protocolVersion": self.revision, MCP + "clientCapabilities": self.capabilities}
            whole["_meta"] = envelope | dict(meta or {})
        elif meta is not None:
            whole["_meta"] = dict(meta)
        return {"jsonrpc": "2.0", "id": id, "method": method} | ({"params": whole} if whole else {})

    async def result(self, method: str, params: Mapping[str, Any] | None = None, **kwargs: Any) -> dict[str, Any]:
        """The result of a request that must succeed."""
        answer = await self.ask(method, params, **kwargs)
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def error(self, method: str, params: Mapping[str, Any] | None = None, **kwargs: Any) -> dict[str, Any]:
        """The error of a request that must fail."""
        answer = await self.ask(method, params, **kwargs)
        assert "error" in answer, answer
        error: dict[str, Any] = answer["error"]
        return error

    async def call(self, tool: str, arguments: Any = None, **kwargs: Any) -> dict[str, Any]:
        """The result of a tool."""
        return await self.result("tools/call", {"name": tool, "arguments": arguments or {}}, **kwargs)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        await self.send({"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params}))

    async def settle(self) -> list[dict[str, Any]]:
        """Let the server do all it can without us, then say what it has sent besides responses, and forget it."""
        await wait_all_tasks_blocked()
        sent = self.sent[:]
        self.sent.clear()
        return sent

    def of(self, method: str) -> list[dict[str, Any]]:
        """The params of what the server has sent of this method."""
        return [message["params"] for message in self.sent if message["method"] == method]

    async def read(self) -> None:
        """Take what the server sends, until it has no more to say."""
        buffer = b""
        async with trio.open_nursery() as nursery:
            async for data in self.from_server:
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    self._receive(line, nursery)
        assert buffer == b"", f"the last line has no end: {buffer!r}"

    def _receive(self, line: bytes, nursery: trio.Nursery) -> None:
        message = json.loads(line)
        if "method" in message:
            self.sent.append(wire.check(self.revision, None, message))
            answerer = self.answerers.get(message["method"])
            if "id" in message and answerer is not None:
                nursery.start_soon(self._answer, message, answerer)
        else:
            self.answers.append(wire.check(self.revision, self._methods.get(message["id"]), message))
            if message["id"] in self._waiting:
                answered, answers = self._waiting[message["id"]]
                assert not answers, f"a second response: {message}"
                answers.append(message)
                answered.set()

    async def _answer(self, message: dict[str, Any], answerer: Answerer) -> None:
        answer = await answerer(message.get("params", {}))
        key = "error" if "code" in answer else "result"
        await self.send({"jsonrpc": "2.0", "id": message["id"], key: answer})


@asynccontextmanager
async def talking(
    server: Server,
    revision: str = wire.MODERN,
    capabilities: Mapping[str, Any] | None = None,
    *,
    answerers: Mapping[str, Answerer] | None = None,
    initialize: bool = True,
    **options: Any,
) -> AsyncGenerator[Peer, None]:
    """Connect a peer to *server*. A legacy one is initialized, unless told otherwise."""
    peer = Peer(revision, capabilities or {}, answerers or {})

    async def serve() -> None:
        await serve_stdio(server, receiver=peer.stdin, sender=peer.stdout, **options)
        await peer.stdout.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        nursery.start_soon(peer.read)
        if revision != wire.MODERN and initialize:
            params = {
                "protocolVersion": revision,
                "capabilities": peer.capabilities,
                "clientInfo": {"name": "peer", "version": "1"},
            }
            peer.init = await peer.result("initialize", params)
            await peer.notify("notifications/initialized")
            await peer.settle()
        yield peer
        await peer.to_server.aclose()
