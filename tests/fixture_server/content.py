"""Tools that give back one kind of content each."""

from mcpd import Audio, AudioContent, EmbeddedResource, File, Image, ImageContent, Text, TextContent
from tests.fixture_server.app import server
from tests.fixture_server.media import PNG, WAV


@server.tool
async def test_simple_text() -> str:
    """Give a line of text."""
    return "This is a simple text response for testing."


@server.tool
async def test_image_content() -> ImageContent:
    """Give a picture of one pixel."""
    return Image(PNG)


@server.tool
async def test_audio_content() -> AudioContent:
    """Give a millisecond of silence."""
    return Audio(WAV)


@server.tool
async def test_embedded_resource() -> EmbeddedResource:
    """Give what a resource holds, inside the result."""
    return File("This is an embedded resource content.", uri="test://embedded-resource", mime_type="text/plain")


@server.tool
async def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
    """Give text, a picture and a resource in one result."""
    return [
        Text("Multiple content types test:"),
        Image(PNG),
        File('{"test":"data","value":123}', uri="test://mixed-content-resource", mime_type="application/json"),
    ]


@server.tool
async def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"
