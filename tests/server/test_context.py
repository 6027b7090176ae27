"""What a handler can do besides returning: progress, log messages, and questions to a legacy client."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
import trio

from mcpd import Context, Server
from mcpd.errors import ClientError
from mcpd.protocol.types import (
    ModelPreferences,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)
from tests import wire
from tests.requirements import requirement
from tests.server.peer import MCP, Answerer, Peer, talking

every_revision = pytest.mark.parametrize("revision", wire.REVISIONS)
every_legacy = pytest.mark.parametrize("revision", wire.LEGACY)
ASKING = [revision for revision in wire.LEGACY if revision >= "2025-06-18"]
LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


def doing(what: Callable[[Context], Awaitable[Any]]) -> Server:
    """A server whose one tool does this, and says as text what came of it."""
    server = Server("s")

    @server.tool
    async def do(ctx: Context) -> str:
        return repr(await what(ctx))

    return server


def answering(answer: dict[str, Any], seen: list[dict[str, Any]]) -> Answerer:
    async def answerer(params: dict[str, Any]) -> dict[str, Any]:
        seen.append(params)
        await trio.lowlevel.checkpoint()
        return answer

    return answerer


async def text_of(peer: Peer, **kwargs: Any) -> str:
    result = await peer.call("do", **kwargs)
    assert not result.get("isError"), result
    text: str = result["content"][0]["text"]
    return text


# ----- Progress


@requirement("J152", "J153", "J154", "J155", "J158")
@every_revision
@pytest.mark.parametrize("token", [0, 7, "t", ""], ids=ascii)
async def test_progress_is_told_with_the_callers_token_and_only_forward(revision, token):
    async def report(ctx: Context) -> None:
        for step in (0, 0.5, 0.5, 0.25, float("nan"), 1, 2):
            await ctx.progress(step, 2, f"step {step}")

    async with talking(doing(report), revision) as peer:
        await peer.call("do", meta={"progressToken": token})
        sent = peer.of("notifications/progress")
    assert [params["progress"] for params in sent] == [0, 0.5, 1, 2]
    for params in sent:
        assert params["progressToken"] == token
        assert type(params["progressToken"]) is type(token)
        assert params["total"] == 2
        assert ("message" in params) == (revision > "2024-11-05")


@requirement("J152")
@every_revision
async def test_without_a_token_there_is_no_progress(revision):
    async with talking(doing(lambda ctx: ctx.progress(1)), revision) as peer:
        await peer.call("do")
        await peer.call("do", meta={"x": 1})
        assert peer.sent == []


@requirement("J154")
@every_revision
@pytest.mark.parametrize("value", [float("inf"), float("nan"), float("-inf")])
async def test_progress_that_is_no_number_is_not_sent_as_one(revision, value):
    async with talking(doing(lambda ctx: ctx.progress(value, value)), revision) as peer:
        await peer.call("do", meta={"progressToken": 1})
        for params in peer.of("notifications/progress"):
            assert isinstance(params["progress"], int | float)


@requirement("J152", "J155")
@every_revision
async def test_each_call_has_its_own_progress_and_none_after_its_answer(revision):
    server = Server("s")
    kept: list[Context] = []

    @server.tool
    async def do(n: int, ctx: Context) -> None:
        kept.append(ctx)
        await ctx.progress(n)

    async with talking(server, revision) as peer:
        await peer.call("do", {"n": 5}, meta={"progressToken": "a"})
        await peer.call("do", {"n": 1}, meta={"progressToken": "b"})
        assert [(p["progressToken"], p["progress"]) for p in peer.of("notifications/progress")] == [("a", 5), ("b", 1)]
        peer.sent.clear()
        for ctx in kept:
            await ctx.progress(100)
            await ctx.info("late")
        assert await peer.settle() == []


# ----- Log messages


@requirement("L164", "L166", "L171")
@every_legacy
@pytest.mark.parametrize("wanted", [None, *LEVELS])
async def test_a_legacy_client_gets_what_is_not_below_its_level(revision, wanted):
    async def speak(ctx: Context) -> None:
        for level in LEVELS:
            await ctx.log(level, {"of": level}, logger="tests")  # type: ignore[arg-type]

    async with talking(doing(speak), revision) as peer:
        if wanted is not None:
            assert await peer.result("logging/setLevel", {"level": wanted}) == {}
        await peer.call("do")
        expected = LEVELS[LEVELS.index(wanted) if wanted else 0 :]
        assert peer.of("notifications/message") == [
            {"level": level, "data": {"of": level}, "logger": "tests"} for level in expected
        ]


@requirement("L165")
@every_legacy
@pytest.mark.parametrize("level", ["verbose", "INFO", "", 7, None])
async def test_a_level_that_is_none_is_refused(revision, level):
    async with talking(doing(lambda ctx: ctx.info("x")), revision) as peer:
        assert (await peer.error("logging/setLevel", {"level": level}))["code"] == -32602


@requirement("L167", "L168", "V279")
@pytest.mark.parametrize("wanted", [None, *LEVELS])
async def test_a_modern_client_gets_what_this_request_asks_for(wanted):
    async def speak(ctx: Context) -> None:
        for level in LEVELS:
            await ctx.log(level, level)  # type: ignore[arg-type]

    async with talking(doing(speak)) as peer:
        await peer.call("do", meta={MCP + "logLevel": "debug"})
        peer.sent.clear()
        await peer.call("do", meta={} if wanted is None else {MCP + "logLevel": wanted})
        expected = [] if wanted is None else LEVELS[LEVELS.index(wanted) :]
        assert [params["level"] for params in peer.of("notifications/message")] == expected


@every_revision
async def test_a_level_of_a_handlers_that_is_none_is_its_own_mistake(revision, caplog):
    async with talking(doing(lambda ctx: ctx.log("loud", "x")), revision) as peer:  # type: ignore[arg-type]
        assert (await peer.call("do"))["isError"]
    assert "Unknown log level 'loud'" in caplog.text


# ----- Who is asking


@requirement("B25", "B27", "B28", "B30", "C41")
@every_revision
async def test_the_context_says_who_asks_and_how(revision):
    async def look(ctx: Context) -> Any:
        return [
            ctx.protocol_version,
            ctx.request_id,
            ctx.client_capabilities.can_list_roots,
            ctx.meta.get("traceparent"),
            None if ctx.client_info is None else ctx.client_info.name,
            dict(ctx.headers),
            ctx.principal,
        ]

    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with talking(doing(look), revision, {"roots": {}}) as peer:
        info = None if revision == wire.MODERN else "peer"
        found = await text_of(peer, id="me", meta={"traceparent": trace})
        assert found == repr([revision, "me", True, trace, info, {}, None])
        peer.capabilities = {}
        if revision == wire.MODERN:
            assert "False" in await text_of(peer)


# ----- Elicitation


class Trip(msgspec.Struct):
    city: str
    days: int = 3


FORM = {"form": {}}
BOTH_MODES = {"form": {}, "url": {}}


@requirement("U257", "U258", "U261", "U262", "U270")
@pytest.mark.parametrize("revision", ASKING)
@pytest.mark.parametrize("declared", [{}, FORM, BOTH_MODES], ids=str)
async def test_a_form_is_asked_for_and_read(revision, declared):
    seen: list[dict[str, Any]] = []
    answers = {
        "elicitation/create": answering({"action": "accept", "content": {"city": "Rome", "days": 2}}, seen),
    }
    server = doing(lambda ctx: ctx.elicit("Where to?", Trip))
    async with talking(server, revision, {"elicitation": declared}, answerers=answers) as peer:
        assert await text_of(peer) == "ElicitResult(action='accept', content=Trip(city='Rome', days=2), meta=None)"
    (params,) = seen
    assert params["message"] == "Where to?"
    assert params.get("mode") == ("form" if revision >= "2025-11-25" else None)
    assert params["requestedSchema"]["properties"]["city"] == {"type": "string"}
    assert params["requestedSchema"]["required"] == ["city"]


@requirement("U261")
@pytest.mark.parametrize("revision", ASKING)
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_may_say_no(revision, action):
    answers = {"elicitation/create": answering({"action": action, "content": {"city": "x"}}, [])}
    server = doing(lambda ctx: ctx.elicit("Where to?", Trip))
    async with talking(server, revision, {"elicitation": {}}, answerers=answers) as peer:
        assert await text_of(peer) == f"ElicitResult(action='{action}', content=None, meta=None)"


@requirement("U261", "U262")
@pytest.mark.parametrize("revision", ASKING)
@pytest.mark.parametrize(
    "answer",
    [
        {"action": "accept", "content": {"days": 2}},
        {"action": "accept", "content": {"city": 7}},
        {"action": "accept", "content": {"city": "x", "days": "two"}},
        {"action": "accept"},
        {"action": "accept", "content": []},
        {"action": "yes"},
        {},
        {"code": -32603, "message": "no user here"},
    ],
    ids=json.dumps,
)
async def test_an_answer_that_does_not_fit_is_told_to_the_handler(revision, answer):
    async def ask(ctx: Context) -> str:
        with pytest.raises(ClientError) as caught:
            await ctx.elicit("Where to?", Trip)
        return caught.value.message

    answers = {"elicitation/create": answering(answer, [])}
    async with talking(doing(ask), revision, {"elicitation": {}}, answerers=answers) as peer:
        assert "client" in await text_of(peer)


@requirement("U257", "U258", "U263")
async def test_a_url_is_asked_for_only_where_both_sides_know_how():
    seen: list[dict[str, Any]] = []
    answers = {"elicitation/create": answering({"action": "accept"}, seen)}

    async def ask(ctx: Context) -> Any:
        return (await ctx.elicit_url("Pay", "https://example.com/pay")).action

    async with talking(doing(ask), "2025-11-25", {"elicitation": {"url": {}}}, answerers=answers) as peer:
        for _ in range(2):
            assert await text_of(peer) == "'accept'"
    assert [params["mode"] for params in seen] == ["url", "url"]
    assert seen[0]["url"] == "https://example.com/pay"
    assert len({params["elicitationId"] for params in seen}) == 2


@requirement("U258")
@pytest.mark.parametrize(
    "url", ["", "javascript:alert(1)", "file:///etc/passwd", "example.com", "https://", "https:///x"]
)
async def test_a_url_that_is_none_is_the_handlers_mistake(url, caplog):
    server = doing(lambda ctx: ctx.elicit_url("Pay", url))
    async with talking(server, "2025-11-25", {"elicitation": {"url": {}}}) as peer:
        assert (await peer.call("do"))["isError"]
        assert peer.sent == []


NOT_DECLARED = {
    "nothing": ({}, lambda ctx: ctx.elicit("?", Trip)),
    "forms, to a client with urls only": ({"elicitation": {"url": {}}}, lambda ctx: ctx.elicit("?", Trip)),
    "urls, to a client with forms": ({"elicitation": FORM}, lambda ctx: ctx.elicit_url("?", "https://example.com")),
    "urls, to a client that says only elicitation": (
        {"elicitation": {}},
        lambda ctx: ctx.elicit_url("?", "https://example.com"),
    ),
    "sampling": ({"elicitation": {}, "roots": {}}, lambda ctx: ctx.sample("hi", max_tokens=5)),
    "tools in sampling": ({"sampling": {}}, lambda ctx: ctx.sample("hi", max_tokens=5, tools=[])),
    "a tool choice": ({"sampling": {}}, lambda ctx: ctx.sample("hi", max_tokens=5, tool_choice=ToolChoice("none"))),
    "roots": ({"sampling": {}, "elicitation": {}}, lambda ctx: ctx.roots()),
}


@requirement("U257", "U270", "V271", "V276", "C39")
@every_legacy
@pytest.mark.parametrize(("declared", "ask"), NOT_DECLARED.values(), ids=NOT_DECLARED)
async def test_what_a_legacy_client_did_not_declare_it_is_not_asked(revision, declared, ask):
    async with talking(doing(ask), revision, declared) as peer:
        result = await peer.call("do")
        assert result["isError"]
        assert "capability" in result["content"][0]["text"]
        assert peer.sent == []


@requirement("B29", "A10", "U257", "V271", "V276", "B28")
@pytest.mark.parametrize(("declared", "ask"), NOT_DECLARED.values(), ids=NOT_DECLARED)
async def test_what_a_modern_client_did_not_declare_is_named_in_the_error(declared, ask):
    async with talking(doing(ask), capabilities=declared) as peer:
        answer = await peer.ask("tools/call", {"name": "do"})
        assert answer["error"]["code"] == -32021
        needed = answer["error"]["data"]["requiredCapabilities"]
        wire.check_schema("2026-07-28", "ClientCapabilities", needed)
        wire.check_schema("2026-07-28", "MissingRequiredClientCapabilityError", answer)
        assert peer.sent == []
        # To declare what the error says must be news, or it would help nobody.
        (name,) = needed
        assert name not in declared or set(needed[name]) - set(declared[name])


@requirement("C40", "U257")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26"])
async def test_a_revision_without_elicitation_has_none_whatever_its_client_says(revision):
    server = doing(lambda ctx: ctx.elicit("?", Trip))
    async with talking(server, revision, {"elicitation": BOTH_MODES}) as peer:
        assert (await peer.call("do"))["isError"]
        assert peer.sent == []


@requirement("C40", "U263")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
async def test_a_revision_without_urls_has_none_whatever_its_client_says(revision):
    server = doing(lambda ctx: ctx.elicit_url("?", "https://example.com"))
    async with talking(server, revision, {"elicitation": BOTH_MODES}) as peer:
        assert (await peer.call("do"))["isError"]
        assert peer.sent == []


# ----- Sampling


SAID = {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "m", "stopReason": "endTurn"}


@requirement("V271", "V272", "V273", "V279")
@every_legacy
async def test_the_clients_model_is_asked(revision):
    seen: list[dict[str, Any]] = []

    async def ask(ctx: Context) -> Any:
        answer = await ctx.sample(
            "hi",
            max_tokens=50,
            system_prompt="be kind",
            temperature=0.5,
            stop_sequences=["."],
            model_preferences=ModelPreferences(speed_priority=1.0),
            metadata={"x": 1},
            include_context="none",
        )
        return answer.text, answer.role, answer.model, answer.stop_reason

    answers = {"sampling/createMessage": answering(SAID, seen)}
    async with talking(doing(ask), revision, {"sampling": {}}, answerers=answers) as peer:
        assert await text_of(peer) == repr(("hello", "assistant", "m", "endTurn"))
    (params,) = seen
    assert params["messages"] == [{"role": "user", "content": {"type": "text", "text": "hi"}}]
    assert (params["maxTokens"], params["systemPrompt"], params["stopSequences"]) == (50, "be kind", ["."])


@requirement("V272", "C39")
@every_legacy
@pytest.mark.parametrize("context", ["thisServer", "allServers"])
async def test_context_is_included_only_where_the_client_offers_it(revision, context):
    seen: list[dict[str, Any]] = []
    server = doing(lambda ctx: ctx.sample("hi", max_tokens=5, include_context=context))
    answers = {"sampling/createMessage": answering(SAID, seen)}
    async with talking(server, revision, {"sampling": {}}, answerers=answers) as peer:
        # Until 2025-11-25 there was no word for it, and every client that sampled had it.
        refused = (await peer.call("do")).get("isError", False)
        assert refused == (revision >= "2025-11-25")
    async with talking(server, revision, {"sampling": {"context": {}}}, answerers=answers) as peer:
        await text_of(peer)
    assert seen[-1]["includeContext"] == context


USE = ToolUseContent(id="u1", name="add", input={"a": 1})
OTHER_USE = ToolUseContent(id="u2", name="add", input={})
RESULT = ToolResultContent(tool_use_id="u1", content=[TextContent("2")])
OTHER_RESULT = ToolResultContent(tool_use_id="u2", content=[])
GOOD_TALKS = {
    "one": [
        SamplingMessage("user", TextContent("1+1?")),
        SamplingMessage("assistant", USE),
        SamplingMessage("user", RESULT),
    ],
    "two at once": [
        SamplingMessage("assistant", [TextContent("let me see"), USE, OTHER_USE]),
        SamplingMessage("user", [OTHER_RESULT, RESULT]),
        SamplingMessage("user", TextContent("and?")),
    ],
}
BAD_TALKS = {
    "no result": [SamplingMessage("assistant", USE)],
    "something between": [
        SamplingMessage("assistant", USE),
        SamplingMessage("user", TextContent("wait")),
        SamplingMessage("user", RESULT),
    ],
    "the result among other things": [
        SamplingMessage("assistant", USE),
        SamplingMessage("user", [TextContent("here"), RESULT]),
    ],
    "a result too few": [SamplingMessage("assistant", [USE, OTHER_USE]), SamplingMessage("user", RESULT)],
    "a result too many": [SamplingMessage("assistant", USE), SamplingMessage("user", [RESULT, OTHER_RESULT])],
    "a result twice": [SamplingMessage("assistant", USE), SamplingMessage("user", [RESULT, RESULT])],
    "a result of nothing": [SamplingMessage("user", RESULT)],
    "a result of the assistant": [SamplingMessage("assistant", USE), SamplingMessage("assistant", RESULT)],
    "a use of the user": [SamplingMessage("user", USE), SamplingMessage("user", RESULT)],
}


@requirement("V271", "V274")
@pytest.mark.parametrize("talk", GOOD_TALKS.values(), ids=GOOD_TALKS)
async def test_a_talk_with_tools_goes_to_the_client(talk):
    seen: list[dict[str, Any]] = []
    tool = Tool(name="add", input_schema={"type": "object"})
    server = doing(lambda ctx: ctx.sample(talk, max_tokens=5, tools=[tool], tool_choice=ToolChoice("auto")))
    answers = {"sampling/createMessage": answering(SAID, seen)}
    async with talking(server, "2025-11-25", {"sampling": {"tools": {}}}, answerers=answers) as peer:
        await text_of(peer)
    assert seen[0]["tools"][0]["name"] == "add"
    assert seen[0]["toolChoice"] == {"mode": "auto"}


@requirement("V274")
@pytest.mark.parametrize("talk", BAD_TALKS.values(), ids=BAD_TALKS)
async def test_a_talk_where_uses_and_results_do_not_match_is_the_handlers_mistake(talk, caplog):
    server = doing(lambda ctx: ctx.sample(talk, max_tokens=5))
    async with talking(server, "2025-11-25", {"sampling": {"tools": {}}}) as peer:
        assert (await peer.call("do"))["isError"]
        assert peer.sent == []
    assert "ValueError" in caplog.text


# ----- Roots


@requirement("V276", "V277", "V279")
@every_legacy
async def test_roots_are_read_anew_each_time(revision):
    seen: list[dict[str, Any]] = []
    answer = {"roots": [{"uri": "file:///home", "name": "home"}, {"uri": "file:///tmp", "new": 1}]}

    async def ask(ctx: Context) -> Any:
        return [(root.uri, root.name) for root in await ctx.roots()]

    answers = {"roots/list": answering(answer, seen)}
    async with talking(doing(ask), revision, {"roots": {"listChanged": True}}, answerers=answers) as peer:
        assert await text_of(peer) == repr([("file:///home", "home"), ("file:///tmp", None)])
        answer["roots"].pop()
        await peer.notify("notifications/roots/list_changed")
        assert await text_of(peer) == repr([("file:///home", "home")])
    assert len(seen) == 2


# ----- Waiting for answers


@requirement("I150", "I151")
@pytest.mark.parametrize("revision", ASKING)
async def test_a_question_without_an_answer_is_given_up_in_time_and_cancelled(revision, autojump_clock):
    async def ask(ctx: Context) -> str:
        began = trio.current_time()
        with pytest.raises(ClientError):
            await ctx.elicit("?", Trip, timeout=30)
        return f"{trio.current_time() - began:g}"

    async with talking(doing(ask), revision, {"elicitation": {}}) as peer:
        assert await text_of(peer, within=40) == "'30'"
        question, cancelled = peer.sent
        assert cancelled["method"] == "notifications/cancelled"
        assert cancelled["params"]["requestId"] == question["id"]
        # A late answer is nobody's.
        await peer.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}})
        await peer.settle()
        await peer.result("tools/list")


@requirement("I151")
async def test_a_question_has_a_limit_by_default(autojump_clock):
    async with talking(doing(lambda ctx: ctx.elicit("?", Trip)), "2025-11-25", {"elicitation": {}}) as peer:
        result = await peer.call("do", within=3_600)
    assert result["isError"]


@requirement("A3")
@pytest.mark.parametrize("revision", ASKING)
async def test_questions_have_ids_that_are_never_used_again_and_cannot_be_guessed(revision):
    answers = {"elicitation/create": answering({"action": "cancel"}, [])}
    async with talking(
        doing(lambda ctx: ctx.elicit("?", Trip)), revision, {"elicitation": {}}, answerers=answers
    ) as peer:
        for _ in range(20):
            await text_of(peer)
        ids = [message["id"] for message in peer.sent]
    assert len(set(ids)) == 20
    assert all(isinstance(each, str) and len(each) >= 16 for each in ids)
