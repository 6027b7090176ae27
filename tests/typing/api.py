"""The public API as users write it. mypy and pyright check it, both strict; it is never run.

A line with ``type: ignore`` is one that a type checker has to refuse: mypy says so if it no longer does.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, assert_type

import trio
import trio.testing
from msgspec import Meta, Struct

import mcpd
from mcpd import (
    Annotations,
    Audio,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    CapabilityError,
    ClientError,
    Completion,
    ContentBlock,
    Context,
    CreateMessageResult,
    ElicitResult,
    EmbeddedResource,
    File,
    Icon,
    Image,
    ImageContent,
    McpdError,
    ModelHint,
    ModelPreferences,
    Principal,
    PromptMessage,
    ProtocolError,
    ResourceLink,
    Root,
    SamplingMessage,
    SchemaError,
    Server,
    SettingError,
    Settings,
    SignatureError,
    StoreError,
    Text,
    TextContent,
    TextResourceContents,
    TokenVerifier,
    Tool,
    ToolAnnotations,
    ToolChoice,
    ToolError,
    VerifierError,
)
from mcpd.ports import Bus, Event, EventLog, RecordStore, Store
from mcpd.testing import Client, ToolResult, connect, store_contract


@dataclass
class Database:
    rows: int


@asynccontextmanager
async def lifespan(server: Server) -> AsyncGenerator[Database, None]:
    yield Database(1)


server = Server(
    "api",
    version="1.0",
    title="API",
    description="All of it.",
    instructions="Read it.",
    website_url="https://example.com",
    icons=[Icon("https://example.com/icon.png", mime_type="image/png", sizes=["48x48"], theme="dark")],
    lifespan=lifespan,
    page_size=100,
    max_threads=10,
)
Server()  # type: ignore[call-arg]
Server("a", "1")  # type: ignore[call-arg]
Server("a", page_size="many")  # type: ignore[arg-type]

# ----- Tools


class Color(Enum):
    RED = "red"
    GREEN = "green"


class Place(Struct):
    name: str
    lat: float
    lon: float = 0.0


@dataclass
class Point:
    x: int
    y: int


class Row(TypedDict):
    key: str
    value: int


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def plain(text: str, times: int = 1) -> str:
    """A plain function, which runs in a thread."""
    return text * times


@server.tool(
    name="search.places",
    title="Search",
    description="Search for places.",
    icons=[Icon("data:image/png;base64,AA==")],
    annotations=ToolAnnotations(title="Search", read_only_hint=True, open_world_hint=False),
    read_only=True,
    output_schema={"type": "object"},
    meta={"example.com/x": 1},
    task="optional",
    scopes=["places:read"],
    timeout=30,
)
async def search(  # noqa: PLR0917 - a tool's parameters are named by its caller
    where: Place,
    when: date | None,
    limit: Annotated[int, Meta(ge=1, le=100, description="How many.")] = 10,
    color: Color = Color.RED,
    kind: Literal["a", "b"] = "a",
    tags: list[str] = [],  # noqa: B006
    points: tuple[Point, ...] = (),
    price: Decimal = Decimal(0),
    at: datetime | None = None,
    rows: dict[str, Row] | None = None,
    *,
    ctx: Context,
) -> list[Place]:
    """Everything a signature can have."""
    return [where]


@server.tool(input_schema={"type": "object", "properties": {"q": {"type": "string"}}})
async def raw(arguments: dict[str, Any], ctx: Context) -> CallToolResult:
    return CallToolResult([TextContent(str(arguments))], is_error=False)


@server.tool
async def content() -> list[ContentBlock]:
    return [
        TextContent("text", annotations=Annotations(audience=["user"], priority=0.5)),
        ImageContent("AA==", "image/png"),
        AudioContent("AA==", "audio/wav"),
        ResourceLink(name="a", uri="file:///a"),
        EmbeddedResource(TextResourceContents(uri="file:///a", text="a")),
        EmbeddedResource(BlobResourceContents(uri="file:///b", blob="AA==")),
    ]


@server.tool
async def helpers(path: str) -> tuple[TextContent, ImageContent, AudioContent, EmbeddedResource]:
    return (
        Text("for the model", annotations=Annotations(priority=1.0)),
        Image(b"", mime_type="image/png"),
        Audio(path=Path(path)),
        File(b"", uri="file:///a", mime_type="text/plain"),
    )


@server.tool(task_later=True)
async def fails(how: str, ctx: Context) -> None:
    await ctx.start_task()
    if how == "tool":
        raise ToolError("for the model")
    raise ProtocolError(1, "an error of its own", {"more": [1]})


async def functions_stay_functions() -> None:
    # Decorated, they are what they were.
    assert_type(await add(1, 2), int)
    assert_type(plain("a", times=2), str)
    assert_type(await helpers("a"), tuple[TextContent, ImageContent, AudioContent, EmbeddedResource])
    await add("1", 2)  # type: ignore[arg-type]


server.add_tool(plain, name="other", read_only=True)
server.remove_tool("other")
server.tool(5)  # type: ignore[call-overload]
server.tool(nam="a")  # type: ignore[call-overload]

# ----- Resources, prompts, completion, skills


@server.resource("note://{name}", title="Note", mime_type="text/plain", annotations=Annotations(priority=1), size=5)
async def note(name: str) -> str:
    return name


@server.resource("note://all")
async def notes(ctx: Context) -> list[str | bytes | TextResourceContents]:
    return ["a", b"b", TextResourceContents(uri="note://c", text="c")]


def blob(name: str) -> bytes:
    return name.encode()


server.add_resource("blob://{name}", blob, name="blob", meta={"a": 1}, cache_ttl=60, cache_scope="public")
server.add_resource("blob://{name}", blob, cache_scope="secret")  # type: ignore[arg-type]
server.remove_resource("blob://{name}")


@server.prompt
async def ask(topic: str, tone: str = "kind") -> str:
    return f"{tone} {topic}"


@server.prompt(name="dialogue", title="Dialogue", description="A dialogue.", meta={"a": 1})
async def dialogue(topic: str) -> list[PromptMessage | str]:
    return [PromptMessage("user", TextContent(topic)), PromptMessage("assistant", Text("yes")), "and then?"]


server.add_prompt(ask, name="again")
server.remove_prompt("again")


@server.completion("ask", "topic")
async def complete_topic(value: str, ctx: Context) -> list[str]:
    assert_type(ctx.completion_arguments, Mapping[str, str])
    return [value]


@server.completion("note://{name}", "name")
def complete_name(value: str) -> list[str]:
    return [value]


server.skills(Path("skills"))

# ----- What a handler can do


class Contact(Struct):
    name: str
    age: int = 18


@server.tool
async def everything(ctx: Context) -> str:
    await ctx.progress(1, 2, "half")
    await ctx.progress(2.0, total=2.0)
    await ctx.log("notice", {"any": ["json"]}, logger="api")
    await ctx.log("loud", "no")  # type: ignore[arg-type]
    await ctx.debug("a")
    await ctx.info("a")
    await ctx.warning("a")
    await ctx.error({"a": 1})

    form = await ctx.elicit("Who are you?", Contact, key="contact", timeout=60.0)
    assert_type(form, ElicitResult[Contact])
    assert_type(form.action, Literal["accept", "decline", "cancel"])
    if form.content is not None:
        assert_type(form.content, Contact)
        assert_type(form.content.age, int)
    free = await ctx.elicit("Who are you?", {"type": "object", "properties": {"name": {"type": "string"}}})
    if free.content is not None:
        assert_type(free.content, dict[str, Any])
    visited = await ctx.elicit_url("Please pay", "https://example.com/pay", key="pay")
    assert_type(visited, ElicitResult[None])

    written = await ctx.sample("Hi", max_tokens=100)
    assert_type(written, CreateMessageResult)
    assert_type(written.text, str)
    assert_type(written.model, str)
    await ctx.sample(
        [SamplingMessage("user", TextContent("Hi")), SamplingMessage("assistant", TextContent("Yes?"))],
        max_tokens=100,
        system_prompt="Be short.",
        include_context="none",
        temperature=0.5,
        stop_sequences=["."],
        model_preferences=ModelPreferences(hints=[ModelHint("claude")], speed_priority=1.0),
        metadata={"a": 1},
        tools=[Tool(name="t", input_schema={"type": "object"})],
        tool_choice=ToolChoice(mode="auto"),
        key="again",
    )
    await ctx.sample("Hi")  # type: ignore[call-arg]
    assert_type(await ctx.roots(), list[Root])
    ctx.require("elicitation.url")
    ctx.require("telepathy")  # type: ignore[arg-type]

    await ctx.notify_tools_changed()
    await ctx.notify_prompts_changed()
    await ctx.notify_resources_changed()
    await ctx.notify_resource_updated("note://all")
    await ctx.close_stream()

    if ctx.session is not None:
        assert_type(ctx.session.id, str)
        await ctx.session.set("n", 1)
        found: int = await ctx.session.get("n", 0)
        found = await ctx.session.update("n", lambda n: n + found, 0)
    handle = await ctx.handles.create({"n": 1}, ttl=60.0)
    assert_type(handle, str)
    await ctx.handles.set(handle, 2)
    await ctx.handles.update(handle, lambda n: n + 1)
    await ctx.handles.get(handle)
    assert_type(await ctx.handles.delete(handle), bool)
    await ctx.once("order", lambda: 5)

    assert_type(ctx.headers, Mapping[str, str])
    assert_type(ctx.protocol_version, str)
    assert_type(ctx.request_id, int | str)
    assert_type(ctx.principal, Principal | None)
    assert_type(ctx.meta, dict[str, Any])
    if ctx.client_info is not None:
        assert_type(ctx.client_info.name, str)
    if ctx.client_capabilities.sampling is not None:
        await ctx.info("it can sample")
    database: Database = ctx.lifespan
    return str(database.rows)


@server.tool
async def careful(ctx: Context) -> str:
    try:
        await ctx.elicit("Who?", Contact)
    except CapabilityError as exc:
        return exc.message
    except ClientError as exc:
        return f"{exc.code} {exc.data}"
    except StoreError:
        return "later"
    return ""


server.notify_tools_changed()
server.notify_resource_updated("note://all")
_MISTAKES: tuple[type[Exception], ...] = (SignatureError, SchemaError, SettingError, VerifierError, McpdError)

# ----- Serving


class Verifier:
    async def verify(self, token: str) -> Principal | None:
        return Principal("https://issuer", "me", scopes=frozenset({"a"})) if token == "x" else None


verifier: TokenVerifier = Verifier()


async def serving(store: Store, stop: trio.Event) -> None:
    async with trio.open_nursery() as nursery:
        url: str = await nursery.start(
            partial(
                mcpd.serve,
                server,
                store="memory",
                stop=stop.wait,
                host="127.0.0.1",
                port=0,
                session_idle=60.0,
                max_sessions=5,
                allowed_host=("a.example",),
                read_only=True,
                cache_scope="public",
                front="hypercorn",
            )
        )
        await trio.to_thread.run_sync(print, url)
    await mcpd.serve(server, store=store, port=8000, verifier=verifier)
    await mcpd.serve(server, prot=8000)  # type: ignore[call-arg]
    await mcpd.serve(server, port="8000")  # type: ignore[arg-type]
    await mcpd.serve(server, cache_scope="secret")  # type: ignore[arg-type]
    await mcpd.serve_stdio(server)
    await mcpd.serve_stdio(server, read_only=True, max_body=1_000_000, stop=stop.wait)


app = mcpd.asgi_app(server, path="/", store="memory", session_idle=60.0)
mcpd.asgi_app(server, path=5)  # type: ignore[arg-type]


async def larger_application(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    await app(scope, receive, send)  # type: ignore[arg-type]  # dict is invariant: frameworks have types of their own


settings = Settings(port=0, session_idle=60.0)
assert_type(settings.session_idle, float)
assert_type(settings.allowed_host, tuple[str, ...])
settings.port = 5  # type: ignore[misc]

# ----- Testing


async def answer(params: dict[str, Any]) -> Any:
    return {"action": "accept", "content": {"name": params["message"]}}


async def testing() -> None:
    async with connect(server, elicit=answer, sample=answer, roots=answer) as client:
        assert_type(client, Client)
        result = await client.call_tool("add", {"a": 1, "b": 2}, meta={"progressToken": 1})
        assert_type(result, ToolResult)
        assert_type(result.text, str)
        assert_type(result.is_error, bool)
        assert_type(await client.list_tools(), list[Tool])
        assert_type((await client.get_prompt("ask", {"topic": "a"})).messages, list[PromptMessage])
        assert_type(await client.complete("ask", "topic", "a"), Completion)
        for contents in await client.read_resource("note://a"):
            assert_type(contents, TextResourceContents | BlobResourceContents)
        assert_type(client.notifications, list[dict[str, Any]])
        await client.request("ping")
        await client.notify("notifications/initialized")
    async with connect(server, era="legacy", revision="2025-06-18", read_only=True):
        pass


# ----- A store of one's own


@asynccontextmanager
async def open_store(store: Store) -> AsyncGenerator[tuple[Store, Store], None]:
    records: RecordStore = store.records("session", capacity=5)
    await records.create("a", b"1", ttl=1.0, spare={"b"})
    assert_type(await records.load("a", ttl=1.0), bytes | None)
    assert_type(await records.save("a", b"2", ttl=1.0, expected=b"1"), bool)
    log: EventLog = store.events
    found = await log.read("s", "1", after=await log.append("s", "1", b"", last=True))
    if found is not None:
        events, finished = found
        assert_type(finished, bool)
        assert_type(events[0], Event)
    bus: Bus = store.bus
    async with bus.subscribe("a") as messages:
        assert_type(await messages.receive(), bytes)
    yield store, store


async def contract(store: Store, clock: trio.testing.MockClock) -> None:
    async def advance(seconds: float) -> None:
        clock.jump(seconds)

    await store_contract.check_store(partial(open_store, store), advance=advance)
    for check in store_contract.CHECKS:
        await check(partial(open_store, store), advance)
