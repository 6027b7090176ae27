"""Resources: text, bytes, one to watch, and a family of them."""

import msgspec

from tests.fixture_server.app import server
from tests.fixture_server.media import PNG


@server.resource("test://static-text", mime_type="text/plain")
async def static_text() -> str:
    """A text that never changes."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
async def static_binary() -> bytes:
    """A picture of one pixel."""
    return PNG


@server.resource("test://watched-resource", mime_type="text/plain")
async def watched_resource() -> str:
    """A text to subscribe to; `test_trigger_resource_update` says that it changed."""
    return "Watched resource content"


@server.resource("test://template/{id}/data", title="Data by id", mime_type="application/json")
async def data(id: str) -> str:
    """The data of an id."""
    return msgspec.json.encode({"id": id, "templateTest": True, "data": f"Data for ID: {id}"}).decode()


@server.completion("test://template/{id}/data", "id")
async def complete_id(value: str) -> list[str]:
    """The ids that begin with `value`."""
    return [number for number in ("1", "12", "123", "42") if number.startswith(value)]
