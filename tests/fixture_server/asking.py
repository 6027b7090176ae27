"""Tools that ask the client: its model, its user."""

from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from mcpd import Context, ElicitResult
from tests.fixture_server.app import server


def _told(what: str, answer: ElicitResult[Any]) -> str:
    content = msgspec.json.encode(answer.content).decode()
    return f"{what}: action={answer.action}, content={content}"


@server.tool
async def test_missing_capability(ctx: Context) -> str:
    """Refuse the call of a client that has no model to ask."""
    ctx.require("sampling")
    return "This client has a model to ask."


@server.tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Ask the client's model."""
    answer = await ctx.sample(prompt, max_tokens=100, key="answer")
    return f"LLM response: {answer.text}"


class Contact(Struct):
    """How to reach a user."""

    username: str
    email: str


@server.tool
async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the client's user who they are."""
    return _told("User response", await ctx.elicit(message, Contact, key="contact"))


class Profile(Struct):
    """A form that is filled in already."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


@server.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask with a form that has defaults."""
    return _told("Elicitation completed", await ctx.elicit("Please check your profile", Profile, key="profile"))


# A raw schema, for what Python's types cannot say: titles of choices, and the older `enumNames`.
CHOICES: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": [
                {"const": "value1", "title": "First option"},
                {"const": "value2", "title": "Second option"},
                {"const": "value3", "title": "Third option"},
            ],
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option one", "Option two", "Option three"],
        },
        "untitledMulti": {
            "type": "array",
            "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
        },
        "titledMulti": {
            "type": "array",
            "items": {
                "anyOf": [
                    {"const": "value1", "title": "First choice"},
                    {"const": "value2", "title": "Second choice"},
                    {"const": "value3", "title": "Third choice"},
                ]
            },
        },
    },
}


@server.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask with every kind of choice a form can have."""
    return _told("Elicitation completed", await ctx.elicit("Please choose", CHOICES, key="choices"))


class Reason(Struct):
    """Why somebody wants something."""

    reason: str


@server.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Report progress, then ask: on a stream, in either era."""
    await ctx.progress(0, total=1, message="About to ask")
    return _told("User response", await ctx.elicit("Why do you call this tool?", Reason, key="reason"))
