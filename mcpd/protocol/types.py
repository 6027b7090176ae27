"""The types of MCP that travel in params and results, one struct each.

They serve every revision from 2024-11-05 to 2026-07-28: a field that only some revisions know is optional here, and
whoever writes a result leaves it unset for the others. What is absent, `None` or its default is not written. Unknown
keys are ignored when reading, as every revision asks ("[key: string]: unknown").

Source: https://modelcontextprotocol.io/specification/2026-07-28/schema and its predecessors.
"""

# No `from __future__ import annotations`: msgspec reads these annotations at run time.
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

Role: TypeAlias = Literal["user", "assistant"]
"""Who a message is from, or a piece of content for."""

LoggingLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
"""Severities of RFC 5424, in lower case."""

LOGGING_LEVELS: Final[Mapping[LoggingLevel, int]] = {
    "debug": 0,
    "info": 1,
    "notice": 2,
    "warning": 3,
    "error": 4,
    "critical": 5,
    "alert": 6,
    "emergency": 7,
}
"""Each level's place in the order of severity, the mildest first: send a message when its number is not below the
wanted one."""

JSONObject: TypeAlias = dict[str, Any]
"""A JSON object of any content, such as `_meta`."""

T = TypeVar("T")

_ICON_SCHEMES: Final = ("https:", "http:", "data:")
# RFC 3986 section 3.1 scheme; the protocol asks for URIs, which have one.
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")


class Wire(Struct, rename="camel", omit_defaults=True):
    """The base of every type here: camelCase names on the wire, defaults left out."""


def _check_uri(uri: str) -> None:
    if not _SCHEME.match(uri):
        raise ValueError(f"{uri!r} is not a URI: it needs a scheme, such as 'file:///notes.txt' or 'note://1'")


# ------------------------------------------------------------------------------------------------------------- metadata


class Annotations(Wire, kw_only=True):
    """Hints for the client about a resource or a piece of content.

    `audience`: who it is for. `priority`: from 0 (optional) to 1 (required). `last_modified`: ISO 8601, since
    2025-06-18.

    Raises `ValueError` for a priority outside 0..1.
    """

    audience: list[Role] | None = None
    priority: float | None = None
    last_modified: str | None = None

    def __post_init__(self) -> None:
        """Refuse a priority outside 0..1, NaN included."""
        if self.priority is not None and not 0 <= self.priority <= 1:
            raise ValueError(f"priority {self.priority!r} is outside 0..1")


class Icon(Wire):
    """A picture for a user interface (since 2025-11-25).

    `src`: an `https:`, `http:` or `data:` URI. `mime_type`: overrides what the source says. `sizes`: `"48x48"` or
    `"any"`.
    `theme`: the background it is meant for.

    Raises `ValueError` for any other scheme, which clients have to refuse
    (https://modelcontextprotocol.io/specification/2025-11-25/basic/index#icons).
    """

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | None = None

    def __post_init__(self) -> None:
        """Refuse a `src` that a client would have to refuse."""
        if not self.src.lower().startswith(_ICON_SCHEMES):
            raise ValueError(f"icon src {self.src[:80]!r} must be an https:, http: or data: URI")


if TYPE_CHECKING:
    _LenientIcons: TypeAlias = list[Icon] | None
else:
    # Decoded by hand in __post_init__: an icon we may not use must not fail the whole message.
    _LenientIcons: TypeAlias = list[Any] | None


class Implementation(Wire):
    """The name and version of a client or a server, `clientInfo` and `serverInfo`.

    `title`: for people (since 2025-06-18). `website_url`, `description`, `icons`: since 2025-11-25. Icons of a peer
    that are malformed or have an unsafe scheme are dropped, without an error.
    """

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: _LenientIcons = None

    def __post_init__(self) -> None:
        """Keep only the icons that are safe to use."""
        if self.icons and not all(type(icon) is Icon for icon in self.icons):
            self.icons = [icon for each in self.icons if (icon := _icon_or_none(each)) is not None] or None


def _icon_or_none(value: Icon | JSONObject) -> Icon | None:
    try:
        return msgspec.convert(value, Icon)
    except msgspec.ValidationError:
        return None


