"""`fastmcp` 4.2: its Client over Streamable HTTP. It needs asyncio.

usage: py_fastmcp.py URL auto|legacy
"""

from __future__ import annotations

import sys

from fastmcp import Client
from steps import Steps, run

URL, MODE = sys.argv[1:3]

logs: list[object] = []
progress: list[float] = []


async def on_log(message):
    logs.append(message.data)


async def on_progress(done, total, message):
    progress.append(done)


async def on_sample(messages, params, context):
    return f"an answer to {messages[0].content.text!r}"


async def on_elicit(message, response_type, params, context):
    return {"username": "x", "email": "x", "name": "x"}


async def script(step: Steps) -> None:
    client = Client(
        URL,
        mode=MODE,
        log_handler=on_log,
        sampling_handler=on_sample,
        elicitation_handler=on_elicit,
        roots=["file:///project"],
    )
    async with client as c:
        print("negotiated", c.protocol_version)
        modern = c.protocol_version >= "2026"  # which has neither ping nor logging/setLevel
        if not modern:
            await step("ping", c.ping())
            await step("setLevel", c.set_logging_level("debug"))
        await step("tools/list", c.list_tools())
        await step("call simple", c.call_tool("test_simple_text"))
        await step("call error", c.call_tool("test_error_handling", raise_on_error=False))
        await step("progress", c.call_tool("test_tool_with_progress", progress_handler=on_progress))
        print("progress seen", progress)
        if not modern:
            await step("logging", c.call_tool("test_tool_with_logging"))
            print("logs seen", logs)
        await step("resources/list", c.list_resources())
        await step("templates/list", c.list_resource_templates())
        await step("read text", c.read_resource("test://static-text"))
        await step("read template", c.read_resource("test://template/42/data"))
        await step("prompts/list", c.list_prompts())
        await step("prompts/get", c.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"}))
        await step("sampling", c.call_tool("test_sampling", {"prompt": "hi"}))
        await step("elicitation", c.call_tool("test_elicitation", {"message": "hi"}))
        await step("roots", c.call_tool("test_input_required_result_list_roots"))


run(script, "asyncio")
