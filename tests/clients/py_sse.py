"""`mcp`, either release: its ClientSession over HTTP+SSE of 2024-11-05.

usage: py_sse.py URL [asyncio|trio]
"""

from __future__ import annotations

import sys

from mcp import ClientSession, types
from mcp.client.sse import sse_client
from steps import Steps, filled_in, run

URL = sys.argv[1]
BACKEND = sys.argv[2] if len(sys.argv) > 2 else "trio"

logs: list[object] = []
progress: list[float] = []


async def on_sampling(context, params):
    text = types.TextContent(type="text", text=f"an answer to {params.messages[0].content.text!r}")
    return types.CreateMessageResult(role="assistant", content=text, model="m")


async def on_elicit(context, params):
    schema = getattr(params, "requested_schema", None) or params.requestedSchema
    return types.ElicitResult(action="accept", content=filled_in(schema))


async def on_log(params):
    logs.append(params.data)


async def on_progress(done, total, message):
    progress.append(done)


async def script(step: Steps) -> None:
    async with (
        sse_client(URL) as (read, write),
        ClientSession(
            read, write, sampling_callback=on_sampling, elicitation_callback=on_elicit, logging_callback=on_log
        ) as session,
    ):
        started = await session.initialize()
        print("negotiated", getattr(started, "protocol_version", None) or started.protocolVersion)
        await step("ping", session.send_ping())
        await step("tools/list", session.list_tools())
        await step("call simple", session.call_tool("test_simple_text"))
        await step("call error", session.call_tool("test_error_handling"))
        await step("progress", session.call_tool("test_tool_with_progress", progress_callback=on_progress))
        print("progress seen", progress)
        await step("logging", session.call_tool("test_tool_with_logging"))
        print("logs seen", logs)
        await step("prompts/get", session.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"}))
        await step("sampling", session.call_tool("test_sampling", {"prompt": "hi"}))
        await step("elicitation", session.call_tool("test_elicitation", {"message": "hi"}))


run(script, BACKEND)
