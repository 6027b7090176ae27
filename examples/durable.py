"""A server whose sessions outlive it: ``python examples/durable.py``, Ctrl-C, and again, with the same session."""

from functools import partial

import trio
from sqlite_store import SQLiteStore

import mcpd
from mcpd import Context, Server

server = Server("durable", version="1.0")


@server.tool
async def count(ctx: Context) -> int:
    """Count the calls of this session."""
    if ctx.session is None:
        return 1
    new: int = await ctx.session.update("count", lambda number: number + 1, 0)
    return new


if __name__ == "__main__":
    trio.run(partial(mcpd.serve, server, store=SQLiteStore("sqlite:sessions.db")))
