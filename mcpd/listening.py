"""``subscriptions/listen``: what is asked for, and what is told (2026-07-28, basic/patterns/subscriptions)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from mcpd.errors import INVALID_PARAMS, CapabilityError, ProtocolError, ScopeError
from mcpd.protocol.jsonrpc import encode_notification, encode_result
from mcpd.protocol.requests import ListenParams, decode_params
from mcpd.server.background import TASKS
from mcpd.server.principal import check_scopes

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from mcpd.core import Core
    from mcpd.server.call import Call
    from mcpd.server.changes import Change

METHOD: Final = "subscriptions/listen"
MAX_SUBSCRIPTIONS: Final = 1_000
_ID: Final = "io.modelcontextprotocol/subscriptionId"


class Sink(Protocol):
    """Where the notifications go."""

    def __call__(self, message: bytes, /) -> Awaitable[object]:
        """Take one; never waits for the client."""
        ...


class Listening:
    """One subscription: `mcpd.sessions.subscriptions.Subscriber`."""

    def __init__(self, core: Core, call: Call, send: Sink) -> None:
        """
        Args:
          core: whose changes.
          call: the ``subscriptions/listen`` request.
          send: takes the notifications.

        Raises:
          ProtocolError: -32602 for a filter that is none, -32021 for tasks without the extension.
        """  # noqa: D205, D212 - the class says it
        wanted = decode_params(ListenParams, call.params).notifications
        if len(wanted.resource_subscriptions or ()) + len(wanted.task_ids or ()) > MAX_SUBSCRIPTIONS:
            raise ProtocolError(INVALID_PARAMS, f"A subscription names at most {MAX_SUBSCRIPTIONS} resources and tasks")
        if wanted.task_ids is not None and TASKS not in (call.capabilities.extensions or {}):
            raise CapabilityError({"extensions": {TASKS: {}}}, what="tasks extension")
        offered = core.dispatcher.offer.capabilities(call.revision)
        honoured: dict[str, Any] = {
            name: True
            for name, asked, kind in (
                ("toolsListChanged", wanted.tools_list_changed, "tools"),
                ("promptsListChanged", wanted.prompts_list_changed, "prompts"),
                ("resourcesListChanged", wanted.resources_list_changed, "resources"),
            )
            if asked and kind in offered
        }
        uris = [uri for uri in wanted.resource_subscriptions or () if _may_hear(core, call, uri)]
        if uris and "resources" in offered:
            honoured["resourceSubscriptions"] = uris
        if wanted.task_ids and core.dispatcher.offer.has_tasks:
            honoured["taskIds"] = wanted.task_ids
        self._core = core
        self._call = call
        self._send = send
        self._honoured = honoured
        self._uris = frozenset(honoured.get("resourceSubscriptions", ()))
        self._task_ids = frozenset(honoured.get("taskIds", ()))
        # The id as it came, of its own type; every message carries it.
        self._meta: dict[str, object] = {_ID: call.id}

    @property
    def empty(self) -> bool:
        """Whether it can never carry anything."""
        return not self._honoured

    @property
    def acknowledgement(self) -> bytes:
        """The first message: what of the filter is honoured."""
        params = {"_meta": self._meta, "notifications": self._honoured}
        return encode_notification("notifications/subscriptions/acknowledged", params)

    @property
    def result(self) -> bytes:
        """The last message, when the server ends it."""
        return encode_result(self._call.id, {"resultType": "complete", "_meta": self._meta})

    async def deliver(self, change: Change) -> None:
        """Send the notification, if it was asked for."""
        if change.kind == "task":
            if change.uri in self._task_ids:
                await self._deliver_task(change.uri)
        elif change.uri in self._uris if change.kind == "resource" else f"{change.kind}ListChanged" in self._honoured:
            await self._send(change.notification(self._meta))

    async def _deliver_task(self, task_id: str) -> None:
        try:
            _, record = await self._core.tasks.load(self._call, task_id)
        except ProtocolError:
            return  # gone, or somebody else's
        await self._send(encode_notification("notifications/tasks", record.modern() | {"_meta": self._meta}))


def _may_hear(core: Core, call: Call, uri: str) -> bool:
    """Whether the caller may read the resource, so that its updates are no secret to it."""
    found = core.dispatcher.offer.resource(uri)
    try:
        check_scopes(call, () if found is None else found[0].scopes)
    except ScopeError:
        return False
    return True
