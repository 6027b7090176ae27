"""What a handler may do that runs again with each round, and what is left of it in between: nothing."""

import gc
import json
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpd import Context, Server, ToolError
from mcpd.server.call import Call
from mcpd.server.rounds import Rounds
from mcpd.testing import connect
from tests import wire
from tests.harness import living
from tests.requirements import requirement
from tests.server.asking import (
    ALL,
    ANSWERERS,
    NAME,
    ROOTS,
    SAMPLED,
    Name,
    asked,
    greeter,
    hello,
    one_tool,
    state_of,
    text_of,
    to_the_end,
)
from tests.server.peer import talking
from tests.server.replica import running

ERAS = pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])


# ----- What running again means


@requirement("T250")
async def test_what_is_done_once_is_done_once_in_all_rounds():
    server = Server("s")
    made: list[str] = []

    def order() -> dict[str, int]:
        made.append("order")
        return {"number": len(made)}

    async def mail() -> None:
        await trio.lowlevel.checkpoint()
        made.append("mail")

    @server.tool
    async def buy(ctx: Context) -> str:
        ordered = await ctx.once("order", order)
        await ctx.elicit("Who?", Name, key="one")
        assert await ctx.once("mail", mail) is None
        await ctx.elicit("Where?", Name, key="two")
        assert await ctx.once("order", order) == ordered
        return json.dumps(ordered)

    async with talking(server, capabilities=ALL) as peer:
        first = await peer.call("buy")
        assert "requestState" in first
        result = await to_the_end(peer, "tools/call", {"name": "buy", "arguments": {}}, {"elicitation/create": NAME})
        assert text_of(result) == '{"number": 2}'
    assert made == ["order", "order", "mail"]


@ERAS
async def test_once_is_once_in_either_era(revision):
    server, made = Server("s"), []

    @server.tool
    async def buy(ctx: Context) -> int:
        for _ in range(3):
            await ctx.once("order", lambda: made.append(1))
        return len(made)

    async with talking(server, revision, ALL) as peer:
        assert text_of(await peer.call("buy")) == "1"


async def test_once_does_not_wait_for_itself(caplog):
    server = Server("s")

    @server.tool
    async def buy(ctx: Context) -> int:
        return int(await ctx.once("order", lambda: ctx.once("order", lambda: 1)))

    async with talking(server, capabilities=ALL) as peer:
        assert (await peer.call("buy"))["isError"]
    assert "What makes 'order' waits for 'order'" in caplog.text


@requirement("T250")
async def test_a_question_does_not_interrupt_what_is_done_once(autojump_clock):
    server, did = Server("s"), []

    @server.tool
    async def buy(ctx: Context) -> str:
        told: list[str] = []

        async def order() -> str:
            did.append("begun")
            await trio.sleep(1)
            did.append("done")
            return "ordered"

        async def buying() -> None:
            told.append(await ctx.once("order", order))

        async def asking() -> None:
            await ctx.elicit("Who?", Name, key="who")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(buying)
            nursery.start_soon(asking)
        return told[0]

    async with talking(server, capabilities=ALL) as peer:
        params: dict[str, Any] = {"name": "buy", "arguments": {}}
        assert text_of(await to_the_end(peer, "tools/call", params, {"elicitation/create": NAME})) == "ordered"
    assert did == ["begun", "done"]


@ERAS
async def test_who_wants_the_same_once_at_the_same_time_waits_for_it(revision, autojump_clock):
    server, did = Server("s"), []

    @server.tool
    async def buy(ctx: Context) -> str:
        told: list[int] = []

        async def order() -> int:
            did.append("order")
            await trio.sleep(1)
            return len(did)

        async def buying() -> None:
            told.append(await ctx.once("order", order))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(buying)
        return json.dumps(told)

    async with talking(server, revision, ALL) as peer:
        assert text_of(await peer.call("buy")) == "[1, 1, 1]"


async def test_what_has_failed_is_not_kept_and_who_waited_for_it_does_it(autojump_clock):
    server, did = Server("s"), []

    @server.tool
    async def buy(ctx: Context) -> str:
        told: list[str] = []

        async def order() -> str:
            did.append("order")
            await trio.sleep(1)
            if len(did) == 1:
                raise OSError
            return "ordered"

        async def buying() -> None:
            try:
                told.append(await ctx.once("order", order))
            except OSError:
                told.append("failed")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(buying)
            nursery.start_soon(buying)
        return ", ".join(told)

    async with talking(server, capabilities=ALL) as peer:
        assert text_of(await peer.call("buy")) == "failed, ordered"
    assert did == ["order", "order"]


