"""The in-process client, as authors of servers use it in their tests."""

import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
import trio
from msgspec import Struct
from trio.testing import MockClock, wait_all_tasks_blocked

from mcpd import (
    Context,
    ProtocolError,
    Root,
    Server,
    SettingError,
    TextContent,
    TextResourceContents,
    ToolError,
)
from mcpd.testing import Client, connect
from mcpd_stores.memory import MemoryStore

Era = Literal["modern", "legacy"]
both = pytest.mark.parametrize("era", ["modern", "legacy"])
REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]


class Who(Struct):
    name: str
    age: int = 18


def options(era: Era) -> dict[str, Any]:
    """Arguments of `connect` that make it speak an era."""
    return {"era": era} if era == "legacy" else {}


@pytest.fixture
def server() -> Server:
    server = Server("under test", version="7", instructions="Be kind.", page_size=2)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    def plain(text: str) -> str:
        return text.upper()

    @server.tool
    async def fail(how: str) -> str:
        if how == "tool":
            raise ToolError("told to")
        if how == "protocol":
            raise ProtocolError(1234, "of its own", {"more": [1]})
        raise RuntimeError("secret")

    @server.tool
    async def report(ctx: Context) -> str:
        await ctx.progress(1, 2, "half")
        await ctx.error({"bad": True})
        await ctx.progress(2, 2)
        return "reported"

    @server.tool
    async def ask(ctx: Context) -> str:
        result = await ctx.elicit("Who are you?", Who)
        return f"{result.action}: {result.content}"

    @server.tool
    async def ask_twice(ctx: Context) -> str:
        first = await ctx.elicit("First", Who)
        second = await ctx.elicit("Second", Who)
        assert first.content is not None
        assert second.content is not None
        return f"{first.content.name}, {second.content.name}"

    @server.tool
    async def ask_all(ctx: Context) -> str:
        found: dict[str, str] = {}

        async def model() -> None:
            found["model"] = (await ctx.sample("Hi", max_tokens=10)).text

        async def user() -> None:
            found["user"] = (await ctx.elicit("Who?", Who)).action

        async def places() -> None:
            found["roots"] = ",".join(root.uri for root in await ctx.roots())

        async with trio.open_nursery() as nursery:
            for question in (model, user, places):
                nursery.start_soon(question)
        return " ".join(f"{key}={found[key]}" for key in sorted(found))

    @server.tool
    async def visit(ctx: Context) -> str:
        return (await ctx.elicit_url("Please pay", "https://example.com/pay")).action

    @server.tool
    async def wait(ctx: Context) -> str:
        server.became.append("began")  # type: ignore[attr-defined]
        try:
            await trio.sleep(1_000)
        except trio.Cancelled:
            server.became.append("cancelled")  # type: ignore[attr-defined]
            raise
        return "waited"

    @server.resource("test://text")
    async def text() -> str:
        return "text"

    @server.resource("test://{name}/twice")
    async def twice(name: str) -> str:
        return name * 2

    @server.prompt
    async def poem(topic: str) -> str:
        return f"Write about {topic}"

    @server.completion("poem", "topic")
    async def complete_topic(value: str, ctx: Context) -> list[str]:
        return [value + "!", *ctx.completion_arguments.values()]

    server.became = []  # type: ignore[attr-defined]
    return server


async def yes(params: dict[str, Any]) -> Any:
    return {"action": "accept", "content": {"name": params["message"], "age": 40}}


async def model(params: dict[str, Any]) -> Any:
    said = params["messages"][0]["content"]["text"]
    return {"role": "assistant", "model": "m", "content": {"type": "text", "text": f"{said} yourself"}}


async def places(params: dict[str, Any]) -> Any:
    return {"roots": [{"uri": "file:///a"}, {"uri": "file:///b", "name": "B"}]}


# ----- what there is


@both
async def test_the_two_know_each_other(era: Era, server: Server) -> None:
    async with connect(server, **options(era)) as client:
        assert isinstance(client, Client)
        assert client.server_info["name"] == "under test"
        assert client.server_info["version"] == "7"
        assert client.capabilities["tools"] == {"listChanged": True}
        assert client.capabilities["resources"]["subscribe"] is True


@pytest.mark.parametrize("revision", REVISIONS)
async def test_any_revision(revision: str, server: Server) -> None:
    @server.tool
    async def version(ctx: Context) -> str:
        return ctx.protocol_version

    async with connect(server, revision=revision) as client:
        result = await client.call_tool("version")
        assert result.content == [TextContent(revision)]


