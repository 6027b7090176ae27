"""A server with one of everything that a revision may know or not."""

from typing import Any

import msgspec

from mcpd import (
    Annotations,
    Audio,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    Context,
    EmbeddedResource,
    Icon,
    Image,
    PromptMessage,
    ResourceLink,
    Server,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
    ToolError,
)

ICON = Icon("https://example.com/i.png", mime_type="image/png", sizes=["48x48"], theme="dark")
PNG = b"\x89PNG\r\n\x1a\n"
WAV = b"RIFF\x00\x00\x00\x00WAVE"


class Weather(msgspec.Struct):
    """How it is outside."""

    city: str
    degrees: float


def everything(**options: Any) -> Server:
    """The server; each has its own."""
    server = Server(
        "everything",
        version="1.2.3",
        title="Everything",
        description="One of each",
        instructions="Use it.",
        website_url="https://example.com",
        icons=[ICON],
        **options,
    )

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers.

        Args:
          a: the first.
          b: the second.
        """
        return a + b

    @server.tool(
        title="The weather",
        icons=[ICON],
        annotations=ToolAnnotations(title="Weather", read_only_hint=True, idempotent_hint=True),
        meta={"com.example/kind": "weather"},
    )
    async def weather(city: str) -> Weather:
        return Weather(city, 21.5)

    @server.tool
    async def blocks() -> Any:
        link = ResourceLink(
            uri="note://1",
            name="n",
            title="Note",
            icons=[ICON],
            annotations=Annotations(audience=["user"], priority=0.5, last_modified="2025-01-12T15:00:58Z"),
        )
        return [
            TextContent("text", annotations=Annotations(audience=["user", "assistant"], priority=1.0)),
            Image(PNG, mime_type="image/png"),
            Audio(WAV, mime_type="audio/wav"),
            link,
            EmbeddedResource(TextResourceContents(uri="note://1", mime_type="text/plain", text="hello")),
            EmbeddedResource(BlobResourceContents(uri="note://2", blob="AAE=")),
        ]

    @server.tool
    async def fail(how: str) -> str:
        if how == "tool":
            raise ToolError("the disk is full")
        if how == "result":
            return CallToolResult([TextContent("no")], is_error=True)  # type: ignore[return-value]
        raise RuntimeError(f"secret of {how}")

    @server.tool
    async def report(steps: int, ctx: Context) -> str:
        for step in range(1, steps + 1):
            await ctx.progress(step, steps, f"step {step}")
            await ctx.info({"step": step})
        return "reported"

    @server.resource("note://1", title="A note", mime_type="text/plain", icons=[ICON], size=5, meta={"x": 1})
    async def note() -> str:
        """The first note."""
        return "hello"

    @server.resource("bytes://1")
    async def some_bytes() -> bytes:
        return bytes(range(256))

    @server.resource("broken://1")
    async def broken() -> str:
        raise RuntimeError("secret of the resource")

    @server.resource("user://{name}/{page}", title="A page", icons=[ICON])
    async def page(name: str, page: int) -> str | None:
        return None if name == "nobody" else f"{name} {page}"

    @server.prompt(title="Ask", icons=[ICON])
    async def ask(topic: str, tone: str = "kind") -> list[Any]:
        """Ask about something."""
        return [
            f"Tell me about {topic}, {tone}",
            PromptMessage("assistant", TextContent("Well")),
            PromptMessage("user", Image(PNG, mime_type="image/png")),
            PromptMessage("user", AudioContent("AAE=", "audio/wav")),
            PromptMessage("user", EmbeddedResource(TextResourceContents(uri="note://1", text="hello"))),
            PromptMessage("user", ResourceLink(uri="note://1", name="n", icons=[ICON])),
        ]

    @server.prompt
    async def broken_prompt() -> str:
        raise RuntimeError("secret of the prompt")

    @server.completion("ask", "topic")
    async def complete_topic(value: str) -> list[str]:
        return [word for word in ("trio", "tricycle", "nursery") if word.startswith(value)]

    @server.completion("user://{name}/{page}", "name")
    async def complete_name(value: str, ctx: Context) -> list[str]:
        return [f"{value}-{ctx.completion_arguments.get('page', '?')}"]

    return server
