# notes.py
from mcpd import Context, Server, ToolError

server = Server("notes", version="1.0", instructions="Short notes, by name.")
notes: dict[str, str] = {"milk": "Buy some."}


@server.tool
async def write(name: str, text: str, ctx: Context) -> str:
    """Write a note.

    Args:
      name: What to find it by.
      text: What it says.
    """
    notes[name] = text
    await ctx.notify_resource_updated(f"note://{name}")
    return f"{name} is written"


@server.tool(read_only=True)
async def length(name: str) -> int:
    """How long a note is."""
    if name not in notes:
        raise ToolError(f"There is no note {name!r}; there are {', '.join(notes)}")
    return len(notes[name])


@server.resource("note://{name}", mime_type="text/plain")
async def note(name: str) -> str | None:
    """A note."""
    return notes.get(name)


@server.prompt
async def tidy(name: str) -> str:
    """Ask for a better version of a note."""
    return f"Make this shorter: {notes.get(name, '')}"