@both
async def test_lists_are_whole(era: Era, server: Server) -> None:
    # The server has pages of two.
    async with connect(server, **options(era)) as client:
        assert [tool.name for tool in await client.list_tools()] == [tool.name for tool in server.tools]
        assert [resource.uri for resource in await client.list_resources()] == ["test://text"]
        templates = await client.list_resource_templates()
        assert [template.uri_template for template in templates] == ["test://{name}/twice"]
        [prompt] = await client.list_prompts()
        assert prompt.arguments is not None
        assert prompt.arguments[0].name == "topic"


@both
async def test_calls(era: Era, server: Server) -> None:
    async with connect(server, **options(era)) as client:
        result = await client.call_tool("add", {"a": 1, "b": 2})
        assert result.structured == (3 if era == "modern" else {"result": 3})
        assert result.text == "3"
        assert not result.is_error
        assert (await client.call_tool("plain", {"text": "loud"})).content == [TextContent("LOUD")]
        assert await client.read_resource("test://text") == [
            TextResourceContents(uri="test://text", mime_type="text/plain", text="text")
        ]
        [twice] = await client.read_resource("test://ab/twice")
        assert isinstance(twice, TextResourceContents)
        assert twice.text == "abab"
        prompt = await client.get_prompt("poem", {"topic": "rain"})
        assert prompt.messages[0].content == TextContent("Write about rain")
        assert (await client.complete("poem", "topic", "su", given={"other": "x"})).values == ["su!", "x"]
        assert (await client.complete("test://{name}/twice", "name", "a")).values == []


@both
async def test_errors(era: Era, server: Server) -> None:
    async with connect(server, **options(era)) as client:
        told = await client.call_tool("fail", {"how": "tool"})
        assert (told.is_error, told.content) == (True, [TextContent("told to")])
        broken = await client.call_tool("fail", {"how": "break"})
        assert broken.is_error
        assert "secret" not in str(broken.content)
        assert (await client.call_tool("add", {"a": "x", "b": 2})).is_error
        with pytest.raises(ProtocolError, match="of its own") as caught:
            await client.call_tool("fail", {"how": "protocol"})
        assert (caught.value.code, caught.value.data) == (1234, {"more": [1]})
        for request in (
            client.call_tool("nothing"),
            client.read_resource("test://nothing"),
            client.get_prompt("nothing"),
            client.complete("poem", "nothing", ""),
            client.request("no/such/method"),
        ):
            with pytest.raises(ProtocolError):
                await request
        assert (await client.call_tool("add", {"a": 1, "b": 1})).content == [TextContent("2")]


async def test_ping(server: Server) -> None:
    async with connect(server, era="legacy") as client:
        assert await client.request("ping") == {}


# ----- what comes unasked


@both
async def test_notifications(era: Era, server: Server) -> None:
    async with connect(server, **options(era)) as client:
        meta: dict[str, Any] = {"progressToken": "p", "io.modelcontextprotocol/logLevel": "info"}
        assert (await client.call_tool("report", meta=meta)).content == [TextContent("reported")]
        methods = [notification["method"] for notification in client.notifications]
        assert methods == ["notifications/progress", "notifications/message", "notifications/progress"]
        assert client.notifications[0]["params"] == {
            "progressToken": "p",
            "progress": 1,
            "total": 2,
            "message": "half",
        }
        assert client.notifications[1]["params"] == {"level": "error", "data": {"bad": True}}


async def test_waiting_for_a_notification(autojump_clock: MockClock, server: Server) -> None:
    async with connect(server, era="legacy") as client:
        await wait_all_tasks_blocked()
        client.notified = trio.Event()
        server.remove_tool("add")
        with trio.fail_after(1):
            await client.notified.wait()
        assert client.notifications[-1] == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        assert "add" not in [tool.name for tool in await client.list_tools()]


async def test_subscriptions(autojump_clock: MockClock, server: Server) -> None:
    async with connect(server, era="legacy") as client:
        await client.request("resources/subscribe", {"uri": "test://text"})
        server.notify_resource_updated("test://text")
        server.notify_resource_updated("test://other/twice")
        await wait_all_tasks_blocked()
        updated = [n["params"] for n in client.notifications if n["method"] == "notifications/resources/updated"]
        assert updated == [{"uri": "test://text"}]


# ----- what it is asked


@both
async def test_an_elicitation_is_answered(era: Era, server: Server) -> None:
    async with connect(server, elicit=yes, **options(era)) as client:
        assert (await client.call_tool("ask")).content == [TextContent("accept: Who(name='Who are you?', age=40)")]
        assert (await client.call_tool("ask_twice")).content == [TextContent("First, Second")]