# -------------------------------------------------------------------------------------------------------------- content


class TextResourceContents(Wire, kw_only=True):
    """What a resource holds, as text."""

    uri: str
    mime_type: str | None = None
    text: str
    meta: JSONObject | None = field(name="_meta", default=None)


class BlobResourceContents(Wire, kw_only=True):
    """What a resource holds, as bytes: `blob` is their base64 form (RFC 4648 section 4)."""

    uri: str
    mime_type: str | None = None
    blob: str
    meta: JSONObject | None = field(name="_meta", default=None)


if TYPE_CHECKING:
    ResourceContents: TypeAlias = TextResourceContents | BlobResourceContents
else:
    # On the wire nothing but the presence of `text` or `blob` tells them apart, and msgspec has no untagged unions: so
    # they are read as a plain object first, and told apart in the owner's __post_init__.
    ResourceContents: TypeAlias = Any


def _resource_contents(value: Any) -> ResourceContents:
    if isinstance(value, TextResourceContents | BlobResourceContents):
        return value
    if not isinstance(value, dict):
        # Here and below ValueError: it is what msgspec turns into its own error, with the place.
        raise ValueError(f"resource contents must be an object, got {type(value).__name__}")  # noqa: TRY004
    try:
        if "text" in value:
            return msgspec.convert(value, TextResourceContents)
        if "blob" in value:
            return msgspec.convert(value, BlobResourceContents)
    except msgspec.ValidationError as exc:
        raise ValueError(str(exc)) from None
    raise ValueError("resource contents need `text` or `blob`")


class TextContent(Wire, tag_field="type", tag="text"):
    """Text for, or from, a language model."""

    text: str
    annotations: Annotations | None = None
    meta: JSONObject | None = field(name="_meta", default=None)


class ImageContent(Wire, tag_field="type", tag="image"):
    """An image; `data` is base64. `mcpd.Image` makes one from bytes or a file."""

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: JSONObject | None = field(name="_meta", default=None)


class AudioContent(Wire, tag_field="type", tag="audio"):
    """Sound (since 2025-03-26); `data` is base64. `mcpd.Audio` makes one from bytes or a file."""

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: JSONObject | None = field(name="_meta", default=None)


class ResourceLink(Wire, kw_only=True, tag_field="type", tag="resource_link"):
    """A resource the client can read, by its URI (since 2025-06-18); it need not be in `resources/list`."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: JSONObject | None = field(name="_meta", default=None)

    def __post_init__(self) -> None:
        """Refuse what is no URI."""
        _check_uri(self.uri)


class EmbeddedResource(Wire, tag_field="type", tag="resource"):
    """What a resource holds, put into a message. `mcpd.File` makes one from bytes, text or a file."""

    resource: ResourceContents
    annotations: Annotations | None = None
    meta: JSONObject | None = field(name="_meta", default=None)

    def __post_init__(self) -> None:
        """Tell text from blob, when decoding."""
        self.resource = _resource_contents(self.resource)


ContentBlock: TypeAlias = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource
"""What the result of a tool, or the message of a prompt, is made of."""

CONTENT_BLOCKS: Final = (TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource)
"""The members of `ContentBlock`, for `isinstance`."""


class ToolUseContent(Wire, kw_only=True, tag_field="type", tag="tool_use"):
    """In sampling: the model wants a tool called (since 2025-11-25)."""

    id: str
    name: str
    input: JSONObject
    meta: JSONObject | None = field(name="_meta", default=None)


class ToolResultContent(Wire, kw_only=True, tag_field="type", tag="tool_result"):
    """In sampling: what the tool call `tool_use_id` gave (since 2025-11-25). `structured_content`: any JSON value."""

    tool_use_id: str
    content: list[ContentBlock]
    structured_content: Any = UNSET
    is_error: bool = False
    meta: JSONObject | None = field(name="_meta", default=None)


SamplingContent: TypeAlias = TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent
"""What a message to or from the client's model is made of."""


# ---------------------------------------------------------------------------------------------------------------- tools


class ToolAnnotations(Wire, kw_only=True):
    """Hints, not promises, about a tool (since 2025-03-26).

    Left unset, a client is to assume: not read-only, destructive, not idempotent, open world.
    """

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolExecution(Wire, kw_only=True):
    """How a tool may run (2025-11-25 only)."""

    task_support: Literal["forbidden", "optional", "required"] | None = None