async def test_a_cancelled_call_ends_what_it_does_once_and_begins_no_more(autojump_clock):
    server, did = Server("s"), []

    @server.tool
    async def buy(ctx: Context) -> None:
        async def order() -> None:
            did.append("begun")
            await trio.sleep(2)
            did.append("done")

        await ctx.once("order", order)
        await ctx.once("mail", lambda: did.append("mail"))

    async with talking(server, capabilities=ALL) as peer:
        await peer.send(peer.request("tools/call", {"name": "buy", "arguments": {}}, id=7))
        await trio.sleep(1)
        await peer.notify("notifications/cancelled", {"requestId": 7})
        await trio.sleep(2)
    assert did == ["begun", "done"]


async def test_a_question_may_be_what_is_done_once():
    server, runs = Server("s"), []

    @server.tool
    async def buy(ctx: Context) -> str:
        runs.append("run")
        answer = await ctx.once("who", lambda: ctx.elicit("Who?", Name, key="who"))
        await ctx.elicit("Sure?", Name, key="sure")
        return str(answer["content"]["name"])

    async with talking(server, capabilities=ALL) as peer:
        params: dict[str, Any] = {"name": "buy", "arguments": {}}
        assert text_of(await to_the_end(peer, "tools/call", params, {"elicitation/create": NAME})) == "Ada"
    assert runs == ["run"] * 3


async def test_a_handlers_own_clean_up_runs_in_each_round():
    server, did = Server("s"), []

    @server.tool
    async def careful(ctx: Context) -> str:
        did.append("begin")
        try:
            answer = await ctx.elicit("Who?", Name, key="who")
        finally:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
            did.append("end")
        return answer.action

    async with talking(server, capabilities=ALL) as peer:
        asked(await peer.call("careful"))
        assert did == ["begin", "end"]
        params = {"name": "careful", "arguments": {}, "inputResponses": {"who": NAME}}
        assert text_of(await peer.result("tools/call", params)) == "accept"
        assert did == ["begin", "end"] * 2


@pytest.mark.parametrize("swallow", [Exception, BaseException], ids=lambda kind: kind.__name__)
async def test_a_handler_that_swallows_exceptions_has_asked_all_the_same(swallow):
    server = Server("s")

    @server.tool
    async def greedy(ctx: Context) -> str:
        try:
            return (await ctx.elicit("Who?", Name, key="who")).action
        except swallow:
            return "swallowed"

    @server.tool
    async def changed(ctx: Context) -> str:
        try:
            return (await ctx.elicit("Who?", Name, key="who")).action
        except swallow:
            raise ToolError("something else") from None

    async with talking(server, capabilities=ALL) as peer:
        for tool in ("greedy", "changed"):
            assert list(asked(await peer.call(tool))) == ["who"]
            params = {"name": tool, "arguments": {}, "inputResponses": {"who": NAME}}
            assert text_of(await peer.result("tools/call", params)) == "accept"


async def test_a_question_under_a_shield_ends_the_call_as_well(autojump_clock):
    server = Server("s")

    @server.tool
    async def shielded(ctx: Context) -> str:
        async def ask() -> None:
            with trio.CancelScope(shield=True):
                await ctx.elicit("Who?", Name, key="who")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            nursery.start_soon(trio.sleep_forever)
        return "never"

    async with talking(server, capabilities=ALL) as peer:
        assert list(asked(await peer.call("shielded"))) == ["who"]


async def test_a_failure_beside_a_question_under_a_shield_is_an_answer(autojump_clock, caplog):
    # What ends the question is no Exception, and would end the server.
    server = Server("s")

    @server.tool
    async def careless(ctx: Context) -> str:
        async def ask() -> None:
            with trio.CancelScope(shield=True):
                await ctx.elicit("Who?", Name, key="who")

        async def fail() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("the clean-up failed")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            nursery.start_soon(fail)
        return "never"

    async with talking(server, capabilities=ALL) as peer:
        for _ in range(2):
            answer = await peer.ask("tools/call", {"name": "careless", "arguments": {}})
            assert answer["error"] == {"code": -32603, "message": "Internal error"}
    assert "the clean-up failed" in caplog.text


async def test_a_question_the_handler_stops_waiting_for_is_not_sent():
    server = Server("s")

    @server.tool
    async def impatient(ctx: Context) -> str:
        async def give_up(scope: trio.CancelScope) -> None:
            await trio.lowlevel.checkpoint()
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ctx.roots)
            nursery.start_soon(give_up, nursery.cancel_scope)
        return (await ctx.elicit("Who?", Name, key="who")).action

    async with talking(server, capabilities=ALL) as peer:
        assert list(asked(await peer.call("impatient"))) == ["who"]
        params = {"name": "impatient", "arguments": {}, "inputResponses": {"who": NAME}}
        assert text_of(await peer.result("tools/call", params)) == "accept"


