"""Prompts over one connection."""

import json
from typing import Any

import pytest

from mcpd import PromptMessage, ProtocolError, Server, TextContent, ToolError
from mcpd.protocol.types import GetPromptResult
from tests import wire
from tests.requirements import requirement
from tests.server.everything import everything
from tests.server.peer import talking

every_revision = pytest.mark.parametrize("revision", wire.REVISIONS)


@requirement("O208")
@every_revision
async def test_a_prompt_is_listed_with_its_arguments(revision):
    async with talking(everything(), revision) as peer:
        prompts = {prompt["name"]: prompt for prompt in (await peer.result("prompts/list"))["prompts"]}
    assert prompts["ask"]["description"] == "Ask about something."
    arguments = {argument["name"]: argument.get("required", False) for argument in prompts["ask"]["arguments"]}
    assert arguments == {"topic": True, "tone": False}
    assert prompts["broken_prompt"].get("arguments", []) == []


@requirement("O210", "O211")
@every_revision
@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"name": "nothing"}, "nothing"),
        ({"name": ""}, ""),
        ({"name": "ask"}, "topic"),
        ({"name": "ask", "arguments": {}}, "topic"),
        ({"name": "ask", "arguments": None}, "topic"),
        ({"name": "ask", "arguments": {"tone": "rude"}}, "topic"),
    ],
    ids=str,
)
async def test_an_unknown_prompt_and_a_missing_argument_are_invalid_params(revision, params, says):
    async with talking(everything(), revision) as peer:
        error = await peer.error("prompts/get", params)
    assert error["code"] == -32602
    assert says in error["message"]


@requirement("O211")
async def test_arguments_are_converted_to_what_the_signature_says_or_refused():
    server = Server("s")

    @server.prompt
    async def count(n: int, loud: bool = False) -> str:
        return f"{n!r} {loud!r}"

    async with talking(server) as peer:
        result = await peer.result("prompts/get", {"name": "count", "arguments": {"n": "7", "loud": "true"}})
        assert result["messages"][0]["content"]["text"] == "7 True"
        for wrong in ({"n": "seven"}, {"n": ""}, {"n": "7", "loud": "perhaps"}):
            assert (await peer.error("prompts/get", {"name": "count", "arguments": wrong}))["code"] == -32602


@requirement("O210")
@every_revision
@pytest.mark.parametrize("value", [None, 7, {"a": 1}, [7], object()], ids=lambda value: type(value).__name__)
async def test_what_is_no_prompt_is_an_internal_error(revision, value, caplog):
    server = Server("s")

    @server.prompt
    async def odd() -> Any:
        return value

    async with talking(server, revision) as peer:
        error = await peer.error("prompts/get", {"name": "odd"})
    assert error["code"] == -32603
    assert "object at" not in json.dumps(error)


@every_revision
async def test_a_prompt_may_be_many_things(revision):
    server = Server("s")

    @server.prompt
    async def text() -> str:
        return "hi"

    @server.prompt
    async def whole() -> GetPromptResult:
        return GetPromptResult(
            description="mine", messages=[PromptMessage("assistant", TextContent("x"))], meta={"com.example/a": 1}
        )

    @server.prompt
    async def empty() -> list[str]:
        return []

    async with talking(server, revision) as peer:
        assert (await peer.result("prompts/get", {"name": "text"}))["messages"] == [
            {"role": "user", "content": {"type": "text", "text": "hi"}}
        ]
        result = await peer.result("prompts/get", {"name": "whole"})
        assert (result["description"], result["messages"][0]["role"]) == ("mine", "assistant")
        assert result["_meta"]["com.example/a"] == 1
        assert (await peer.result("prompts/get", {"name": "empty"}))["messages"] == []


@requirement("O210", "O213")
@every_revision
async def test_a_prompt_may_refuse(revision):
    server = Server("s")

    @server.prompt
    async def refuse(how: str) -> str:
        raise ToolError("not today") if how == "tool" else ProtocolError(-31000, "never")

    async with talking(server, revision) as peer:
        error = await peer.error("prompts/get", {"name": "refuse", "arguments": {"how": "tool"}})
        assert (error["code"], error["message"]) == (-32603, "not today")
        error = await peer.error("prompts/get", {"name": "refuse", "arguments": {"how": "else"}})
        assert (error["code"], error["message"]) == (-31000, "never")
