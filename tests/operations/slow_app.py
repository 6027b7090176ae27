"""A server whose tool takes as long as it is told."""

import trio

from mcpd import Server

server = Server("slow", version="1")


@server.tool
async def wait(seconds: float) -> str:
    await trio.sleep(seconds)
    return f"waited {seconds:g}"