async def test_a_failure_after_a_question_is_the_answer_to_nobody_but_the_log(caplog):
    server = Server("s")

    @server.tool
    async def breaks(ctx: Context) -> str:
        try:
            return (await ctx.elicit("Who?", Name, key="who")).action
        finally:
            raise RuntimeError("the secret of the clean-up")

    async with talking(server, capabilities=ALL) as peer:
        answer = await peer.ask("tools/call", {"name": "breaks", "arguments": {}})
        assert "secret" not in json.dumps(answer)
    assert "the secret of the clean-up" in caplog.text


# ----- Plain handlers, in threads


def plain_server(threads: int) -> tuple[Server, list[str]]:
    server, did = Server("s", max_threads=threads), []

    @server.tool
    def plain(ctx: Context) -> str:
        try:
            answer = trio.from_thread.run(lambda: ctx.elicit("Who?", Name, key="who"))
            said = trio.from_thread.run(lambda: ctx.sample("x", max_tokens=1, key="what"))
        except Exception:  # noqa: BLE001 - what careless handlers do
            did.append("went on")
            return "went on"
        finally:
            did.append("cleaned up")
        return f"{answer.action} {said.text}"

    return server, did


@requirement("T251")
@ERAS
async def test_a_plain_handler_asks_from_its_thread(revision):
    server, _ = plain_server(1)
    async with talking(server, revision, ALL, answerers=ANSWERERS) as peer:
        params: dict[str, Any] = {"name": "plain", "arguments": {}}
        answers = {"elicitation/create": NAME, "sampling/createMessage": SAMPLED}
        if revision == wire.MODERN:
            assert text_of(await to_the_end(peer, "tools/call", params, answers)) == "accept hi"
        else:
            assert text_of(await peer.result("tools/call", params)) == "accept hi"


async def until(there: Callable[[], bool]) -> None:
    """Threads run in real time."""
    with trio.fail_after(10):
        while not there():  # noqa: ASYNC110 - a thread that ends tells nobody
            await trio.sleep(0.001)


@requirement("T251")
async def test_a_plain_handler_that_has_asked_holds_no_thread():
    server, did = plain_server(2)
    threads = threading.active_count()
    async with running(server) as replica:
        for round_ in range(1, 11):  # five times as many as there are threads
            asked(await replica.result("tools/call", {"name": "plain", "arguments": {}}, capabilities=ALL))
            await until(lambda wanted=round_: len(did) == wanted)
        await until(lambda: replica.core.dispatcher.offer.threads.borrowed_tokens == 0)
        assert did == ["cleaned up"] * 10
    assert threading.active_count() <= threads + 2


@pytest.mark.parametrize("how", ["cancelled", "gone"])
async def test_a_plain_handler_whose_client_no_longer_waits_holds_no_thread(how):
    server, did = plain_server(1)
    threads = threading.active_count()
    async with talking(server, "2025-11-25", ALL) as peer:
        await peer.send(peer.request("tools/call", {"name": "plain", "arguments": {}}, id=7))
        await until(lambda: bool(peer.of("elicitation/create")))
        if how == "cancelled":
            await peer.notify("notifications/cancelled", {"requestId": 7})
            await until(lambda: bool(did))
            await peer.result("ping")
            assert peer.answers[-1]["id"] != 7
    await until(lambda: bool(did))
    assert did == ["cleaned up"]
    assert threading.active_count() <= threads + 1


# ----- Nothing stays


@requirement("T251")
@pytest.mark.usefixtures("no_gc")
async def test_nothing_of_a_call_is_alive_while_its_client_thinks():
    async with running(greeter(Server("a"))) as replica:
        await state_of(replica)
        await wait_all_tasks_blocked()
        before = Counter(living(Call, Rounds, Context))  # threads that other tests have left may hold some
        tasks = trio.lowlevel.current_statistics().tasks_living
        for _ in range(20):
            await state_of(replica)
            await replica.error("tools/call", hello(requestState="x"), capabilities=ALL)
        await wait_all_tasks_blocked()
        assert Counter(living(Call, Rounds, Context)) - before == {}
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert not gc.isenabled()


# ----- Our own client


async def test_the_client_for_tests_plays_all_rounds_itself():
    async def elicit(params: dict[str, Any]) -> Any:
        await trio.lowlevel.checkpoint()
        return NAME

    async def sample(params: dict[str, Any]) -> Any:
        await trio.lowlevel.checkpoint()
        return SAMPLED

    async def roots(params: dict[str, Any]) -> Any:
        await trio.lowlevel.checkpoint()
        return ROOTS

    for options in ({}, {"era": "legacy"}):
        async with connect(one_tool(), elicit=elicit, sample=sample, roots=roots, **options) as client:
            result = await client.call_tool("hello", {"greeting": "Hi"})
            assert result.content[0].text == "Hi Ada, hi, file:///a"  # type: ignore[union-attr]
