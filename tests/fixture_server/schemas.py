"""Tools with a word to say about the schema of their arguments."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from mcpd import Context
from tests.fixture_server.app import server


@server.tool
async def test_x_mcp_header(region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})] = "") -> str:
    """Take an argument that the client repeats in the header Mcp-Param-Region (since 2026-07-28)."""
    return f"region={region}"


CONTACT_SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "phone": {"type": "string"},
        "email": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@server.tool(input_schema=CONTACT_SCHEMA)
async def json_schema_2020_12_tool(arguments: dict[str, Any], ctx: Context) -> str:
    """Take arguments that only JSON Schema 2020-12 can describe."""
    await ctx.debug(sorted(arguments))
    return msgspec.json.encode(arguments).decode()
