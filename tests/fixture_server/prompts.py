"""Prompts, and the completion of their arguments."""

from msgspec import Struct

from mcpd import Context, File, Image, PromptMessage, ProtocolError, Text
from tests.fixture_server.app import server
from tests.fixture_server.media import PNG

WORDS = ("paris", "party", "tea", "test", "testing")


@server.prompt
async def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
async def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.completion("test_prompt_with_arguments", "arg1")
async def complete_arg1(value: str) -> list[str]:
    """The words that begin with `value`."""
    return [word for word in WORDS if word.startswith(value)]


@server.completion("test_prompt_with_arguments", "arg2")
async def complete_arg2(value: str, ctx: Context) -> list[str]:
    """The words that begin with `value`, but not the one that `arg1` has already."""
    taken = ctx.completion_arguments.get("arg1")
    return [word for word in WORDS if word.startswith(value) and word != taken]


@server.prompt
async def test_prompt_with_embedded_resource(resourceUri: str) -> list[PromptMessage]:  # noqa: N803 (the suite's name for it)
    """A prompt that brings a resource along."""
    return [
        PromptMessage("user", File("Embedded resource content for testing.", uri=resourceUri, mime_type="text/plain")),
        PromptMessage("user", Text("Please process the embedded resource above.")),
    ]


@server.prompt
async def test_prompt_with_image() -> list[PromptMessage]:
    """A prompt that brings a picture along."""
    return [
        PromptMessage("user", Image(PNG)),
        PromptMessage("user", Text("Please analyze the image above.")),
    ]


class Subject(Struct):
    """What a prompt is to be about."""

    context: str


@server.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that first asks what it is to be about."""
    answer = await ctx.elicit("What context should the prompt use?", Subject, key="user_context")
    if answer.content is None:
        raise ProtocolError(-32602, f"the user gave no context ({answer.action})")
    return f"Answer with this in mind: {answer.content.context}"
