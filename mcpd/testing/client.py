"""A client of one server, in the same process and without a network."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar, Unpack

import msgspec
import trio

from mcpd.core import Core
from mcpd.errors import ProtocolError
from mcpd.fronts.connection import Connection
from mcpd.ports import Store
from mcpd.protocol import jsonrpc
from mcpd.protocol.revisions import LATEST_LEGACY, MODERN, REVISIONS
from mcpd.protocol.types import (
    CallToolResult,
    CompleteResult,
    Completion,
    GetPromptResult,
    Prompt,
    ReadResourceResult,
    Resource,
    ResourceContents,
    ResourceTemplate,
    TextContent,
    Tool,
)
from mcpd.server.server import Server
from mcpd.settings import Options, Settings
from mcpd.stores import open_store

T = TypeVar("T")
Answerer = Callable[[dict[str, Any]], Awaitable[Any]]
_META: Final = "io.modelcontextprotocol/"


class ToolResult(CallToolResult):
    """A tool's result, with what a test wants to look at."""

    @property
    def text(self) -> str:
        """All text in it, a line break between two pieces."""
        return "\n".join([block.text for block in self.content if isinstance(block, TextContent)])

    @property
    def structured(self) -> Any:
        """The structured content as plain Python; None without one."""
        content = self.structured_content
        return None if isinstance(content, msgspec.UnsetType) else msgspec.json.decode(content)


class Client:
    """A client of one server, made by `connect`. Every message it sends and receives is JSON, as over a network."""

    def __init__(self, connection: Connection, revision: str, answerers: dict[str, Answerer]) -> None:
        self._connection = connection
        self._revision = revision
        self._answerers = answerers
        self._ids = itertools.count(1)
        self._waiting: dict[Any, tuple[trio.Event, list[dict[str, Any]]]] = {}
        self.notifications: list[dict[str, Any]] = []
        """All notifications received, the oldest first."""
        self.notified = trio.Event()
        """Set by the next notification; replace it to wait for another."""
        self.server_info: dict[str, Any] = {}
        self.capabilities: dict[str, Any] = {}
        """The server's."""

    async def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return its result. When it is cancelled, the server is told.

        Raises:
          ProtocolError: the server answered with an error.
        """
        params = dict(params or {})
        while True:
            result = await self._request(method, params)
            if result.get("resultType") != "input_required":
                return result
            # The call has ended with questions: answer them, and call again.
            params["inputResponses"] = {
                key: msgspec.to_builtins(await self._answerers[asked["method"]](asked.get("params", {})))
                for key, asked in result.get("inputRequests", {}).items()
            }
            params.pop("requestState", None)
            if "requestState" in result:
                params["requestState"] = result["requestState"]

    async def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        id_ = next(self._ids)
        arrived, answers = self._waiting[id_] = (trio.Event(), [])
        if self._revision in MODERN:
            params = dict(params)
            params["_meta"] = self._envelope() | params.get("_meta", {})
        try:
            await self._connection.receive(jsonrpc.encode_request(id_, method, params))
            await arrived.wait()
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await self.notify("notifications/cancelled", {"requestId": id_})
            raise
        finally:
            del self._waiting[id_]
        answer = answers[0]
        if "error" in answer:
            error = answer["error"]
            raise ProtocolError(error["code"], error["message"], error.get("data"))
        result: dict[str, Any] = answer["result"]
        return result

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification."""
        await self._connection.receive(jsonrpc.encode_notification(method, params or {}))

    async def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None, *, meta: dict[str, Any] | None = None
    ) -> ToolResult:
        """Call a tool; a failure of the tool is a result with ``is_error``.

        Raises:
          ProtocolError: the server answered with an error.
        """
        params: dict[str, Any] = {"name": name, "arguments": arguments or {}}
        if meta is not None:
            params["_meta"] = meta
        return _read(ToolResult, await self.request("tools/call", params))

    async def list_tools(self) -> list[Tool]:
        """All tools, page by page."""
        return await self._list("tools/list", "tools", Tool)

    async def list_resources(self) -> list[Resource]:
        """All resources, page by page."""
        return await self._list("resources/list", "resources", Resource)

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        """All resource templates, page by page."""
        return await self._list("resources/templates/list", "resourceTemplates", ResourceTemplate)

    async def list_prompts(self) -> list[Prompt]:
        """All prompts, page by page."""
        return await self._list("prompts/list", "prompts", Prompt)

    async def read_resource(self, uri: str) -> list[ResourceContents]:
        """The contents of a resource."""
        return _read(ReadResourceResult, await self.request("resources/read", {"uri": uri})).contents

    async def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> GetPromptResult:
        """A prompt's messages."""
        return _read(GetPromptResult, await self.request("prompts/get", {"name": name, "arguments": arguments or {}}))

    async def complete(self, ref: str, argument: str, value: str, *, given: dict[str, str] | None = None) -> Completion:
        """Suggestions for an argument of the prompt, or of the resource template, *ref*."""
        kind = {"type": "ref/resource", "uri": ref} if "://" in ref else {"type": "ref/prompt", "name": ref}
        params = {"ref": kind, "argument": {"name": argument, "value": value}, "context": {"arguments": given or {}}}
        return _read(CompleteResult, await self.request("completion/complete", params)).completion

    async def _list(self, method: str, member: str, kind: type[T]) -> list[T]:
        found: list[T] = []
        params: dict[str, Any] = {}
        while True:
            result = await self.request(method, params)
            found += msgspec.convert(result[member], list[kind])  # type: ignore[valid-type]  # a type at run time
            if "nextCursor" not in result:
                return found
            params = {"cursor": result["nextCursor"]}

    def _envelope(self) -> dict[str, Any]:
        return {
            _META + "protocolVersion": self._revision,
            _META + "clientCapabilities": self._declared(),
            _META + "clientInfo": {"name": "mcpd.testing", "version": "1"},
        }

    def _declared(self) -> dict[str, Any]:
        names = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
        declared: dict[str, Any] = {names[method]: {} for method in self._answerers}
        if "elicitation" in declared:
            declared["elicitation"] = {"form": {}, "url": {}}
        return declared

    async def initialize(self) -> None:
        """Introduce the two to each other, as the era has it; `connect` does so."""
        if self._revision in MODERN:
            result = await self.request("server/discover")
            self.server_info = result["_meta"][_META + "serverInfo"]
        else:
            params = {
                "protocolVersion": self._revision,
                "capabilities": self._declared(),
                "clientInfo": {"name": "mcpd.testing", "version": "1"},
            }
            result = await self.request("initialize", params)
            self.server_info = result["serverInfo"]
            await self.notify("notifications/initialized")
        self.capabilities = result["capabilities"]

    async def receive(self, nursery: trio.Nursery, data: bytes) -> None:
        """A message from the server; `connect` brings it."""
        message: dict[str, Any] = msgspec.json.decode(data)
        await trio.lowlevel.checkpoint()
        if "method" not in message:
            waiting = self._waiting.get(message["id"])
            if waiting is not None:
                waiting[1].append(message)
                waiting[0].set()
        elif "id" in message:
            nursery.start_soon(self._answer, message)
        else:
            self.notifications.append(message)
            self.notified.set()

    async def _answer(self, message: dict[str, Any]) -> None:
        try:
            answer = jsonrpc.encode_result(
                message["id"], await self._answerers[message["method"]](message.get("params", {}))
            )
        except ProtocolError as exc:
            answer = jsonrpc.encode_error(message["id"], exc)
        await self._connection.receive(answer)


