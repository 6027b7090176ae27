"""What the replicas of these tests serve: each tool shows one thing that replicas have to do together."""

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import trio
from msgspec import Struct

from mcpd import Context, Server


@asynccontextmanager
async def lifespan(_: Server) -> AsyncGenerator[trio.Nursery]:
    async with trio.open_nursery() as nursery:
        yield nursery
        nursery.cancel_scope.cancel()


server = Server("replica", version="1", lifespan=lifespan)


class Name(Struct):
    name: str


@server.tool
async def pid() -> int:
    """Which process this is."""
    return os.getpid()


@server.tool
async def echo(text: str, seconds: float = 0.0) -> str:
    """The text, after some time."""
    await trio.sleep(seconds)
    return text


@server.tool
async def count(ctx: Context) -> int:
    """How often the session has called this."""
    assert ctx.session is not None
    value: int = await ctx.session.update("count", lambda number: number + 1, 0)
    return value


@server.tool
async def own(ctx: Context, value: str = "") -> str:
    """Keep a value in the session, or tell it."""
    assert ctx.session is not None
    if value:
        await ctx.session.set("own", value)
    return str(await ctx.session.get("own"))


@server.tool
async def spell(ctx: Context, word: str, pause: float) -> str:
    """Tell the word letter by letter, as progress; then all of it."""
    for number, letter in enumerate(word, 1):
        await ctx.progress(number, len(word), letter)
        await trio.sleep(pause)
    return word


@server.tool
async def hold(ctx: Context, label: str, seconds: float = 1e9) -> str:
    """Go on for ever, or nearly; the log says what became of it."""
    await ctx.progress(1)
    print(f"holding {label}", file=sys.stderr, flush=True)
    try:
        await trio.sleep(seconds)
    except trio.Cancelled:
        print(f"cancelled {label}", file=sys.stderr, flush=True)
        raise
    return label


@server.tool
async def ask(ctx: Context, question: str, timeout: float = 600.0) -> str:
    """Ask the user, and tell who asked and what was answered."""
    answer = await ctx.elicit(question, Name, key="name", timeout=timeout)
    return f"{os.getpid()} {answer.action} {answer.content.name if answer.content else None}"


@server.tool
async def ask_twice(ctx: Context) -> str:
    """Two questions, one after the other."""
    first = await ctx.elicit("And the first name?", Name, key="first")
    assert first.content is not None
    last = await ctx.elicit(f"And the last name, {first.content.name}?", Name, key="last")
    assert last.content is not None
    return f"{first.content.name} {last.content.name}"


@server.tool
async def change(ctx: Context, uri: str = "") -> str:
    """Change a resource, or without a URI the list of tools; the latter in the background."""
    if uri:
        await ctx.notify_resource_updated(uri)
    else:
        background: Any = ctx.lifespan
        background.start_soon(_change_tools)
    return "changed"


async def _change_tools() -> None:
    await trio.sleep(0.05)
    # One change: what is added and gone within a moment may be told once or twice.
    if any(tool.name == "extra" for tool in server.tools):
        server.remove_tool("extra")
    else:
        server.add_tool(extra)


async def extra() -> str:
    """Come and go."""
    return "extra"


@server.tool
async def keep(ctx: Context, value: str) -> str:
    """Keep a value for later calls."""
    handle: str = await ctx.handles.create(value, ttl=60.0)
    return handle


@server.tool
async def kept(ctx: Context, handle: str) -> str:
    """What was kept."""
    value: str = await ctx.handles.get(handle)
    return value


@server.tool(task="optional")
async def work(seconds: float) -> str:
    """Take some time."""
    await trio.sleep(seconds)
    return "worked"


@server.prompt
async def greet(name: str) -> str:
    return f"Greet {name}."


@server.resource("replica://{name}")
async def thing(name: str) -> str:
    return name
