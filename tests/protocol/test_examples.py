"""The example messages of 2026-07-28: all must be read, and ours must be written back unchanged.

They come with the specification and are not part of this repository: see `tests.wire`.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcpd.protocol import jsonrpc, requests, types
from tests import wire
from tests.requirements import requirement

FOLDER = wire.SPEC / "examples"
EXAMPLES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/*.json"))

OURS: dict[str, Any] = {
    name: getattr(types, name)
    for name in (
        "AudioContent",
        "BlobResourceContents",
        "CallToolResult",
        "ClientCapabilities",
        "CompleteResult",
        "CreateMessageResult",
        "EmbeddedResource",
        "GetPromptResult",
        "ImageContent",
        "ListRootsResult",
        "ModelPreferences",
        "ReadResourceResult",
        "Resource",
        "ResourceLink",
        "Root",
        "SamplingMessage",
        "TextContent",
        "TextResourceContents",
        "Tool",
        "ToolResultContent",
        "ToolUseContent",
    )
} | {"ElicitResult": types.ElicitResult[Any]}
"""Types of our own that are sent, or read and sent."""

PARAMS: dict[str, type[requests.Params]] = {
    "CallToolRequest": requests.CallToolParams,
    "CompleteRequest": requests.CompleteParams,
    "GetPromptRequest": requests.GetPromptParams,
    "ListPromptsRequest": requests.ListParams,
    "ListResourceTemplatesRequest": requests.ListParams,
    "ListResourcesRequest": requests.ListParams,
    "ListToolsRequest": requests.ListParams,
    "PaginatedRequest": requests.ListParams,
    "ReadResourceRequest": requests.ReadResourceParams,
    "SubscriptionsListenRequest": requests.ListenParams,
    "CancelledNotification": requests.CancelledParams,
}
"""What is only read: the params of requests and notifications from clients."""

MESSAGES = {name.partition("/")[0] for name in EXAMPLES if b'"jsonrpc"' in (FOLDER / name).read_bytes()}


def of(*kinds: str) -> list[str]:
    """The examples of these kinds, of all without any; where there are none, a name whose test is skipped."""
    return [name for name in EXAMPLES if not kinds or name.partition("/")[0] in kinds] or ["(all of them)"]


def example(name: str) -> tuple[str, bytes, Any]:
    path: Path = wire.spec_file("examples", name)
    data = path.read_bytes()
    return path.parent.name, data, json.loads(data)


def sparse(value: Any) -> Any:
    """What is null, or says that nothing is wrong, is not written, and need not be."""
    if isinstance(value, dict):
        return {k: sparse(v) for k, v in value.items() if v is not None and (k, v) != ("isError", False)}
    return [sparse(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", of())
def test_each_example_is_what_the_official_schema_says(name):
    """Else the two would contradict each other, and these tests would prove nothing."""
    kind, _, plain = example(name)
    definitions, _ = wire._definitions(wire.MODERN)
    if kind in definitions:
        wire.check_schema(wire.MODERN, kind, plain)


@requirement("A1", "M182", "N193")
@pytest.mark.parametrize("name", of(*OURS))
def test_each_example_of_a_type_of_ours_is_read_and_written_back_unchanged(name):
    kind, data, plain = example(name)
    read = msgspec.json.decode(data, type=OURS[kind])
    assert json.loads(msgspec.json.encode(read)) == sparse(plain)


@requirement("A1", "A16")
@pytest.mark.parametrize("name", of(*MESSAGES))
def test_each_example_of_a_message_is_one(name):
    kind, data, plain = example(name)
    if kind.endswith("Error") and plain.get("id") is None:
        # Said of a message whose id could not be read; nobody can have asked for it.
        with pytest.raises(jsonrpc.MessageError):
            jsonrpc.decode(data)
        return
    message = jsonrpc.decode(data)
    assert (message.is_request, message.is_response) == ("method" in plain and "id" in plain, "method" not in plain)
    assert message.id == plain.get("id", msgspec.UNSET)
    assert json.loads(bytes(message.params)) == plain.get("params", {})


@requirement("B23", "B25", "A16")
@pytest.mark.parametrize("name", of(*PARAMS, *(f"{kind}Params" for kind in PARAMS)))
def test_the_params_of_each_request_are_read(name):
    kind, _, plain = example(name)
    params = PARAMS[kind.removesuffix("Params")]
    raw = msgspec.Raw(json.dumps(plain.get("params", plain)).encode())
    requests.decode_params(params, raw)
    requests.read_meta(raw)