class Tool(Wire, kw_only=True):
    """A tool, as `tools/list` shows it. The schemas are JSON Schema, 2020-12 unless `$schema` says otherwise."""

    name: str
    title: str | None = None
    description: str | None = None
    icons: list[Icon] | None = None
    input_schema: JSONObject
    output_schema: JSONObject | None = None
    annotations: ToolAnnotations | None = None
    execution: ToolExecution | None = None
    meta: JSONObject | None = field(name="_meta", default=None)


class CallToolResult(Wire):
    """What a tool call gives.

    `structured_content`: encoded JSON; an object up to 2025-11-25, any value on 2026-07-28 (where `null` is a value:
    hence unset, not `None`). `is_error`: the tool failed, and `content` tells the model why. `result_type`: 2026-07-28
    only.
    """

    content: list[ContentBlock]
    structured_content: Raw | UnsetType = UNSET
    is_error: bool = False
    result_type: str | None = None
    meta: JSONObject | None = field(name="_meta", default=None)


# ------------------------------------------------------------------------------------------------------------ resources


class Resource(Wire, kw_only=True):
    """A resource, as `resources/list` shows it. `size`: bytes before any encoding."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: JSONObject | None = field(name="_meta", default=None)

    def __post_init__(self) -> None:
        """Refuse what is no URI."""
        _check_uri(self.uri)


class ResourceTemplate(Wire, kw_only=True):
    """A family of resources, as `resources/templates/list` shows it. `uri_template`: RFC 6570."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: JSONObject | None = field(name="_meta", default=None)


class ReadResourceResult(Wire, kw_only=True):
    """What `resources/read` gives. `ttl_ms` (milliseconds), `cache_scope`, `result_type`: 2026-07-28 only."""

    contents: list[ResourceContents]
    ttl_ms: int | None = None
    cache_scope: Literal["public", "private"] | None = None
    result_type: str | None = None
    meta: JSONObject | None = field(name="_meta", default=None)

    def __post_init__(self) -> None:
        """Tell text from blobs, when decoding."""
        self.contents = [_resource_contents(each) for each in self.contents]


# -------------------------------------------------------------------------------------------------------------- prompts


class PromptArgument(Wire):
    """An argument of a prompt; its value is always a string."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class Prompt(Wire, kw_only=True):
    """A prompt, as `prompts/list` shows it."""

    name: str
    title: str | None = None
    description: str | None = None
    icons: list[Icon] | None = None
    arguments: list[PromptArgument] | None = None
    meta: JSONObject | None = field(name="_meta", default=None)


class PromptMessage(Wire):
    """One message of a prompt: a single block of content."""

    role: Role
    content: ContentBlock


class GetPromptResult(Wire, kw_only=True):
    """What `prompts/get` gives. `result_type`: 2026-07-28 only."""

    description: str | None = None
    messages: list[PromptMessage]
    result_type: str | None = None
    meta: JSONObject | None = field(name="_meta", default=None)


# ----------------------------------------------------------------------------------------------------------- completion


class Completion(Wire, kw_only=True):
    """Proposals for the value of an argument: at most 100 `values`, of `total` that exist."""

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Wire, kw_only=True):
    """What `completion/complete` gives. `result_type`: 2026-07-28 only."""

    completion: Completion
    result_type: str | None = None
    meta: JSONObject | None = field(name="_meta", default=None)


# ------------------------------------------------------------------------------------------ what a server asks a client


class Root(Wire):
    """A place the client lets the server work in; so far a `file://` URI."""

    uri: str
    name: str | None = None
    meta: JSONObject | None = field(name="_meta", default=None)


class ListRootsResult(Wire, kw_only=True):
    """A client's answer to `roots/list`."""

    roots: list[Root]
    meta: JSONObject | None = field(name="_meta", default=None)


class SamplingMessage(Wire):
    """A message to or from the client's model: one block, or (since 2025-11-25) a list of them."""

    role: Role
    content: SamplingContent | list[SamplingContent]
    meta: JSONObject | None = field(name="_meta", default=None)


