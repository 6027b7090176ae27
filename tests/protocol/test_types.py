"""The wire types: what they write, read back, and refuse; against the models of the official SDK."""

import re
from typing import Any

import mcp_types
import msgspec
import pytest

from mcpd.protocol.types import (
    CONTENT_BLOCKS,
    LOGGING_LEVELS,
    Annotations,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ClientCapabilities,
    CompleteResult,
    Completion,
    ContentBlock,
    CreateMessageResult,
    ElicitationCapability,
    ElicitResult,
    EmbeddedResource,
    GetPromptResult,
    Icon,
    ImageContent,
    Implementation,
    ListRootsResult,
    ModelHint,
    ModelPreferences,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceResult,
    Resource,
    ResourceLink,
    ResourceTemplate,
    Root,
    RootsCapability,
    SamplingCapability,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
    ToolChoice,
    ToolExecution,
    ToolResultContent,
    ToolUseContent,
)

ANNOTATIONS = Annotations(audience=["user", "assistant"], priority=0.5, last_modified="2025-01-12T15:00:58Z")
ICONS = [Icon("https://example.com/i.png", mime_type="image/png", sizes=["48x48", "any"], theme="dark")]
META = {"example.com/key": 1}
TEXT = TextContent("hello", annotations=ANNOTATIONS, meta=META)

# Every type with everything it has, and with as little as it can have.
SAMPLES: list[Any] = [
    Annotations(),
    ANNOTATIONS,
    Icon("data:image/png;base64,AA=="),
    ICONS[0],
    Implementation("server", "1.0"),
    Implementation("server", "1.0", title="t", description="d", website_url="https://example.com", icons=ICONS),
    TextContent(""),
    TEXT,
    ImageContent("AA==", "image/png", annotations=ANNOTATIONS, meta=META),
    AudioContent("AA==", "audio/wav", annotations=ANNOTATIONS, meta=META),
    ResourceLink(uri="note://1", name="n"),
    ResourceLink(
        uri="note://1",
        name="n",
        title="t",
        description="d",
        mime_type="text/plain",
        size=0,
        icons=ICONS,
        annotations=ANNOTATIONS,
        meta=META,
    ),
    EmbeddedResource(
        TextResourceContents(uri="note://1", text="", mime_type="text/plain", meta=META),
        annotations=ANNOTATIONS,
        meta=META,
    ),
    EmbeddedResource(BlobResourceContents(uri="note://1", blob="AA==", meta=META)),
    ToolUseContent(id="1", name="add", input={}, meta=META),
    ToolResultContent(tool_use_id="1", content=[]),
    ToolResultContent(tool_use_id="1", content=[TEXT], structured_content={"a": 1}, is_error=True, meta=META),
    Tool(name="add", input_schema={"type": "object"}),
    Tool(
        name="add",
        title="t",
        description="d",
        icons=ICONS,
        input_schema={"type": "object", "properties": {}},
        output_schema={"type": "object"},
        annotations=ToolAnnotations(
            title="t", read_only_hint=True, destructive_hint=False, idempotent_hint=False, open_world_hint=False
        ),
        execution=ToolExecution(task_support="optional"),
        meta=META,
    ),
    Resource(uri="note://1", name="n"),
    Resource(
        uri="note://1",
        name="n",
        title="t",
        description="d",
        mime_type="text/plain",
        size=3,
        icons=ICONS,
        annotations=ANNOTATIONS,
        meta=META,
    ),
    ResourceTemplate(uri_template="note://{id}", name="n", icons=ICONS, annotations=ANNOTATIONS, meta=META),
    Prompt(name="ask"),
    Prompt(
        name="ask",
        title="t",
        description="d",
        icons=ICONS,
        arguments=[PromptArgument("a", title="t", description="d", required=True)],
        meta=META,
    ),
    PromptMessage("user", TEXT),
    Root("file:///a"),
    Root("file:///a", name="n", meta=META),
    SamplingMessage("user", TEXT),
    SamplingMessage("assistant", [TEXT, ToolUseContent(id="1", name="add", input={"a": 1})], meta=META),
    GetPromptResult(messages=[]),
    GetPromptResult(description="d", messages=[PromptMessage("user", TEXT)], result_type="complete", meta=META),
    ReadResourceResult(contents=[]),
    ReadResourceResult(
        contents=[
            TextResourceContents(uri="note://1", text="x"),
            BlobResourceContents(uri="note://2", blob="AA=="),
        ],
        ttl_ms=0,
        cache_scope="private",
        result_type="complete",
        meta=META,
    ),
    CompleteResult(completion=Completion(values=[])),
    CompleteResult(completion=Completion(values=["a"], total=1, has_more=False), result_type="complete", meta=META),
    CreateMessageResult(role="assistant", content=TEXT, model="m", stop_reason="endTurn", meta=META),
    ElicitResult("accept", {"name": "Ada"}),
    ElicitResult("cancel"),
    ListRootsResult(roots=[Root("file:///a")]),
    ModelPreferences(),
    ModelPreferences(hints=[ModelHint("claude")], cost_priority=0, speed_priority=1, intelligence_priority=0.5),
    ToolChoice("required"),
    ClientCapabilities(),
    ClientCapabilities(sampling=SamplingCapability(), elicitation=ElicitationCapability(), roots=RootsCapability()),
    ClientCapabilities(
        sampling=SamplingCapability(context={}, tools={}),
        elicitation=ElicitationCapability(form={}, url={}),
        roots=RootsCapability(list_changed=True),
        experimental={"a": {}},
        extensions={"example.com/b": {}},
    ),
]


