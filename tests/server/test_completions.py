"""Completion of the arguments of prompts and templates."""

import pytest

from mcpd import Context, ProtocolError, Server
from mcpd.server.signature import SignatureError
from tests import wire
from tests.requirements import requirement
from tests.server.everything import everything
from tests.server.peer import Peer, talking

every_revision = pytest.mark.parametrize("revision", wire.REVISIONS)
ASK = {"type": "ref/prompt", "name": "ask"}
PAGE = {"type": "ref/resource", "uri": "user://{name}/{page}"}


async def complete(peer: Peer, ref: dict[str, str], argument: str, value: str, **context: object) -> dict:
    params = {"ref": ref, "argument": {"name": argument, "value": value}, **context}
    return (await peer.result("completion/complete", params))["completion"]


@requirement("P216", "P218")
@every_revision
async def test_the_function_suggests_and_its_order_stays(revision):
    async with talking(everything(), revision) as peer:
        assert await complete(peer, ASK, "topic", "tri") == {
            "values": ["trio", "tricycle"],
            "total": 2,
            "hasMore": False,
        }
        assert (await complete(peer, ASK, "topic", "x"))["values"] == []


@requirement("P218")
@every_revision
async def test_arguments_given_already_are_at_hand(revision):
    async with talking(everything(), revision) as peer:
        found = await complete(peer, PAGE, "name", "bob", context={"arguments": {"page": "7"}})
        assert found["values"] == ["bob-7"]
        assert (await complete(peer, PAGE, "name", "bob"))["values"] == ["bob-?"]
        assert (await complete(peer, PAGE, "name", "bob", context={}))["values"] == ["bob-?"]


@requirement("P216")
@every_revision
async def test_an_argument_without_a_function_has_no_suggestions(revision):
    async with talking(everything(), revision) as peer:
        assert (await complete(peer, ASK, "tone", ""))["values"] == []
        assert (await complete(peer, PAGE, "page", ""))["values"] == []


@requirement("P217")
@every_revision
@pytest.mark.parametrize(
    ("ref", "argument"),
    [
        ({"type": "ref/prompt", "name": "nobody"}, "topic"),
        (ASK, "nothing"),
        ({"type": "ref/resource", "uri": "user://bob/1"}, "name"),
        ({"type": "ref/resource", "uri": "nothing://{x}"}, "x"),
        (PAGE, "nothing"),
        ({"type": "ref/resource", "uri": "note://1"}, "x"),
    ],
)
async def test_what_there_is_not_cannot_be_completed_for(revision, ref, argument):
    async with talking(everything(), revision) as peer:
        error = await peer.error("completion/complete", {"ref": ref, "argument": {"name": argument, "value": ""}})
    assert error["code"] == -32602


@requirement("P216")
@pytest.mark.parametrize(("count", "more"), [(0, False), (99, False), (100, False), (101, True), (5_000, True)])
async def test_there_are_at_most_100_values(count, more):
    server = everything()

    @server.completion("ask", "tone")
    async def many(value: str) -> list[str]:
        return [str(n) for n in range(count)]

    async with talking(server) as peer:
        found = await complete(peer, ASK, "tone", "")
    assert found == {"values": [str(n) for n in range(min(count, 100))], "total": count, "hasMore": more}


@requirement("A9", "P219")
async def test_a_function_that_fails_tells_nothing_of_why(caplog):
    server = everything()

    @server.completion("ask", "tone")
    async def fails(value: str) -> list[str]:
        raise RuntimeError("secret")

    async with talking(server) as peer:
        error = await peer.error("completion/complete", {"ref": ASK, "argument": {"name": "tone", "value": ""}})
    assert error["code"] == -32603
    assert "secret" not in error["message"]
    assert "secret" in caplog.text


@requirement("P219")
async def test_a_function_may_refuse():
    server = everything()

    @server.completion("ask", "tone")
    async def refuses(value: str, ctx: Context) -> list[str]:
        raise ProtocolError(-31001, "Not for you")

    async with talking(server) as peer:
        error = await peer.error("completion/complete", {"ref": ASK, "argument": {"name": "tone", "value": ""}})
    assert (error["code"], error["message"]) == (-31001, "Not for you")


async def test_a_completion_that_cannot_ask_its_client_fails_with_a_code_of_the_era():
    server = Server("s")

    @server.prompt
    async def ask(topic: str) -> str:
        return topic

    @server.completion("ask", "topic")
    async def topics(text: str, ctx: Context) -> list[str]:
        return [root.uri for root in await ctx.roots()]

    async with talking(server, capabilities={"roots": {}}) as peer:
        params = {"ref": {"type": "ref/prompt", "name": "ask"}, "argument": {"name": "topic", "value": ""}}
        assert (await peer.error("completion/complete", params))["code"] == -32603


def test_a_function_takes_the_text_and_perhaps_the_context():
    server = Server("s")

    async def two(a: str, b: str) -> list[str]:
        return []

    async def none() -> list[str]:
        return []

    for function in (two, none):
        with pytest.raises(SignatureError, match="one parameter"):
            server.completion("p", "a")(function)