class ModelHint(Wire):
    """Part of a model's name, such as `"claude-3-5-sonnet"` or `"claude"`."""

    name: str | None = None


class ModelPreferences(Wire, kw_only=True):
    """What the server wants of the model, each priority from 0 to 1; hints are tried in order.

    Raises `ValueError` for a priority outside 0..1.
    """

    hints: list[ModelHint] | None = None
    cost_priority: float | None = None
    speed_priority: float | None = None
    intelligence_priority: float | None = None

    def __post_init__(self) -> None:
        """Refuse a priority outside 0..1, NaN included."""
        for name in ("cost_priority", "speed_priority", "intelligence_priority"):
            value: float | None = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{name} {value!r} is outside 0..1")


class ToolChoice(Wire):
    """Whether the client's model may, must or must not use tools (since 2025-11-25)."""

    mode: Literal["auto", "required", "none"] | None = None


class CreateMessageResult(Wire, kw_only=True):
    """A client's answer to `sampling/createMessage`.

    `stop_reason`: `"endTurn"`, `"stopSequence"`, `"maxTokens"`, `"toolUse"`, or a word of the provider.
    """

    role: Role
    content: SamplingContent | list[SamplingContent]
    model: str
    stop_reason: str | None = None
    meta: JSONObject | None = field(name="_meta", default=None)

    @property
    def text(self) -> str:
        """The text blocks, one after the other; an empty string if there are none."""
        blocks = self.content if isinstance(self.content, list) else [self.content]
        return "".join(block.text for block in blocks if isinstance(block, TextContent))


class ElicitResult(Wire, Generic[T]):
    """A client's answer to `elicitation/create` (since 2025-06-18).

    `content`: what the user filled in, when `action` is `"accept"` and the mode is form; else `None`.
    """

    action: Literal["accept", "decline", "cancel"]
    content: T | None = None
    meta: JSONObject | None = field(name="_meta", default=None)


# --------------------------------------------------------------------------------------------------------- capabilities


class SamplingCapability(Wire, kw_only=True):
    """`context`: includeContext other than "none". `tools`: tools and toolChoice. Both since 2025-11-25."""

    context: JSONObject | None = None
    tools: JSONObject | None = None


class ElicitationCapability(Wire, kw_only=True):
    """Which modes of elicitation a client offers; ask `supports_form` and `supports_url`, not the fields."""

    form: JSONObject | None = None
    url: JSONObject | None = None

    @property
    def supports_form(self) -> bool:
        """An empty capability means form mode only, as it did in 2025-06-18."""
        return self.form is not None or self.url is None

    @property
    def supports_url(self) -> bool:
        """Only when the client says so."""
        return self.url is not None


class RootsCapability(Wire, kw_only=True):
    """`list_changed`: the client announces changes (legacy only)."""

    list_changed: bool = False


class ClientCapabilities(Wire, kw_only=True):
    """What a client offers; `None` where it declared nothing.

    `tasks`: 2025-11-25 only. `extensions`: by name, since 2026-07-28. The `can_*` properties are what to ask before a
    request.
    """

    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = None
    roots: RootsCapability | None = None
    tasks: JSONObject | None = None
    experimental: JSONObject | None = None
    extensions: JSONObject | None = None

    @property
    def can_sample(self) -> bool:
        """`sampling/createMessage`."""
        return self.sampling is not None

    @property
    def can_sample_with_tools(self) -> bool:
        """`sampling/createMessage` with `tools` or `toolChoice`."""
        return self.sampling is not None and self.sampling.tools is not None

    @property
    def can_sample_with_context(self) -> bool:
        """`sampling/createMessage` with `includeContext` other than `"none"`."""
        return self.sampling is not None and self.sampling.context is not None

    @property
    def can_elicit_form(self) -> bool:
        """`elicitation/create` in form mode."""
        return self.elicitation is not None and self.elicitation.supports_form

    @property
    def can_elicit_url(self) -> bool:
        """`elicitation/create` in URL mode."""
        return self.elicitation is not None and self.elicitation.supports_url

    @property
    def can_list_roots(self) -> bool:
        """`roots/list`."""
        return self.roots is not None
