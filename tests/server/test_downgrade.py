"""What an older revision lacks is left out, or said with what it has. The peer checks the rest against its schemas."""

from typing import Any

import pytest

from mcpd import CallToolResult, PromptMessage, ResourceLink, Server, TextContent
from tests import wire
from tests.requirements import requirement
from tests.server.everything import everything
from tests.server.peer import Peer, talking

every_revision = pytest.mark.parametrize("revision", wire.REVISIONS)


async def declared(peer: Peer, method: str, member: str, **which: str) -> dict[str, Any]:
    ((key, value),) = which.items()
    entries: list[dict[str, Any]] = (await peer.result(method))[member]
    return next(entry for entry in entries if entry[key] == value)


@requirement("C40", "M182", "Z338")
@every_revision
async def test_a_tool_is_declared_with_what_the_revision_has(revision):
    async with talking(everything(), revision) as peer:
        tool = await declared(peer, "tools/list", "tools", name="weather")
        add = await declared(peer, "tools/list", "tools", name="add")
    expected = {"name", "inputSchema"}
    if revision >= "2025-03-26":
        expected |= {"annotations"}
    if revision >= "2025-06-18":
        expected |= {"title", "outputSchema", "_meta"}
    if revision >= "2025-11-25":
        expected |= {"icons"}
    assert set(tool) == expected
    assert add["inputSchema"]["properties"]["a"] == {"type": "integer", "description": "the first."}
    if "outputSchema" in add:
        is_object = add["outputSchema"].get("type") == "object"
        assert is_object == (revision != wire.MODERN)


@requirement("C40")
@every_revision
@pytest.mark.parametrize(
    ("method", "member", "which", "always"),
    [
        ("resources/list", "resources", {"uri": "note://1"}, {"uri", "name", "description", "mimeType", "size"}),
        (
            "resources/templates/list",
            "resourceTemplates",
            {"uriTemplate": "user://{name}/{page}"},
            {"uriTemplate", "name"},
        ),
        ("prompts/list", "prompts", {"name": "ask"}, {"name", "description", "arguments"}),
    ],
)
async def test_resources_and_prompts_are_declared_with_what_the_revision_has(revision, method, member, which, always):
    async with talking(everything(), revision) as peer:
        found = await declared(peer, method, member, **which)
    expected = set(always)
    if revision == "2024-11-05":
        expected -= {"size"} if "size" not in found else set()  # its schema has the member all the same
    if revision >= "2025-06-18":
        expected |= {"title"} | ({"_meta"} if "size" in always else set())
    if revision >= "2025-11-25":
        expected |= {"icons"}
    assert set(found) == expected


@requirement("C40", "M182", "N207", "N193")
@every_revision
async def test_blocks_that_the_revision_lacks_are_said_with_those_it_has(revision):
    async with talking(everything(), revision) as peer:
        content = (await peer.call("blocks"))["content"]
    kinds = [block["type"] for block in content]
    assert kinds == [
        "text",
        "image",
        "audio" if revision >= "2025-03-26" else "resource",
        "resource_link" if revision >= "2025-06-18" else "text",
        "resource",
        "resource",
    ]
    if revision == "2024-11-05":
        assert content[2]["resource"]["mimeType"] == "audio/wav"
        assert content[2]["resource"]["blob"]
    link = content[3]
    assert ("icons" in link) == (revision >= "2025-11-25")
    assert "note://1" in (link.get("uri") or link["text"])
    if revision >= "2025-06-18":
        assert link["annotations"] == {"audience": ["user"], "priority": 0.5, "lastModified": "2025-01-12T15:00:58Z"}


@requirement("C40", "O212")
@every_revision
async def test_the_same_goes_for_the_messages_of_a_prompt(revision):
    async with talking(everything(), revision) as peer:
        messages = (await peer.result("prompts/get", {"name": "ask", "arguments": {"topic": "x"}}))["messages"]
    assert [message["content"]["type"] for message in messages] == [
        "text",
        "text",
        "image",
        "audio" if revision >= "2025-03-26" else "resource",
        "resource",
        "resource_link" if revision >= "2025-06-18" else "text",
    ]
    assert [message["role"] for message in messages[:2]] == ["user", "assistant"]


@requirement("C40", "M181", "M180")
@every_revision
async def test_structured_content_is_of_its_revisions(revision):
    async with talking(everything(), revision) as peer:
        number = await peer.call("add", {"a": 1, "b": 2})
        thing = await peer.call("weather", {"city": "Rome"})
    assert number["content"] == [{"type": "text", "text": "3"}]
    assert number.get("structuredContent") == {
        "2025-06-18": {"result": 3},
        "2025-11-25": {"result": 3},
        "2026-07-28": 3,
    }.get(revision)
    expected = {"city": "Rome", "degrees": 21.5} if revision >= "2025-06-18" else None
    assert thing.get("structuredContent") == expected


@every_revision
async def test_what_a_handler_keeps_is_not_changed_for_an_older_client(revision):
    """A result that a handler returns twice is its own, whoever asks first."""
    server = everything()
    kept = CallToolResult([ResourceLink(uri="note://1", name="n", icons=[everything().info.icons[0]])])
    text = TextContent("kept")

    @server.tool
    async def again() -> CallToolResult:
        return kept

    @server.tool
    async def listed() -> Any:
        return [text, kept.content[0]]

    async with talking(server, revision) as peer:
        await peer.call("again")
        await peer.call("listed")
    async with talking(server) as peer:
        for tool, index in (("again", 0), ("listed", 1)):
            block = (await peer.call(tool))["content"][index]
            assert block["type"] == "resource_link"
            assert block["icons"], f"a {revision} client took them away"
    assert kept.result_type is None
    assert kept.meta is None


@every_revision
async def test_what_a_prompt_keeps_is_not_changed_either(revision):
    server = Server("s")
    kept = PromptMessage("user", ResourceLink(uri="note://1", name="n", icons=[everything().info.icons[0]]))

    @server.prompt
    async def again() -> Any:
        return [kept]

    async with talking(server, revision) as peer:
        await peer.result("prompts/get", {"name": "again"})
    async with talking(server) as peer:
        (message,) = (await peer.result("prompts/get", {"name": "again"}))["messages"]
        assert message["content"]["type"] == "resource_link"
        assert message["content"]["icons"]


@requirement("C40")
@every_revision
async def test_contents_of_resources_are_in_every_revision(revision):
    async with talking(everything(), revision) as peer:
        text = await peer.result("resources/read", {"uri": "note://1"})
        blob = await peer.result("resources/read", {"uri": "bytes://1"})
    assert text["contents"] == [{"uri": "note://1", "mimeType": "text/plain", "text": "hello"}]
    assert blob["contents"][0]["mimeType"] == "application/octet-stream"
