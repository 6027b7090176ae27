"""`mcp` 2.3: its Client over Streamable HTTP.

usage: py_mcp2.py URL auto|legacy|2026-07-28 [asyncio|trio]
"""

from __future__ import annotations

import sys

from mcp import Client, types
from steps import Steps, filled_in, run

URL, MODE = sys.argv[1:3]
BACKEND = sys.argv[3] if len(sys.argv) > 3 else "trio"

logs: list[object] = []
progress: list[float] = []


async def on_sampling(context, params):
    text = types.TextContent(type="text", text=f"an answer to {params.messages[0].content.text!r}")
    return types.CreateMessageResult(role="assistant", content=text, model="m", stop_reason="endTurn")


async def on_elicit(context, params):
    return types.ElicitResult(action="accept", content=filled_in(params.requested_schema))


async def on_roots(context):
    return types.ListRootsResult(roots=[types.Root(uri="file:///project", name="project")])


async def on_log(params):
    logs.append(params.data)


async def on_progress(done, total, message):
    progress.append(done)


async def script(step: Steps) -> None:
    client = Client(
        URL,
        mode=MODE,
        sampling_callback=on_sampling,
        elicitation_callback=on_elicit,
        list_roots_callback=on_roots,
        logging_callback=on_log,
        read_timeout_seconds=10,
        **({} if MODE == "legacy" else {"log_level": "debug"}),
    )
    async with client as c:
        print("negotiated", c.protocol_version)
        modern = c.protocol_version >= "2026"
        await step("tools/list", c.list_tools())
        await step("call simple", c.call_tool("test_simple_text"))
        await step("call image", c.call_tool("test_image_content"))
        await step("call error", c.call_tool("test_error_handling"))
        await step("a header for an argument", c.call_tool("test_x_mcp_header", {"region": "Zürich"}))
        await step("progress", c.call_tool("test_tool_with_progress", progress_callback=on_progress))
        print("progress seen", progress)
        if not modern:
            await step("setLevel", c.set_logging_level("debug"))
        await step("logging", c.call_tool("test_tool_with_logging"))
        print("logs seen", logs)
        await step("resources/list", c.list_resources())
        await step("templates/list", c.list_resource_templates())
        await step("read text", c.read_resource("test://static-text"))
        await step("read template", c.read_resource("test://template/42/data"))
        await step("prompts/list", c.list_prompts())
        await step("prompts/get", c.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"}))
        prompt = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
        await step("completion", c.complete(prompt, {"name": "arg1", "value": "te"}))
        # Questions, the same tools in both eras: on a stream of the call, or by calling again.
        await step("sampling", c.call_tool("test_sampling", {"prompt": "hi"}))
        await step("elicitation", c.call_tool("test_elicitation", {"message": "hi"}))
        await step("elicit enums", c.call_tool("test_elicitation_sep1330_enums"))
        await step("roots", c.call_tool("test_input_required_result_list_roots"))
        await step("two rounds", c.call_tool("test_input_required_result_multi_round"))
        await step("a prompt that asks", c.get_prompt("test_input_required_result_prompt"))
        if modern:
            await step("several questions at once", c.call_tool("test_input_required_result_multiple_inputs"))
            await step("subscriptions/listen", heard_of_tools(c))
        else:
            await step("ping", c.send_ping())
            await step("subscribe", c.subscribe_resource("test://watched-resource"))
            await step("unsubscribe", c.unsubscribe_resource("test://watched-resource"))
            await step("resume a stream", c.call_tool("test_reconnection"))


async def heard_of_tools(client: Client) -> object:
    async with client.listen(tools_list_changed=True) as subscription:
        await client.call_tool("test_trigger_tool_change")
        async for event in subscription:
            return event
    return None


run(script, BACKEND)
