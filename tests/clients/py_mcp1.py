"""`mcp` 1.30: its ClientSession over Streamable HTTP, which knows the revisions up to 2025-11-25.

usage: py_mcp1.py URL [asyncio|trio]
"""

from __future__ import annotations

import sys
from functools import partial

from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl
from steps import Steps, filled_in, run

URL = sys.argv[1]
BACKEND = sys.argv[2] if len(sys.argv) > 2 else "trio"

logs: list[str] = []
progress: list[float] = []


async def on_sampling(context, params):
    text = types.TextContent(type="text", text=f"an answer to {params.messages[0].content.text!r}")
    return types.CreateMessageResult(role="assistant", content=text, model="m", stopReason="endTurn")


async def on_elicit(context, params):
    return types.ElicitResult(action="accept", content=filled_in(params.requestedSchema))


async def on_roots(context):
    return types.ListRootsResult(roots=[types.Root(uri="file:///project", name="project")])


async def on_log(params):
    logs.append(params.data)


async def on_progress(done, total, message):
    progress.append(done)


async def script(step: Steps) -> None:
    session = partial(
        ClientSession,
        sampling_callback=on_sampling,
        elicitation_callback=on_elicit,
        list_roots_callback=on_roots,
        logging_callback=on_log,
    )
    async with streamable_http_client(URL) as (read, write, session_id), session(read, write) as s:
        started = await s.initialize()
        print("negotiated", started.protocolVersion, "session", session_id())
        await step("ping", s.send_ping())
        await step("tools/list", s.list_tools())
        await step("call simple", s.call_tool("test_simple_text"))
        await step("call image", s.call_tool("test_image_content"))
        await step("call error", s.call_tool("test_error_handling"))
        await step("progress", s.call_tool("test_tool_with_progress", progress_callback=on_progress))
        print("progress seen", progress)
        await step("setLevel", s.set_logging_level("debug"))
        await step("logging", s.call_tool("test_tool_with_logging"))
        print("logs seen", logs)
        await step("resources/list", s.list_resources())
        await step("templates/list", s.list_resource_templates())
        await step("read text", s.read_resource(AnyUrl("test://static-text")))
        await step("read template", s.read_resource(AnyUrl("test://template/42/data")))
        await step("prompts/list", s.list_prompts())
        await step("prompts/get", s.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"}))
        prompt = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
        await step("completion", s.complete(prompt, {"name": "arg1", "value": "te"}))
        await step("sampling", s.call_tool("test_sampling", {"prompt": "hi"}))
        await step("elicitation", s.call_tool("test_elicitation", {"message": "hi"}))
        await step("elicit defaults", s.call_tool("test_elicitation_sep1034_defaults"))
        await step("elicit enums", s.call_tool("test_elicitation_sep1330_enums"))
        await step("roots", s.call_tool("test_input_required_result_list_roots"))
        await step("subscribe", s.subscribe_resource(AnyUrl("test://watched-resource")))
        await step("unsubscribe", s.unsubscribe_resource(AnyUrl("test://watched-resource")))
        await step("resume a stream", s.call_tool("test_reconnection"))


run(script, BACKEND)