@both
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_an_elicitation_is_refused(era: Era, server: Server, action: str) -> None:
    async def no(params: dict[str, Any]) -> Any:
        return {"action": action}

    async with connect(server, elicit=no, **options(era)) as client:
        assert (await client.call_tool("ask")).content == [TextContent(f"{action}: None")]


@both
async def test_an_elicitation_by_url(era: Era, server: Server) -> None:
    asked: list[dict[str, Any]] = []

    async def visit(params: dict[str, Any]) -> Any:
        asked.append(params)
        return {"action": "accept"}

    async with connect(server, elicit=visit, **options(era)) as client:
        assert (await client.call_tool("visit")).content == [TextContent("accept")]
    assert asked[0]["mode"] == "url"
    assert asked[0]["url"] == "https://example.com/pay"


@both
async def test_all_may_be_asked_at_once(autojump_clock: MockClock, era: Era, server: Server) -> None:
    async with connect(server, elicit=yes, sample=model, roots=places, **options(era)) as client:
        result = await client.call_tool("ask_all")
        assert result.content == [TextContent("model=Hi yourself roots=file:///a,file:///b user=accept")]


@both
async def test_what_the_client_cannot_do_is_not_declared(era: Era, server: Server) -> None:
    seen: list[Any] = []

    @server.tool
    async def look(ctx: Context) -> str:
        declared = ctx.client_capabilities
        seen.append((declared.sampling, declared.elicitation, declared.roots))
        return ""

    async with connect(server, **options(era)) as client:
        await client.call_tool("look")
        assert seen == [(None, None, None)]
        if era == "modern":
            with pytest.raises(ProtocolError) as caught:
                await client.call_tool("ask")
            assert caught.value.code == -32021
        else:
            assert (await client.call_tool("ask")).is_error
    seen.clear()
    async with connect(server, sample=model, **options(era)) as client:
        await client.call_tool("look")
        [(sampling, elicitation, roots)] = seen
        assert sampling is not None
        assert elicitation is None
        assert roots is None


async def test_an_answer_may_be_an_error(server: Server) -> None:
    async def refuse(params: dict[str, Any]) -> Any:
        raise ProtocolError(-1, "User rejected sampling")

    @server.tool
    async def try_model(ctx: Context) -> str:
        return (await ctx.sample("Hi", max_tokens=1)).text

    async with connect(server, sample=refuse, era="legacy") as client:
        result = await client.call_tool("try_model")
        assert result.is_error
        assert "User rejected sampling" in str(result.content)


async def test_a_modern_answer_may_be_an_error(server: Server) -> None:
    async def refuse(params: dict[str, Any]) -> Any:
        raise ProtocolError(-1, "User rejected sampling")

    async with connect(server, elicit=yes, sample=refuse, roots=places) as client:
        # A modern client has no way to answer with an error: it gives up the call, and its caller hears why.
        with pytest.raises(ProtocolError, match="User rejected sampling"):
            await client.call_tool("ask_all")


@both
async def test_an_answer_that_does_not_fit(autojump_clock: MockClock, era: Era, server: Server) -> None:
    answers: list[Any] = [{"name": 5}, {}, {"name": "Ada"}]

    async def odd(params: dict[str, Any]) -> Any:
        return {"action": "accept", "content": answers.pop(0)}

    async with connect(server, elicit=odd, **options(era)) as client:
        with trio.fail_after(60):
            result = await client.call_tool("ask")
    if era == "legacy":
        assert result.is_error
        assert len(answers) == 2
    else:
        # "the server SHOULD respond with a new InputRequiredResult": the user is asked again.
        assert result.content == [TextContent("accept: Who(name='Ada', age=18)")]
        assert answers == []


# ----- cancellation


@both
async def test_cancelling_a_request_tells_the_server(autojump_clock: MockClock, era: Era, server: Server) -> None:
    async with connect(server, **options(era)) as client:
        with trio.move_on_after(5) as scope:
            await client.call_tool("wait")
        assert scope.cancelled_caught
        await wait_all_tasks_blocked()
        assert server.became == ["began", "cancelled"]  # type: ignore[attr-defined]
        assert (await client.call_tool("add", {"a": 1, "b": 2})).content == [TextContent("3")]


@both
async def test_leaving_cancels_what_runs(autojump_clock: MockClock, era: Era, server: Server) -> None:
    async with trio.open_nursery() as nursery:
        async with connect(server, **options(era)) as client:
            nursery.start_soon(client.call_tool, "wait")
            await wait_all_tasks_blocked()
            assert server.became == ["began"]  # type: ignore[attr-defined]
        assert server.became == ["began", "cancelled"]  # type: ignore[attr-defined]
        nursery.cancel_scope.cancel()


