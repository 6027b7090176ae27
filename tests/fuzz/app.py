"""The server that is fuzzed: of each thing that a message can reach, one that takes as much as it may."""

from typing import Annotated, Any, Final, Literal

import trio
from msgspec import Meta, Struct

from mcpd import Context, Server, ToolError

server: Final = Server("fuzzed", version="1", instructions="Call anything.")


class Name(Struct):
    """An answer."""

    name: str


class Place(Struct):
    """Somewhere."""

    x: float
    y: float = 0.0
    tags: list[str] = []
    inside: "Place | None" = None


@server.tool
async def add(a: Annotated[int, Meta(le=10**18)], b: Annotated[int, Meta(ge=0, le=10**18)] = 1) -> int:
    return a + b


@server.tool
async def echo(value: Any, ctx: Context) -> Any:
    await ctx.debug(value)
    return value


@server.tool
async def visit(place: Place, how: Literal["car", "foot"] = "foot", when: dict[str, int] | None = None) -> Place:
    return place


@server.tool
async def mirrored(
    region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})],
    number: Annotated[int, Meta(extra_json_schema={"x-mcp-header": "Number"})] = 0,
) -> str:
    return f"{region} {number}"


_TREE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"value": {}, "number": {"multipleOf": 0.5}, "left": {"$ref": "#"}, "right": {"$ref": "#"}},
    "patternProperties": {"^x-": {"type": "string"}},
    "additionalProperties": False,
}


@server.tool(input_schema=_TREE)
async def tree(arguments: dict[str, Any]) -> int:
    return len(arguments)


@server.tool
async def count(ctx: Context, to: Annotated[int, Meta(ge=0, le=20)] = 3) -> str:
    for number in range(to):
        await ctx.progress(number, to, "counting")
        await ctx.info({"number": number})
    return "counted"


@server.tool
async def wait(ctx: Context, seconds: Annotated[float, Meta(ge=0, le=2)] = 0.05) -> str:
    await ctx.progress(0)
    await trio.sleep(seconds)
    return "waited"


@server.tool
async def ask(ctx: Context) -> str:
    first = await ctx.elicit("Who are you?", Name, key="first", timeout=1)
    second = await ctx.elicit("And who else?", Name, key="second", timeout=1)
    return f"{first.action} {second.action}"


@server.tool
async def keep(key: str, value: Any, ctx: Context) -> Any:
    if ctx.session is None:
        raise ToolError("There is no session to keep it in")
    try:
        await ctx.session.set(key, value)
    except ValueError as exc:
        raise ToolError(str(exc)) from None
    return await ctx.session.get(key)


@server.tool(task="optional")
async def job(ctx: Context, seconds: Annotated[float, Meta(ge=0, le=2)] = 0.05) -> str:
    await ctx.progress(1, 2, "half")
    await trio.sleep(seconds)
    return "done"


@server.tool
async def change() -> str:
    server.notify_resource_updated("note://1")
    server.notify_tools_changed()
    return "changed"


@server.resource("note://1")
async def note() -> str:
    return "one"


@server.resource("file://{name}/{+path}{?line,column}")
async def file(name: str, path: str, line: int = 0, column: int = 0) -> str:
    return f"{name} {path} {line} {column}"


@server.prompt
async def greet(name: str, tone: str = "kind") -> str:
    return f"Greet {name}, {tone}"


@server.completion("greet", "name")
async def names(value: str, ctx: Context) -> list[str]:
    return [value, *ctx.completion_arguments.values()]
