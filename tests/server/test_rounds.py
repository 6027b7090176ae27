"""Multi round-trip requests: one handler for both eras, and what a modern client may do with its rounds."""

import json
from typing import Any

import pytest
import trio

from mcpd import Context, ProtocolError, Server
from tests import wire
from tests.harness import serving
from tests.requirements import requirement
from tests.server.asking import (
    ALL,
    ANSWERERS,
    NAME,
    ROOTS,
    SAMPLED,
    Name,
    answering,
    asked,
    hello,
    one_tool,
    text_of,
    to_the_end,
)
from tests.server.peer import talking

ERAS = pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])


# ----- One model for both eras


@requirement("T244", "T246", "U261", "V271", "V276")
@ERAS
async def test_the_same_handler_serves_both_eras(revision):
    async with talking(one_tool(), revision, ALL, answerers=ANSWERERS) as peer:
        if revision == wire.MODERN:
            answers = {"elicitation/create": NAME, "sampling/createMessage": SAMPLED, "roots/list": ROOTS}
            result = await to_the_end(peer, "tools/call", hello(), answers)
        else:
            result = await peer.result("tools/call", hello())
        assert text_of(result) == "Hi Ada, hi, file:///a"


@requirement("U261")
@ERAS
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_declining_and_cancelling_are_answers(revision, action):
    answer = {"action": action}
    answerers = {"elicitation/create": answering(answer)}
    async with talking(one_tool(), revision, ALL, answerers=answerers) as peer:
        if revision == wire.MODERN:
            result = await to_the_end(peer, "tools/call", hello(), {"elicitation/create": answer})
        else:
            result = await peer.result("tools/call", hello())
        assert text_of(result) == action


@requirement("U257", "U258", "U263", "U265")
@ERAS
async def test_a_url_is_asked_for_in_url_mode(revision):
    server = Server("s")

    @server.tool
    async def pay(ctx: Context) -> str:
        return (await ctx.elicit_url("Please pay", "https://example.com/pay", key="pay")).action

    answerers = {"elicitation/create": answering({"action": "accept"})}
    async with talking(server, revision, ALL, answerers=answerers) as peer:
        if revision == "2026-07-28":
            result = await peer.call("pay")
            request = asked(result)["pay"]
            assert request["method"] == "elicitation/create"
            # "elicitationId" and its notification are gone with 2026-07-28.
            assert request["params"] == {"mode": "url", "message": "Please pay", "url": "https://example.com/pay"}
            params = {"name": "pay", "arguments": {}, "inputResponses": {"pay": {"action": "accept"}}}
            assert text_of(await peer.result("tools/call", params)) == "accept"
        elif revision == "2025-11-25":
            assert text_of(await peer.call("pay")) == "accept"
            assert peer.of("elicitation/create")[0]["elicitationId"]
        else:  # it knows no URLs
            assert (await peer.call("pay"))["isError"] is True
            assert peer.of("elicitation/create") == []


@requirement("T244", "R229", "R231")
async def test_prompts_and_resources_may_ask_as_well():
    server = Server("s")

    @server.prompt
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", Name, key="who")
        return f"Greet {answer.content.name}" if answer.content else "Greet nobody"

    @server.resource("card://{kind}", cache_ttl=30, cache_scope="public")
    async def card(kind: str, ctx: Context) -> str:
        answer = await ctx.elicit("Whose?", Name, key="whose")
        return f"{kind} of {answer.content.name}" if answer.content else ""

    async with talking(server, capabilities=ALL, cache_ttl=60.0, cache_scope="public") as peer:
        answers = {"elicitation/create": NAME}
        first = await peer.result("prompts/get", {"name": "greet"})
        assert list(asked(first)) == ["who"]
        prompt = await to_the_end(peer, "prompts/get", {"name": "greet"}, answers)
        assert prompt["messages"][0]["content"]["text"] == "Greet Ada"
        first = await peer.result("resources/read", {"uri": "card://visit"})
        assert list(asked(first)) == ["whose"]
        read = await to_the_end(peer, "resources/read", {"uri": "card://visit"}, answers)
        assert read["contents"][0]["text"] == "visit of Ada"
        # It was made of what one user has said: nobody else may be handed it, and nobody may keep it.
        assert (read["ttlMs"], read["cacheScope"]) == (0, "private")


@requirement("T244")
async def test_nothing_else_ends_with_input_required():
    server = one_tool()

    @server.prompt
    async def p(a: str) -> str:
        return a

    seen: list[str] = []

    @server.completion("p", "a")
    async def complete(value: str, ctx: Context) -> list[str]:
        try:
            await ctx.elicit("Who?", Name)
        except ProtocolError as exc:
            seen.append(exc.message)
        return []

    async with talking(server, capabilities=ALL) as peer:
        params = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}}
        result = await peer.result("completion/complete", params)
        assert result["resultType"] == "complete"
        assert seen == ["This client cannot be asked"]
        for method in ("tools/list", "prompts/list", "server/discover"):
            assert (await peer.result(method, {"inputResponses": {}}))["resultType"] == "complete"


