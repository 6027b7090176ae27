# leaky.py
from mcpd import Server

server = Server("leaky")
seen: list[str] = []


@server.tool
async def remember(text: str) -> int:
    """Count the texts so far."""
    seen.append(text.upper())
    return len(seen)
