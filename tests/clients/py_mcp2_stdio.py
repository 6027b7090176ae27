"""`mcp` 2.3: its Client over stdio.

usage: py_mcp2_stdio.py auto|legacy|2026-07-28 COMMAND [ARGUMENT...]
"""

from __future__ import annotations

import os
import sys

from mcp import Client, StdioServerParameters, types
from steps import Steps, filled_in, run

MODE, COMMAND, *ARGUMENTS = sys.argv[1:]
progress: list[float] = []


async def on_elicit(context, params):
    return types.ElicitResult(action="accept", content=filled_in(params.requested_schema))


async def on_progress(done, total, message):
    progress.append(done)


async def script(step: Steps) -> None:
    server = StdioServerParameters(command=COMMAND, args=ARGUMENTS, env=dict(os.environ))
    async with Client(server, mode=MODE, elicitation_callback=on_elicit, read_timeout_seconds=10) as c:
        print("negotiated", c.protocol_version)
        await step("tools/list", c.list_tools())
        await step("call simple", c.call_tool("test_simple_text"))
        await step("call error", c.call_tool("test_error_handling"))
        await step("progress", c.call_tool("test_tool_with_progress", progress_callback=on_progress))
        print("progress seen", progress)
        await step("read text", c.read_resource("test://static-text"))
        await step("prompts/get", c.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"}))
        await step("elicitation", c.call_tool("test_elicitation", {"message": "hi"}))


run(script, "trio")