# ----- Rounds


@requirement("T245", "T246", "C49")
async def test_questions_asked_at_the_same_time_go_out_in_one_round():
    server = Server("s")
    runs: list[int] = []

    @server.tool
    async def three(ctx: Context) -> str:
        runs.append(1)
        told: dict[str, str] = {}

        async def who() -> None:
            answer = await ctx.elicit("Who?", Name, key="who")
            told["who"] = answer.content.name if answer.content else ""

        async def what() -> None:
            for _ in range(2):  # it comes a little later, and is still part of the round
                await trio.lowlevel.checkpoint()
            told["what"] = (await ctx.sample("A word", max_tokens=5, key="what")).text

        async def where() -> None:
            told["where"] = (await ctx.roots(key="where"))[0].uri

        async with trio.open_nursery() as nursery:
            for task in (who, what, where):
                nursery.start_soon(task)
        return json.dumps(told, sort_keys=True)

    async with talking(server, capabilities=ALL) as peer:
        first = await peer.call("three")
        assert {key: request["method"] for key, request in asked(first).items()} == {
            "who": "elicitation/create",
            "what": "sampling/createMessage",
            "where": "roots/list",
        }
        # Two answers: the third is asked again, and the two travel in the state.
        params = {"name": "three", "arguments": {}, "inputResponses": {"who": NAME, "what": SAMPLED}}
        second = await peer.result("tools/call", params)
        assert list(asked(second)) == ["where"]
        params["inputResponses"] = {"where": ROOTS}
        params["requestState"] = second["requestState"]
        third = await peer.result("tools/call", params)
        assert json.loads(text_of(third)) == {"what": "hi", "where": "file:///a", "who": "Ada"}
        assert len(runs) == 3


@requirement("T254", "T255")
async def test_answers_of_earlier_rounds_travel_in_the_state_alone():
    async with talking(one_tool(), capabilities=ALL) as peer:
        first = await peer.result("tools/call", hello())
        assert list(asked(first)) == ["who"]
        second = await peer.result("tools/call", hello(inputResponses={"who": NAME}))
        (word,) = asked(second)
        assert word.startswith("sampling-")
        retry = hello(requestState=second["requestState"])
        third = await peer.result("tools/call", retry | {"inputResponses": {word: SAMPLED}})
        (places,) = asked(third)
        assert places.startswith("roots-")
        assert third["requestState"] != second["requestState"]
        # A state can be used again: it holds no more than it did.
        again = await peer.result("tools/call", retry)
        assert list(asked(again)) == [word]
        last = hello(requestState=third["requestState"], inputResponses={places: ROOTS})
        assert text_of(await peer.result("tools/call", last)) == "Hi Ada, hi, file:///a"
        # Without the state what was answered in earlier rounds is not known.
        lost = await peer.result("tools/call", hello(inputResponses={places: ROOTS}))
        assert list(asked(lost)) == ["who"]


@requirement("T253", "T254")
@pytest.mark.parametrize("responses", [{}, {"nobody": NAME}, {"who-2": NAME, "": {}}], ids=json.dumps)
async def test_what_is_not_asked_is_ignored_and_what_is_missing_is_asked_again(responses):
    async with talking(one_tool(), capabilities=ALL) as peer:
        assert list(asked(await peer.result("tools/call", hello(inputResponses=responses)))) == ["who"]
        result = await peer.result("tools/call", hello(inputResponses=responses | {"who": {"action": "cancel"}}))
        assert text_of(result) == "cancel"


@requirement("T252", "T254", "U262")
@pytest.mark.parametrize(
    "answer",
    [
        12345,
        None,
        "accept",
        [],
        {},
        {"action": "agree"},
        {"action": None},
        {"action": "accept"},
        {"action": "accept", "content": {}},
        {"action": "accept", "content": {"name": 7}},
        {"action": "accept", "content": ["Ada"]},
        SAMPLED,
    ],
    ids=json.dumps,
)
async def test_an_answer_that_does_not_fit_is_asked_again(answer):
    async with talking(one_tool(), capabilities=ALL) as peer:
        result = await peer.result("tools/call", hello(inputResponses={"who": answer}))
        assert list(asked(result)) == ["who"]
        result = await peer.result("tools/call", hello(inputResponses={"who": NAME}))
        # The same for what a model and a file system are to say.
        (word,) = asked(result)
        for wrong in (12345, {"role": "assistant"}, {"roots": [{"uri": 5}]}, NAME):
            retry = hello(requestState=result["requestState"], inputResponses={word: wrong})
            assert list(asked(await peer.result("tools/call", retry))) == [word]


