"""``subscriptions/listen``: what is asked for, and what is told (2026-07-28, basic/patterns/subscriptions)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from mcpd.errors import INTERNAL_ERROR, INVALID_PARAMS, CapabilityError, ProtocolError, ScopeError, StoreError
from mcpd.protocol.jsonrpc import encode_notification, encode_result
from mcpd.protocol.requests import ListenParams, decode_params
from mcpd.server.background import TASKS
from mcpd.server.changes import Change
from mcpd.server.principal import check_scopes
from mcpd.sessions.record import MAX_SUBSCRIPTIONS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from mcpd.core import Core
    from mcpd.server.call import Call
    from mcpd.tasks.record import TaskRecord

METHOD: Final = "subscriptions/listen"
_ID: Final = "io.modelcontextprotocol/subscriptionId"


class Sink(Protocol):
    """Where the notifications go."""

    def __call__(self, message: bytes, /) -> Awaitable[object]:
        """Take one; never waits for the client."""
        ...


class Listening:
    """One subscription: `mcpd.sessions.subscriptions.Subscriber`."""

    def __init__(self, core: Core, call: Call, send: Sink, end: Callable[[], Awaitable[object]]) -> None:
        """
        Args:
          core: whose changes.
          call: the ``subscriptions/listen`` request.
          send: takes the acknowledgement, then the notifications.
          end: sends the last message and ends it, once nothing can follow.

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
        self._end = end
        self._honoured = honoured
        self._uris = frozenset(honoured.get("resourceSubscriptions", ()))
        self._task_ids = set[str](honoured.get("taskIds", ()))
        """Those that are not over, as far as has been told."""
        self._meta = _meta(call)
        self._early: dict[Change, None] | None = {}
        """What has changed before the acknowledgement, and is told after it."""

    @property
    def empty(self) -> bool:
        """Whether it can carry nothing any more."""
        return not self._task_ids and not self._honoured.keys() - {"taskIds"}

    @property
    def acknowledgement(self) -> bytes:
        """The first message: what of the filter is honoured."""
        params = {"_meta": self._meta, "notifications": self._honoured}
        return encode_notification("notifications/subscriptions/acknowledged", params)

    @property
    def result(self) -> bytes:
        """The last message, when the server ends it."""
        return last(self._call)

    async def begin(self) -> None:
        """Acknowledge, once it is known which tasks are the caller's; end at once what can carry nothing.

        Changes that are delivered meanwhile are not lost, so it must be subscribed before.

        Raises:
          ProtocolError: the store cannot be reached.
        """
        early: dict[Change, None] = {}
        try:
            for task_id in list(self._task_ids):
                record = await self._load(task_id)
                if record is None:
                    self._task_ids.discard(task_id)
                elif record.over:
                    early[Change("task", task_id)] = None
        except StoreError as exc:
            message = "The session store cannot be reached; try again"
            raise ProtocolError(INTERNAL_ERROR, message, http_status=503) from exc
        if "taskIds" in self._honoured:
            # Another's, and what is no task, can never be told of.
            known = [task_id for task_id in self._honoured.pop("taskIds") if task_id in self._task_ids]
            if known:
                self._honoured["taskIds"] = known
        await self._send(self.acknowledgement)
        early |= self._early or {}
        self._early = None
        for change in early:
            await self._deliver(change)
        if self.empty:
            await self._end()
        elif self._task_ids:
            self._core.tasks.followers.add(self)

    async def deliver(self, change: Change) -> None:
        """Send the notification, if it was asked for."""
        if not self._wants(change):
            return
        if self._early is not None:
            self._early[change] = None
            return
        await self._deliver(change)
        if self.empty:
            await self._end()

    async def missed(self, lists: Sequence[Change]) -> None:
        """Changes may have been lost: tell of all that is subscribed to."""
        named = [*(Change("resource", uri) for uri in self._uris), *(Change("task", each) for each in self._task_ids)]
        for change in (*lists, *named):
            await self.deliver(change)

    async def look(self) -> None:
        """Read the tasks: `mcpd.tasks.tasks.Follower`."""
        for task_id in list(self._task_ids):
            await self._load(task_id)

    def _wants(self, change: Change) -> bool:
        if change.kind == "task":
            return change.uri in self._task_ids
        return change.uri in self._uris if change.kind == "resource" else f"{change.kind}ListChanged" in self._honoured

    async def _deliver(self, change: Change) -> None:
        if change.kind != "task":
            await self._send(change.notification(self._meta))
            return
        record = await self._load(change.uri)
        if change.uri not in self._task_ids:
            return  # its end has been told meanwhile
        if record is None or record.over:
            self._task_ids.discard(change.uri)
        if record is not None:
            await self._send(encode_notification("notifications/tasks", record.modern() | {"_meta": self._meta}))

    async def _load(self, task_id: str) -> TaskRecord | None:
        """The task; None when it is gone, or somebody else's."""
        try:
            return (await self._core.tasks.load(self._call, task_id))[1]
        except ProtocolError:
            return None


def last(call: Call) -> bytes:
    """The last message of the subscription that *call* began."""
    return encode_result(call.id, {"resultType": "complete", "_meta": _meta(call)})


def _meta(call: Call) -> dict[str, object]:
    # The id as it came, of its own type; every message carries it.
    return {_ID: call.id}


def _may_hear(core: Core, call: Call, uri: str) -> bool:
    """Whether the caller may read the resource, so that its updates are no secret to it."""
    found = core.dispatcher.offer.resource(uri)
    try:
        check_scopes(call, () if found is None else found[0].scopes)
    except ScopeError:
        return False
    return True
