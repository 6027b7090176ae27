"""The server that ``mcpd serve`` shows when it is given none."""

from __future__ import annotations

import trio

from mcpd.server.context import Context
from mcpd.server.server import Server

server = Server("mcpd-demo", version="1", instructions="A small server to try a client on.")


@server.tool(read_only=True)
async def echo(text: str) -> str:
    """Say *text* again.

    Args:
      text: What to say.
    """
    return text


@server.tool(read_only=True)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def count(ctx: Context) -> int:
    """Count the calls of this tool in this session."""
    if ctx.session is None:
        return 1  # a modern request has no session: each is the first
    new: int = await ctx.session.update("count", lambda n: n + 1, 0)
    return new


@server.tool(read_only=True)
async def slow(seconds: float, ctx: Context) -> str:
    """Take some time, and report progress each tenth of it.

    Args:
      seconds: How long to take, at most 600.
      ctx: Where progress goes.
    """
    seconds = min(max(seconds, 0.0), 600.0)
    for step in range(10):
        await ctx.progress(step, 10, f"{step * 10} %")
        await trio.sleep(seconds / 10)
    await ctx.progress(10, 10, "done")
    return f"That took {seconds:g} s"


@server.resource("demo://about", mime_type="text/markdown")
async def about() -> str:
    """What this server is."""
    return "# mcpd\n\nThis is the server that `mcpd serve` shows when it is given none."


@server.resource("demo://greeting/{name}")
async def greeting(name: str) -> str:
    """A greeting for *name*."""
    return f"Hello, {name}!"


@server.prompt
async def summarize(topic: str) -> str:
    """Ask for a summary.

    Args:
      topic: What to summarize.
    """
    return f"Summarize what you know about {topic} in three sentences."


@server.completion("summarize", "topic")
async def complete_topic(value: str) -> list[str]:
    """Topics that begin with *value*."""
    topics = ["memory", "model context protocol", "sessions", "structured concurrency"]
    return [topic for topic in topics if topic.startswith(value.lower())]