@requirement("T252")
@pytest.mark.parametrize("responses", [None, 7, "x", [], True], ids=json.dumps)
async def test_input_responses_that_are_no_object_are_refused_with_400(responses):
    async with serving(one_tool()) as http:
        for method, params in (("tools/call", hello()),):
            response = await http.modern(method, params | {"inputResponses": responses}, capabilities=ALL)
            assert (response.status, response.error["code"]) == (400, -32602)
            assert "inputResponses" in response.error["message"]


@requirement("T252")
@pytest.mark.parametrize("state", [None, 7, [], {}], ids=json.dumps)
async def test_a_state_that_is_no_string_is_refused(state):
    async with talking(one_tool(), capabilities=ALL) as peer:
        assert (await peer.error("tools/call", hello(requestState=state)))["code"] == -32602


@requirement("T246")
async def test_two_questions_of_one_key_are_the_authors_mistake(caplog):
    server = Server("s")

    @server.tool
    async def twice(ctx: Context) -> None:
        async def ask() -> None:
            await ctx.elicit("Who?", Name, key="same")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            nursery.start_soon(ask)

    async with talking(server, capabilities=ALL) as peer:
        assert (await peer.call("twice"))["isError"] is True
    assert "Two questions of one call have the key 'same'" in caplog.text


async def steps(count: int) -> None:
    """Come a little later, and still in the same round."""
    for _ in range(count):
        await trio.lowlevel.checkpoint()


