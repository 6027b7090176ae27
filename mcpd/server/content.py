"""Content for tools, prompts and resources, made from what Python programs have: bytes, text and files.

These are functions that return the structs of the protocol, so what they give can be returned, put into a
`PromptMessage`, or looked into like any other content. Annotate with `ImageContent`, not `Image`.
"""

import mimetypes
from base64 import b64encode
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeVar

from mcpd.protocol.jsonrpc import encode_foreign
from mcpd.protocol.types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    TextContent,
    TextResourceContents,
)

B = TypeVar("B", bound=ContentBlock | ResourceContents)

# Own tables: the answer must not depend on the MIME files of the machine.
_IMAGE_SUFFIXES: Final = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".avif": "image/avif",
    ".bmp": "image/bmp",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".svg": "image/svg+xml",
    ".ico": "image/vnd.microsoft.icon",
}
_AUDIO_SUFFIXES: Final = {
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".oga": "audio/ogg",
    ".opus": "audio/ogg",
    ".flac": "audio/flac",
    ".m4a": "audio/mp4",
    ".aac": "audio/aac",
    ".weba": "audio/webm",
}
_TEXT_SUFFIXES: Final = {
    ".txt": "text/plain",
    ".md": "text/markdown",
    ".csv": "text/csv",
    ".html": "text/html",
    ".json": "application/json",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".toml": "application/toml",
    ".xml": "application/xml",
    ".py": "text/x-python",
    ".pdf": "application/pdf",
}
_TEXT_TYPES: Final = frozenset(
    {
        "application/json",
        "application/yaml",
        "application/toml",
        "application/xml",
        "application/javascript",
        "application/sql",
        "application/x-sh",
        "application/x-ndjson",
    }
)


def Text(  # noqa: N802 (reads as the content it makes)
    text: str, *, annotations: Annotations | None = None, meta: dict[str, Any] | None = None
) -> TextContent:
    """Text for the model."""
    return TextContent(text, annotations=annotations, meta=meta)


def Image(  # noqa: N802
    data: bytes | None = None,
    *,
    path: str | PathLike[str] | None = None,
    mime_type: str | None = None,
    annotations: Annotations | None = None,
    meta: dict[str, Any] | None = None,
) -> ImageContent:
    """Make an image from its bytes, or from a file.

    Without `mime_type` it is found in the first bytes, or in the name of the file. Reading a file blocks: in an async
    function read it yourself and pass `data`.

    Raises `ValueError` when the type cannot be told, or not exactly one of `data` and `path` is given; `OSError` from
    reading.
    """
    data, mime_type = _load("image", _IMAGE_SUFFIXES, data, path, mime_type)
    return ImageContent(_base64(data), mime_type, annotations=annotations, meta=meta)


def Audio(  # noqa: N802
    data: bytes | None = None,
    *,
    path: str | PathLike[str] | None = None,
    mime_type: str | None = None,
    annotations: Annotations | None = None,
    meta: dict[str, Any] | None = None,
) -> AudioContent:
    """Make audio from its bytes, or from a file; otherwise like `Image`."""
    data, mime_type = _load("audio", _AUDIO_SUFFIXES, data, path, mime_type)
    return AudioContent(_base64(data), mime_type, annotations=annotations, meta=meta)


def File(  # noqa: N802
    data: bytes | str | None = None,
    *,
    path: str | PathLike[str] | None = None,
    uri: str | None = None,
    mime_type: str | None = None,
    annotations: Annotations | None = None,
    meta: dict[str, Any] | None = None,
) -> EmbeddedResource:
    """Embed a file, or data under a URI of your own.

    `uri` defaults to the `file://` URI of `path`, and is required with `data`. `mime_type` defaults to what the suffix
    of the path or URI says. The contents are text when the data is a `str`, or when the type is textual and the bytes
    are UTF-8; else a blob. Reading a file blocks: in an async function read it yourself and pass `data`.

    Raises `ValueError` when not exactly one of `data` and `path` is given, or `uri` is missing; `OSError` from reading.
    """
    if (data is None) == (path is None):
        raise ValueError("File needs exactly one of data and path")
    if path is not None:
        path = Path(path)
        data = path.read_bytes()
        uri = path.absolute().as_uri() if uri is None else uri
    assert data is not None  # noqa: S101 (for the type checkers)
    if uri is None:
        raise ValueError("File(data) needs a uri, such as uri='report://2024.csv'")
    if mime_type is None:
        mime_type = guess_type(str(path) if path is not None else uri) or (
            None if isinstance(data, bytes) else "text/plain"
        )
    return EmbeddedResource(resource_contents(uri, data, mime_type), annotations=annotations, meta=meta)


