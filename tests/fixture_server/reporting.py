"""Tools that tell the client how they are doing: log messages, progress, an error, a stream that goes away."""

import trio

from mcpd import Context, ToolError
from tests.fixture_server.app import server

STEP = 0.05  # seconds between two reports, so that a client sees them arrive one by one


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Log three messages on the way."""
    await ctx.info("Tool execution started")
    await trio.sleep(STEP)
    await ctx.info("Tool processing data")
    await trio.sleep(STEP)
    await ctx.info("Tool execution completed")
    return "Logged three messages."


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Log one message."""
    await ctx.log("info", {"tool": "test_logging_tool", "event": "called"}, logger="fixture")
    return "Logged one message."


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress three times."""
    await ctx.progress(0, total=100, message="Started")
    await trio.sleep(STEP)
    await ctx.progress(50, total=100, message="Half way")
    await trio.sleep(STEP)
    await ctx.progress(100, total=100, message="Done")
    return "Reported progress three times."


@server.tool
async def test_error_handling() -> str:
    """Fail, with an explanation for the model."""
    msg = "This tool intentionally returns an error for testing"
    raise ToolError(msg)


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """Close the connection half way; the client picks the result up with a new one."""
    await ctx.close_stream()
    await trio.sleep(0.2)
    return "The result, after a new connection."
