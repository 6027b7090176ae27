"""A server whose tools log, and fail."""

import logging

import trio

from mcpd import Context, Server

server = Server("logging", version="1")
logger = logging.getLogger("app")


@server.tool
async def say(text: str) -> str:
    logger.info("said\nsomething")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_aside)
    return text


async def _aside() -> None:
    logger.info("aside")
    await trio.lowlevel.checkpoint()


@server.tool
def threaded(text: str) -> str:
    logger.info("in a thread")
    return text


@server.tool
async def fail(text: str) -> str:
    raise RuntimeError("broken")


@server.tool
async def blame(text: str) -> str:
    logger.info("Blamed: %s", text)
    raise ValueError(text)


@server.tool
async def keep(text: str, ctx: Context) -> str:
    assert ctx.session is not None
    await ctx.session.set("text", text)
    await trio.sleep(30)
    return text