@asynccontextmanager
async def connect(
    server: Server,
    *,
    revision: str | None = None,
    elicit: Answerer | None = None,
    sample: Answerer | None = None,
    roots: Answerer | None = None,
    store: Store | str = "memory",
    **options: Unpack[Options],
) -> AsyncGenerator[Client, None]:
    """Connect a client to *server* in this process.

    ``async with mcpd.testing.connect(server) as client: await client.call_tool("add", {"a": 1, "b": 2})``

    Args:
      server: the server under test; its lifespan is open while the client is connected.
      revision: a revision of the protocol to speak, instead of the newest of the era.
      elicit: answers elicitations: an async function from the request's params to its result.
      sample: answers sampling requests.
      roots: answers ``roots/list``. What has no function is not declared.
      store: a store, or its URL.
      options: see `Settings`; those of HTTP have no meaning here. With ``era="legacy"`` the client speaks the newest
        legacy revision, else the newest of all.

    What fails in the block is raised as it is, not in a group of nurseries.

    Raises:
      ValueError: an unknown revision.
      SettingError: an option that can never work.
    """
    name = revision or (LATEST_LEGACY.name if options.get("era") == "legacy" else next(iter(MODERN)))
    if name not in REVISIONS:
        raise ValueError(f"Unknown revision {name!r}; known are {', '.join(REVISIONS)}")
    failure: BaseException | None = None
    answerers = {"elicitation/create": elicit, "sampling/createMessage": sample, "roots/list": roots}
    core = Core(server, open_store(store) if isinstance(store, str) else store, Settings(**options))
    async with core.running(), trio.open_nursery() as nursery:

        async def send(data: bytes) -> None:
            await client.receive(nursery, data)

        connection = Connection(core, send)
        client = Client(
            connection, name, {method: answer for method, answer in answerers.items() if answer is not None}
        )
        async with connection.running():
            await client.initialize()
            try:
                yield client
            except (trio.Cancelled, GeneratorExit):
                raise
            except BaseException as exc:  # noqa: BLE001 - raised below, outside of the nurseries
                failure = exc
        nursery.cancel_scope.cancel()
    if failure is not None:
        try:
            raise failure
        finally:
            failure = None  # no cycle with the traceback


def _read(kind: type[T], result: dict[str, Any]) -> T:
    return msgspec.json.decode(msgspec.json.encode(result), type=kind)
