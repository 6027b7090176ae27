"""A server with a tool that keeps what it is given, and one that does not."""

from mcpd import Server

server = Server("leaky", version="1")
kept: list[str] = []


@server.tool
async def remember(text: str) -> int:
    kept.append(text.upper())  # the leak
    return len(kept)


@server.tool
async def forget(text: str) -> int:
    return len(text.upper())