@both
async def test_calls_run_at_the_same_time(autojump_clock: MockClock, era: Era, server: Server) -> None:
    @server.tool
    async def nap(seconds: float) -> str:
        await trio.sleep(seconds)
        return f"{seconds:g}"

    done: list[str] = []
    async with connect(server, **options(era)) as client:

        async def call(seconds: float) -> None:
            await client.call_tool("nap", {"seconds": seconds})
            done.append(f"{seconds:g}")

        async with trio.open_nursery() as nursery:
            for seconds in (3, 1, 2):
                nursery.start_soon(call, seconds)
        assert done == ["1", "2", "3"]
        assert trio.current_time() == pytest.approx(3, abs=0.5)


# ----- around it


@both
async def test_the_lifespan_is_open_while_connected(era: Era) -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncGenerator[str, None]:
        seen.append("in")
        yield "a database"
        seen.append("out")

    server = Server("l", lifespan=lifespan)

    @server.tool
    async def look(ctx: Context) -> str:
        return f"{ctx.lifespan}"

    for _ in range(2):
        async with connect(server, **options(era)) as client:
            assert (await client.call_tool("look")).content == [TextContent("a database")]
            assert seen[-1] == "in"
    assert seen == ["in", "out", "in", "out"]


async def test_a_failing_assertion_is_not_hidden(server: Server) -> None:
    # In a group, pytest would show less of it, and `pytest.raises` around it would not match.
    with pytest.raises(AssertionError, match=r"^mine$"):
        async with connect(server):
            raise AssertionError("mine")


async def test_no_structured_content_is_none(server: Server) -> None:
    async with connect(server) as client:
        result = await client.call_tool("fail", {"how": "tool"})
        assert result.structured is None
        assert result.text == "told to"


async def test_session_state_of_a_legacy_client(server: Server) -> None:
    @server.tool
    async def count(ctx: Context) -> int:
        assert ctx.session is not None
        value: int = await ctx.session.update("n", lambda n: n + 1, 0)
        return value

    async with connect(server, era="legacy") as client:
        assert [(await client.call_tool("count")).content for _ in range(2)] == [[TextContent("1")], [TextContent("2")]]
    async with connect(server, era="legacy") as client:
        assert (await client.call_tool("count")).content == [TextContent("1")]


async def test_handles_live_in_the_store(server: Server) -> None:
    @server.tool
    async def keep(value: int, ctx: Context) -> str:
        return await ctx.handles.create(value)

    @server.tool
    async def fetch(handle: str, ctx: Context) -> int:
        value: int = await ctx.handles.get(handle)
        return value

    store = MemoryStore()
    async with connect(server, store=store) as client:
        kept = (await client.call_tool("keep", {"value": 5})).content[0]
        assert isinstance(kept, TextContent)
    async with connect(server, store=store) as client:
        assert (await client.call_tool("fetch", {"handle": kept.text})).content == [TextContent("5")]
    async with connect(server) as client:
        assert (await client.call_tool("fetch", {"handle": kept.text})).is_error


async def test_settings_hold_here_too(server: Server) -> None:
    @server.tool(read_only=True)
    async def look() -> str:
        return ""

    async with connect(server, read_only=True) as client:
        assert [tool.name for tool in await client.list_tools()] == ["look"]
    with pytest.raises(SettingError, match="cache_scope"):
        async with connect(server, cache_scope="secret"):  # type: ignore[arg-type]
            pass
    with pytest.raises(SettingError, match="etcd"):
        async with connect(server, store="etcd://"):
            pass


async def test_an_unknown_revision_is_a_mistake_that_is_said(server: Server) -> None:
    with pytest.raises(ValueError, match=r"2024-01-01.*2025-11-25"):
        async with connect(server, revision="2024-01-01"):
            pass


async def test_roots_are_typed(server: Server) -> None:
    found: list[list[Root]] = []

    @server.tool
    async def where(ctx: Context) -> str:
        found.append(await ctx.roots())
        return ""

    async with connect(server, roots=places, era="legacy") as client:
        await client.call_tool("where")
    assert found == [[Root("file:///a"), Root("file:///b", "B")]]


def test_it_needs_nothing_but_what_mcpd_needs() -> None:
    # Authors of stores and servers may use another test runner.
    without = "import sys\nfor name in ('pytest', '_pytest', 'httpx', 'mcp'): sys.modules[name] = None\n"
    ended = subprocess.run(
        [sys.executable, "-c", without + "import mcpd.testing\nprint(len(mcpd.testing.store_contract.CHECKS) > 20)"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "True\n"), ended.stderr