def resource_contents(uri: str, data: bytes | str, mime_type: str | None = None) -> ResourceContents:
    """Contents of a resource: text for a `str`, or for UTF-8 bytes of a textual type; else a blob."""
    if isinstance(data, str):
        return TextResourceContents(uri=uri, text=data, mime_type=mime_type)
    if mime_type is not None and _is_textual(mime_type):
        try:
            return TextResourceContents(uri=uri, text=data.decode(), mime_type=mime_type)
        except UnicodeDecodeError:
            pass
    return BlobResourceContents(uri=uri, blob=_base64(data), mime_type=mime_type or "application/octet-stream")


def sendable(block: B) -> B:
    """The content block or contents, if JSON has a form for its `_meta`, which may hold anything.

    Raises `TypeError` or `ValueError` if it has none.
    """
    if block.meta is not None:
        encode_foreign(block.meta)
    if isinstance(block, EmbeddedResource):
        sendable(block.resource)
    return block


def sniff_type(data: bytes) -> str | None:
    """Tell the MIME type of an image or of audio by its first bytes; `None` for anything else."""
    for offset, magic, mime_type in _MAGIC:
        if data[offset : offset + len(magic)] == magic:
            return mime_type
    if data[:4] == b"RIFF":
        return {b"WEBP": "image/webp", b"WAVE": "audio/wav"}.get(data[8:12])
    return None


# Source: https://mimesniff.spec.whatwg.org/#matching-an-image-type-pattern and #matching-an-audio-or-video-type-pattern
_MAGIC: Final = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (0, b"II*\x00", "image/tiff"),
    (0, b"MM\x00*", "image/tiff"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftypM4A ", "audio/mp4"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"OggS\x00", "audio/ogg"),
)


def _load(
    what: str,
    suffixes: dict[str, str],
    data: bytes | None,
    path: str | PathLike[str] | None,
    mime_type: str | None,
) -> tuple[bytes, str]:
    if (data is None) == (path is None):
        raise ValueError(f"{what.title()} needs exactly one of data and path")
    if path is not None:
        path = Path(path)
        data = path.read_bytes()
    assert data is not None  # noqa: S101 (for the type checkers)
    if mime_type is None:
        mime_type = sniff_type(data)
        if mime_type is None or not mime_type.startswith(what):
            mime_type = suffixes.get(path.suffix.lower()) if isinstance(path, Path) else None
    if mime_type is None:
        it = path or f"these {len(data)} bytes"
        raise ValueError(f"{what.title()}: cannot tell the type of {it}; pass mime_type='{what}/...'")
    return data, mime_type


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def guess_type(name: str) -> str | None:
    """Tell the MIME type by the suffix of a file's name or URI; `None` if it says nothing."""
    suffix = "." + name.rpartition("/")[2].rpartition(".")[2].lower()
    for table in (_TEXT_SUFFIXES, _IMAGE_SUFFIXES, _AUDIO_SUFFIXES):
        if suffix in table:
            return table[suffix]
    return mimetypes.guess_type(name)[0]


def _is_textual(mime_type: str) -> bool:
    essence = mime_type.partition(";")[0].strip().lower()
    return essence.startswith("text/") or essence in _TEXT_TYPES or essence.endswith(("+json", "+xml", "+yaml"))
