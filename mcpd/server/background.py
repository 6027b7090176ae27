"""The seam to what runs tasks, which stands above the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from mcpd.errors import METHOD_NOT_FOUND, CapabilityError, ProtocolError

if TYPE_CHECKING:
    from mcpd.protocol.requests import CallToolParams
    from mcpd.protocol.revisions import Revision
    from mcpd.server.call import Call
    from mcpd.server.offer import Offer
    from mcpd.server.tools import ToolEntry

TASKS: Final = "io.modelcontextprotocol/tasks"
"""The identifier of the extension (SEP-2663)."""
TaskSupport: TypeAlias = Literal["optional", "required"]


class TaskRunner(Protocol):
    """Runs calls as tasks."""

    async def start(self, call: Call, params: CallToolParams, *, later: bool) -> Any:
        """Run the call as a task and return what its request is answered with.

        With *later* the call first runs as part of its request, until it calls ``Context.start_task``; what it asks
        until then, it asks in rounds.

        Raises:
          ProtocolError: there are too many tasks.
        """
        ...


def as_task(offer: Offer, call: Call, tool: ToolEntry, params: CallToolParams) -> bool:
    """Whether this call of a tool is to run as a task.

    Raises:
      ProtocolError: the tool runs as a task only and the client cannot have one, or the other way round.
    """
    if call.background is not None:
        return False  # it is running as one
    if call.revision.modern:
        # "The server is the sole decider"; the client only says, in each request, that it can (SEP-2663).
        declared = TASKS in (call.capabilities.extensions or {})
        if tool.task == "required" and not declared:
            raise CapabilityError({"extensions": {TASKS: {}}}, what="tasks extension")
        return tool.task is not None and declared
    if not call.revision.priming or not offer.has_tasks:
        return False  # the revision, or the server, has no tasks: "process requests of that type normally"
    asked = bool(params.task)
    if tool.task == "optional" or asked == (tool.task == "required"):
        return asked
    how = "as a task only" if tool.task == "required" else "not as a task"
    raise ProtocolError(METHOD_NOT_FOUND, f"Tool {tool.name!r} can be called {how}")


def unknown_method(method: str, revision: Revision) -> ProtocolError:
    """-32601; over modern HTTP with status 404 (2026-07-28, basic/transports/streamable-http)."""
    status = 404 if revision.modern else None
    return ProtocolError(METHOD_NOT_FOUND, f"Unknown method {method!r}", http_status=status)