IDS = [f"{type(sample).__name__}-{index}" for index, sample in enumerate(SAMPLES)]


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_what_is_written_is_read_back(sample: Any):
    assert msgspec.json.decode(msgspec.json.encode(sample), type=type(sample)) == sample


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_the_official_sdk_reads_the_same(sample: Any):
    written = msgspec.json.encode(sample)
    model = getattr(mcp_types, type(sample).__name__)
    read = model.model_validate_json(written).model_dump(mode="json", by_alias=True, exclude_unset=True)
    expected = msgspec.json.decode(written)
    read.pop("resultType", None)
    expected.pop("resultType", None)
    assert read == expected


@pytest.mark.parametrize(
    ("sample", "wire"),
    [
        (TextContent("a"), '{"type":"text","text":"a"}'),
        (ImageContent("AA==", "image/png"), '{"type":"image","data":"AA==","mimeType":"image/png"}'),
        (ResourceLink(uri="a:b", name="n"), '{"type":"resource_link","uri":"a:b","name":"n"}'),
        (
            EmbeddedResource(TextResourceContents(uri="a:b", mime_type="text/plain", text="x")),
            '{"type":"resource","resource":{"uri":"a:b","mimeType":"text/plain","text":"x"}}',
        ),
        (CallToolResult([]), '{"content":[]}'),
        (
            CallToolResult([], is_error=True, result_type="complete"),
            '{"content":[],"isError":true,"resultType":"complete"}',
        ),
        (CallToolResult([], msgspec.Raw(b"null")), '{"content":[],"structuredContent":null}'),
        (GetPromptResult(messages=[]), '{"messages":[]}'),
        (ReadResourceResult(contents=[]), '{"contents":[]}'),
        (CompleteResult(completion=Completion(values=[])), '{"completion":{"values":[]}}'),
        (ClientCapabilities(sampling=SamplingCapability()), '{"sampling":{}}'),
        (TextContent("a", meta={"k": None}), '{"type":"text","text":"a","_meta":{"k":null}}'),
    ],
)
def test_wire_form(sample: Any, wire: str):
    assert msgspec.json.encode(sample).decode() == wire


def test_structured_content_may_be_null():
    decoded = msgspec.json.decode(b'{"content":[],"structuredContent":null}', type=CallToolResult)
    assert isinstance(decoded.structured_content, msgspec.Raw)
    assert bytes(decoded.structured_content) == b"null"
    absent = msgspec.json.decode(b'{"content":[]}', type=CallToolResult)
    assert absent.structured_content is msgspec.UNSET


@pytest.mark.parametrize("kind", CONTENT_BLOCKS)
def test_every_block_is_a_member_of_the_union(kind: type):
    assert isinstance(kind, type(TextContent))
    assert kind in ContentBlock.__args__


def test_unknown_keys_are_ignored():
    capabilities = msgspec.json.decode(
        b'{"sampling":{"new":1},"elicitation":{},"telepathy":{},"roots":{"listChanged":true,"x":0}}',
        type=ClientCapabilities,
    )
    assert capabilities == ClientCapabilities(
        sampling=SamplingCapability(), elicitation=ElicitationCapability(), roots=RootsCapability(list_changed=True)
    )


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        ('{"type":"resource","resource":{"uri":"a:b"}}', "resource contents need `text` or `blob`"),
        ('{"type":"resource","resource":{"uri":"a:b","text":1}}', "Expected `str`, got `int`"),
        ('{"type":"resource","resource":{"text":"x"}}', "missing required field `uri`"),
        ('{"type":"resource","resource":[]}', "resource contents must be an object, got list"),
        ('{"type":"resource_link","uri":"here","name":"n"}', "'here' is not a URI"),
        ('{"type":"video","data":""}', "Invalid value 'video'"),
        ('{"type":"text","text":"","annotations":{"priority":2}}', "priority 2.0 is outside 0..1"),
    ],
)
def test_malformed_content_is_refused(wire: str, message: str):
    with pytest.raises(msgspec.ValidationError, match=re.escape(message)):
        msgspec.json.decode(wire, type=ContentBlock)


