"""The peer's tools on mcpd: `mcpd serve bench/peers/mcpd_peer.py`."""

from mcpd import Server

server = Server("peer", version="1.0")


@server.tool
async def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
