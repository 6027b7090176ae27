"""Results for clients of older revisions: what their revision lacks is said with what it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import UNSET

from mcpd.protocol.types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    Prompt,
    Resource,
    ResourceLink,
    ResourceTemplate,
    TextContent,
    Tool,
)

if TYPE_CHECKING:
    from mcpd.protocol.revisions import Revision
    from mcpd.protocol.types import CallToolResult, ContentBlock

D = TypeVar("D", Tool, Resource, ResourceTemplate, Prompt)


def declaration(item: D, revision: Revision) -> D:
    """Leave out of *item*, which is the caller's to change, what the revision does not know."""
    if not revision.icons:
        item.icons = None
    if not revision.structured:
        item.title = None
        item.meta = None
        if isinstance(item, Tool):
            item.output_schema = None
        elif isinstance(item, Resource | ResourceTemplate):
            item.annotations = _annotations(item.annotations)
    if not revision.audio and isinstance(item, Tool):
        item.annotations = None
    return item


def block(content: ContentBlock, revision: Revision) -> ContentBlock:
    """The content block in the words of the revision."""
    if not revision.structured and isinstance(content, ResourceLink):
        return TextContent(content.uri)
    if not revision.icons and isinstance(content, ResourceLink) and content.icons:
        # The block may be one that the handler keeps, and returns to others.
        return msgspec.structs.replace(content, icons=None)
    if not revision.audio and isinstance(content, AudioContent):
        # 2024-11-05 has no audio, but resources of any type.
        blob = BlobResourceContents(uri="data:" + content.mime_type, mime_type=content.mime_type, blob=content.data)
        return EmbeddedResource(blob, _annotations(content.annotations))
    if not revision.structured and content.annotations is not None:
        return msgspec.structs.replace(content, annotations=_annotations(content.annotations))
    return content


def _annotations(found: Annotations | None) -> Annotations | None:
    """The annotations as they were before 2025-06-18 brought ``lastModified``."""
    return None if found is None else msgspec.structs.replace(found, last_modified=None)


def result(value: CallToolResult, revision: Revision) -> CallToolResult:
    """The tool result in the words of the revision; *value* is the caller's to change."""
    if not revision.structured:
        value.structured_content = UNSET
    if not revision.icons:
        value.content = [block(content, revision) for content in value.content]
    return value