def test_the_message_says_which_block_is_malformed():
    with pytest.raises(msgspec.ValidationError, match=re.escape("- at `$.content[1]`")):
        msgspec.json.decode(
            b'{"content":[{"type":"text","text":"a"},{"type":"resource","resource":{"uri":"a:b"}}]}',
            type=CallToolResult,
        )


@pytest.mark.parametrize("src", ["https://a/b", "HTTP://a/b", "data:image/png;base64,AA=="])
def test_icon_schemes(src: str):
    assert Icon(src).src == src


@pytest.mark.parametrize("src", ["javascript:alert(1)", "file:///etc/passwd", "ftp://a", "ws://a", "/icon.png", ""])
def test_unsafe_icons_are_refused(src: str):
    with pytest.raises(ValueError, match="must be an https:, http: or data: URI"):
        Icon(src)


def test_a_peer_with_a_bad_icon_is_still_welcome():
    peer = msgspec.json.decode(
        b'{"name":"c","version":"1","icons":[{"src":"file:///x"},{"src":"https://x"},7,{"sizes":[]}]}',
        type=Implementation,
    )
    assert peer.icons == [Icon("https://x")]
    peer = msgspec.json.decode(b'{"name":"c","version":"1","icons":[{"src":"file:///x"}]}', type=Implementation)
    assert peer.icons is None


@pytest.mark.parametrize("uri", ["note", "", "/etc/passwd", "1a:b", " a:b"])
def test_a_resource_needs_a_uri(uri: str):
    with pytest.raises(ValueError, match="is not a URI: it needs a scheme"):
        Resource(uri=uri, name="n")


@pytest.mark.parametrize("priority", [-0.1, 1.1, float("nan"), float("inf")])
def test_priorities_are_between_0_and_1(priority: float):
    with pytest.raises(ValueError, match=r"outside 0\.\.1"):
        Annotations(priority=priority)
    with pytest.raises(ValueError, match=r"speed_priority .* outside 0\.\.1"):
        ModelPreferences(speed_priority=priority)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (TextContent("a"), "a"),
        ([TextContent("a"), ImageContent("", "image/png"), TextContent("b")], "ab"),
        (ImageContent("", "image/png"), ""),
        ([], ""),
    ],
)
def test_text_of_a_sampled_message(content: Any, text: str):
    assert CreateMessageResult(role="assistant", content=content, model="m").text == text


class Person(msgspec.Struct):
    name: str


def test_elicited_content_is_read_as_the_wanted_type():
    read = msgspec.json.decode(b'{"action":"accept","content":{"name":"Ada"}}', type=ElicitResult[Person])
    assert read == ElicitResult("accept", Person("Ada"))
    with pytest.raises(msgspec.ValidationError, match=re.escape("$.content.name")):
        msgspec.json.decode(b'{"action":"accept","content":{"name":1}}', type=ElicitResult[Person])
    assert msgspec.json.decode(b'{"action":"decline"}', type=ElicitResult[Person]).content is None


CAN = (
    "can_sample",
    "can_sample_with_tools",
    "can_sample_with_context",
    "can_elicit_form",
    "can_elicit_url",
    "can_list_roots",
)


@pytest.mark.parametrize(
    ("declared", "can"),
    [
        ("{}", set()),
        ('{"sampling":null}', set()),
        ('{"sampling":{}}', {"can_sample"}),
        ('{"sampling":{"tools":{}}}', {"can_sample", "can_sample_with_tools"}),
        ('{"sampling":{"context":{}}}', {"can_sample", "can_sample_with_context"}),
        ('{"elicitation":{}}', {"can_elicit_form"}),
        ('{"elicitation":{"form":{}}}', {"can_elicit_form"}),
        ('{"elicitation":{"url":{}}}', {"can_elicit_url"}),
        ('{"elicitation":{"form":{},"url":{}}}', {"can_elicit_form", "can_elicit_url"}),
        ('{"roots":{}}', {"can_list_roots"}),
    ],
)
def test_what_a_client_can_do(declared: str, can: set[str]):
    capabilities = msgspec.json.decode(declared, type=ClientCapabilities)
    assert {each for each in CAN if getattr(capabilities, each)} == can


def test_logging_levels_are_in_the_order_of_rfc_5424():
    names = sorted(LOGGING_LEVELS, key=LOGGING_LEVELS.__getitem__)
    assert names == ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
