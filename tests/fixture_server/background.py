"""Tools that may, or must, run as tasks."""

import trio
from msgspec import Struct

from mcpd import Context, ProtocolError, ToolError
from tests.fixture_server.app import server
from tests.fixture_server.rounds import ask_name


class Confirm(Struct):
    """Whether to do it."""

    confirm: bool


@server.tool(task="optional")
async def slow_compute(seconds: float, label: str = "") -> str:
    """Take some time."""
    await trio.sleep(seconds)
    return f"Computed {label or 'it'} in {seconds:g} s"


@server.tool(task="required")
async def failing_job() -> str:
    """Work for a second, and fail as a tool does."""
    await trio.sleep(1)
    raise ToolError("The job failed, as it always does")


@server.tool(task="optional")
async def protocol_error_job() -> str:
    """Fail as a request does."""
    await trio.lowlevel.checkpoint()
    raise ProtocolError(-32603, "The job could not be run")


@server.tool(task="required")
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Ask before deleting."""
    answer = await ctx.elicit(f"Really delete {filename}?", Confirm, key="confirm")
    done = answer.content is not None and answer.content.confirm
    return f"{filename} was {'deleted' if done else 'kept'}"


@server.tool(task="required")
async def multi_input(ctx: Context) -> str:
    """Ask two things at the same time."""
    told: dict[str, str] = {}

    async def name() -> None:
        told["name"] = await ask_name(ctx, key="name")

    async def confirm() -> None:
        answer = await ctx.elicit("Go on?", Confirm, key="confirm")
        told["confirm"] = answer.action

    async with trio.open_nursery() as nursery:
        nursery.start_soon(name)
        nursery.start_soon(confirm)
    return "{name}: {confirm}".format_map(told)


@server.tool(task="required", task_later=True)
async def test_tool_with_task(ctx: Context) -> str:
    """Ask for a name first; what takes long is a task."""
    name = await ask_name(ctx)
    await ctx.start_task()
    await trio.sleep(0.5)
    return f"Done, {name}"
