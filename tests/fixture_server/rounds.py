"""Tools whose questions have keys, so that a client of 2026-07-28 answers by calling again.

A handler reads the same in both eras. On 2026-07-28 a call that lacks an answer ends, and the client's next call runs
the handler from its start with the answers so far at hand.
"""

import secrets

import trio
from msgspec import Struct

from mcpd import Context, ToolError
from tests.fixture_server.app import server


class Name(Struct):
    """Who somebody is."""

    name: str


class Color(Struct):
    """What somebody likes."""

    color: str


class Confirmation(Struct):
    """Whether to go on."""

    ok: bool


async def start_once(ctx: Context) -> str:
    """A number for the call that stays the same when the call is run again; so the call has a state to carry."""
    number: str = await ctx.once("number", lambda: secrets.token_hex(4))
    return number


async def ask_name(ctx: Context, message: str = "What is your name?", key: str = "user_name") -> str:
    """The user's name; raises `ToolError` for a user who keeps it to themselves."""
    answer = await ctx.elicit(message, Name, key=key)
    if answer.content is None:
        msg = f"the user did not tell their name ({answer.action})"
        raise ToolError(msg)
    return answer.content.name


async def ask_confirmation(ctx: Context) -> str:
    """`"accept"` for a user who confirms; raises `ToolError` for any other."""
    answer = await ctx.elicit("Shall I go on?", Confirmation, key="confirm")
    if answer.content is None or not answer.content.ok:
        msg = f"not confirmed ({answer.action})"
        raise ToolError(msg)
    return answer.action


@server.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Ask for a name and greet it."""
    return f"Hello, {await ask_name(ctx)}!"


@server.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the client's model a question."""
    answer = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return answer.text


@server.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Ask where the client lets the server work."""
    roots = await ctx.roots(key="client_roots")
    return f"Roots: {', '.join(root.uri for root in roots)}"


@server.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Ask for a confirmation; the client carries the state of the call."""
    await start_once(ctx)
    await ask_confirmation(ctx)
    return "state-ok"


@server.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Ask for a confirmation; a client that alters the state of the call gets an error."""
    await start_once(ctx)
    await ask_confirmation(ctx)
    return "The state came back as it was given."


@server.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask for a name, then for a colour: two rounds."""
    await start_once(ctx)
    name = await ask_name(ctx, "Step 1: What is your name?", key="step1")
    answer = await ctx.elicit("Step 2: What is your favorite color?", Color, key="step2")
    color = answer.content.color if answer.content else "unknown"
    return f"{name} likes {color}."


@server.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask for a name, a greeting and the roots, all at once."""
    await start_once(ctx)
    answers: dict[str, str] = {}

    async def name() -> None:
        answers["name"] = await ask_name(ctx)

    async def greeting() -> None:
        answers["greeting"] = (await ctx.sample("Generate a greeting", max_tokens=50, key="greeting")).text

    async def roots() -> None:
        answers["roots"] = ", ".join(root.uri for root in await ctx.roots(key="client_roots"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(name)
        nursery.start_soon(greeting)
        nursery.start_soon(roots)
    return "Hello, {name}! {greeting} Roots: {roots}".format_map(answers)


@server.tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask for what the client says it can answer, and for nothing else."""
    can = ctx.client_capabilities
    told: list[str] = []

    async def name() -> None:
        told.append(await ask_name(ctx))

    async def greeting() -> None:
        told.append((await ctx.sample("Generate a greeting", max_tokens=50, key="greeting")).text)

    async def roots() -> None:
        told.extend(root.uri for root in await ctx.roots(key="client_roots"))

    async with trio.open_nursery() as nursery:
        if can.can_elicit_form:
            nursery.start_soon(name)
        if can.can_sample:
            nursery.start_soon(greeting)
        if can.can_list_roots:
            nursery.start_soon(roots)
    return f"The client told: {sorted(told)}"
