"""The server itself; the other modules import it and add to it."""

from typing import Final

from mcpd import Server

server: Final = Server(
    "mcpd-fixture",
    version="1.0",
    title="mcpd fixture server",
    description="Everything a client can meet, in its smallest form.",
    instructions="Call any tool: none of them has a lasting effect.",
)
