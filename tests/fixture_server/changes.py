"""Tools that change what the server offers, for clients that want to hear of it."""

from mcpd import Context
from tests.fixture_server.app import server


async def passing_tool() -> str:
    """Come and go."""
    return "here"


async def passing_prompt() -> str:
    """Come and go."""
    return "here"


@server.tool
async def test_trigger_tool_change() -> str:
    """Add a tool and take it away again; clients hear of both."""
    server.add_tool(passing_tool)
    server.remove_tool("passing_tool")
    return "The list of tools changed."


@server.tool
async def test_trigger_prompt_change() -> str:
    """Add a prompt and take it away again; clients hear of both."""
    server.add_prompt(passing_prompt)
    server.remove_prompt("passing_prompt")
    return "The list of prompts changed."


@server.tool
async def test_trigger_resource_update(ctx: Context) -> str:
    """Say that the watched resource changed."""
    await ctx.notify_resource_updated("test://watched-resource")
    return "The watched resource changed."