def named(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a question: its own words as the name."""
    return {"action": "accept", "content": {"name": request["params"]["message"]}}


@requirement("T245", "T246")
async def test_siblings_get_their_own_answers_whoever_asks_first():
    server = Server("s")
    runs: list[int] = []

    @server.tool
    async def pair(ctx: Context) -> str:
        runs.append(1)
        told: dict[str, str] = {}

        async def ask(message: str, later: int) -> None:
            await steps(later)
            answer = await ctx.elicit(message, Name)
            told[message] = answer.content.name if answer.content else ""

        async with trio.open_nursery() as nursery:
            # Trio runs siblings in any order; here it is another one in the second run.
            nursery.start_soon(ask, "Home?", len(runs) % 2)
            nursery.start_soon(ask, "Work?", 1 - len(runs) % 2)
        return json.dumps(told, sort_keys=True)

    async with talking(server, capabilities=ALL) as peer:
        first = await peer.call("pair")
        assert "requestState" not in first  # there is nothing to remember yet
        requests = asked(first)
        assert len(requests) == 2
        params = {"name": "pair", "arguments": {}}
        params["inputResponses"] = {key: named(request) for key, request in requests.items()}
        result = await peer.result("tools/call", params)
        assert json.loads(text_of(result)) == {"Home?": "Home?", "Work?": "Work?"}


async def test_the_same_question_can_be_asked_again():
    server = Server("s")

    @server.tool
    async def names(ctx: Context) -> str:
        answers = [await ctx.elicit("And who else?", Name) for _ in range(3)]
        return ", ".join(answer.content.name for answer in answers if answer.content)

    async with talking(server, capabilities=ALL) as peer:
        params: dict[str, Any] = {"name": "names", "arguments": {}}
        for name in ("Ada", "Eve", "Bob"):
            result = await peer.result("tools/call", params)
            (key,) = asked(result)
            params["inputResponses"] = {key: {"action": "accept", "content": {"name": name}}}
            params |= {"requestState": result["requestState"]} if "requestState" in result else {}
        assert text_of(await peer.result("tools/call", params)) == "Ada, Eve, Bob"


@requirement("T254")
@pytest.mark.parametrize("key", [None, "sure"])
async def test_an_answer_is_to_what_was_asked_and_to_nothing_else(key):
    server = Server("s")
    amounts = [10]

    @server.tool
    async def pay(ctx: Context) -> str:
        sure = await ctx.elicit(f"Pay {amounts[-1]}?", Name, key=key)
        await ctx.elicit("Who?", Name, key="who")
        return sure.content.name if sure.content else ""

    async with talking(server, capabilities=ALL) as peer:
        params: dict[str, Any] = {"name": "pay", "arguments": {}}
        ((sure, question),) = asked(await peer.result("tools/call", params)).items()
        second = await peer.result("tools/call", params | {"inputResponses": {sure: named(question)}})
        assert list(asked(second)) == ["who"]
        params |= {"requestState": second["requestState"], "inputResponses": {"who": NAME}}
        amounts.append(1000)
        ((sure, question),) = asked(await peer.result("tools/call", params)).items()
        assert question["params"]["message"] == "Pay 1000?"
        params["inputResponses"] |= {sure: named(question)}
        assert text_of(await peer.result("tools/call", params)) == "Pay 1000?"


@pytest.mark.parametrize("key", [None, "sure"])
async def test_an_answer_on_its_way_is_to_the_question_as_it_was_asked(key):
    server = Server("s")
    amounts = [10]

    @server.tool
    async def pay(ctx: Context) -> str:
        answer = await ctx.elicit(f"Pay {amounts[-1]}?", Name, key=key)
        return answer.content.name if answer.content else ""

    async with talking(server, capabilities=ALL) as peer:
        params: dict[str, Any] = {"name": "pay", "arguments": {}}
        for amount in (1000, 2000):
            result = await peer.result("tools/call", params)
            ((sure, question),) = asked(result).items()
            params["inputResponses"] = {sure: named(question)}
            params |= {"requestState": result["requestState"]} if "requestState" in result else {}
            amounts.append(amount)
        result = await peer.result("tools/call", params)
        ((sure, question),) = asked(result).items()
        assert question["params"]["message"] == "Pay 2000?"
        params["inputResponses"] = {sure: named(question)}
        params |= {"requestState": result["requestState"]} if "requestState" in result else {}
        assert text_of(await peer.result("tools/call", params)) == "Pay 2000?"


async def test_one_key_may_ask_one_thing_after_another():
    server = Server("s")

    @server.tool
    async def insist(ctx: Context) -> str:
        first = await ctx.elicit("Who?", Name, key="who")
        second = await ctx.elicit("Really?", Name, key="who")
        return f"{first.content and first.content.name} {second.content and second.content.name}"

    async with talking(server, capabilities=ALL) as peer:
        params: dict[str, Any] = {"name": "insist", "arguments": {}}
        for message in ("Who?", "Really?"):
            result = await peer.result("tools/call", params)
            ((key, question),) = asked(result).items()
            assert (key, question["params"]["message"]) == ("who", message)
            params["inputResponses"] = {key: named(question)}
            params |= {"requestState": result["requestState"]} if "requestState" in result else {}
        assert text_of(await peer.result("tools/call", params)) == "Who? Really?"


async def test_arguments_may_be_any_json():
    server = Server("s")

    @server.tool(input_schema={"type": "object"})
    async def any_json(arguments: dict[str, Any], ctx: Context) -> str:
        await ctx.elicit("Who?", Name, key="one")
        await ctx.elicit("Who?", Name, key="two")
        return json.dumps(arguments)

    for arguments in ({"n": 2**53}, {"n": 2**64}, {"n": 10**30}, {"n": -(10**30)}, {"n": 1e300}, {"s": "ü\u2028\x00"}):
        async with talking(server, capabilities=ALL) as peer:
            params = {"name": "any_json", "arguments": arguments}
            result = await to_the_end(peer, "tools/call", params, {"elicitation/create": NAME})
            assert json.loads(text_of(result)) == arguments


# ----- Capabilities


@requirement("B29", "T247", "U257", "V271", "V276", "B28")
@pytest.mark.parametrize(
    ("question", "declared", "needed"),
    [
        ("form", {}, {"elicitation": {}}),
        ("form", {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        ("url", {}, {"elicitation": {"url": {}}}),
        ("url", {"elicitation": {}}, {"elicitation": {"url": {}}}),
        ("url", {"elicitation": {"form": {}}}, {"elicitation": {"url": {}}}),
        ("sample", {"elicitation": {}}, {"sampling": {}}),
        ("tools", {"sampling": {}}, {"sampling": {"tools": {}}}),
        ("roots", {"sampling": {}, "elicitation": {}}, {"roots": {}}),
    ],
)
async def test_what_was_not_declared_is_never_asked(question, declared, needed):
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> str:
        if question == "form":
            await ctx.elicit("Who?", Name)
        elif question == "url":
            await ctx.elicit_url("Pay", "https://example.com")
        elif question == "roots":
            await ctx.roots()
        else:
            await ctx.sample("x", max_tokens=1, tools=[] if question == "tools" else None)
        return ""

    async with serving(server) as http:
        for _ in range(2):  # what one request declares is nothing to the next
            response = await http.call("ask", capabilities=declared)
            assert (response.status, response.error["code"]) == (400, -32021)
            required = response.error["data"]["requiredCapabilities"]
            assert required.keys() == needed.keys()
            assert all(required[name].keys() >= parts.keys() for name, parts in needed.items())
            asked((await http.call("ask", capabilities=ALL)).result)


@requirement("T247")
async def test_a_missing_capability_among_several_questions_sends_none_of_them():
    server = Server("s")

    @server.tool
    async def both(ctx: Context) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ctx.elicit, "Who?", Name)
            nursery.start_soon(ctx.roots)

    async with talking(server, capabilities={"elicitation": {}}) as peer:
        error = await peer.error("tools/call", {"name": "both", "arguments": {}})
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": {"roots": {}}}
