"""Content from bytes, text and files."""

import base64
import re
from pathlib import Path
from typing import Any

import pytest

from mcpd.protocol.types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    ImageContent,
    TextContent,
    TextResourceContents,
)
from mcpd.server.content import Audio, File, Image, Text, sniff_type

PNG = b"\x89PNG\r\n\x1a\n..."


@pytest.mark.parametrize(
    ("data", "mime_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"RIFF\x00\x00\x00\x00WAVEfmt ", "audio/wav"),
        (b"RIFF\x00\x00\x00\x00AVI ", None),
        (b"II*\x00", "image/tiff"),
        (b"\x00\x00\x00\x1cftypavif", "image/avif"),
        (b"ID3\x04", "audio/mpeg"),
        (b"OggS\x00", "audio/ogg"),
        (b"fLaC", "audio/flac"),
        (b"", None),
        (b"hello", None),
        (b"\x89PN", None),
    ],
)
def test_types_are_told_by_the_first_bytes(data: bytes, mime_type: str | None):
    assert sniff_type(data) == mime_type


def test_text():
    assert Text("a", meta={"k": 1}) == TextContent("a", meta={"k": 1})


def test_an_image_from_bytes():
    annotations = Annotations(audience=["user"])
    assert Image(PNG, annotations=annotations) == ImageContent(
        base64.b64encode(PNG).decode(), "image/png", annotations=annotations
    )
    assert Image(b"<svg/>", mime_type="image/svg+xml").mime_type == "image/svg+xml"
    assert Image(PNG, mime_type="image/x-mine").mime_type == "image/x-mine"


def test_audio_from_bytes():
    assert Audio(b"fLaC") == AudioContent(base64.b64encode(b"fLaC").decode(), "audio/flac")


@pytest.mark.parametrize(
    ("make", "name", "data", "mime_type"),
    [
        (Image, "a.png", b"?", "image/png"),
        (Image, "a.JPG", b"?", "image/jpeg"),
        (Image, "a.svg", b"<svg/>", "image/svg+xml"),
        (Image, "misnamed.gif", PNG, "image/png"),
        (Audio, "a.mp3", b"\xff\xfb", "audio/mpeg"),
        (Audio, "a.wav", b"?", "audio/wav"),
        (Audio, "a.png.ogg", b"?", "audio/ogg"),
    ],
)
def test_from_files(tmp_path: Path, make: Any, name: str, data: bytes, mime_type: str):
    (tmp_path / name).write_bytes(data)
    for path in (tmp_path / name, str(tmp_path / name)):
        made = make(path=path)
        assert made.mime_type == mime_type
        assert base64.b64decode(made.data) == data


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Image, "Image needs exactly one of data and path"),
        (lambda: Image(b"", path="a"), "Image needs exactly one of data and path"),
        (lambda: Image(b"what?"), "Image: cannot tell the type of these 5 bytes; pass mime_type='image/...'"),
        (lambda: Image(b"fLaC"), "Image: cannot tell the type of these 4 bytes"),
        (lambda: Audio(PNG), "Audio: cannot tell the type of these 11 bytes; pass mime_type='audio/...'"),
        (File, "File needs exactly one of data and path"),
        (lambda: File("a"), "File(data) needs a uri, such as uri='report://2024.csv'"),
    ],
    ids=range(7),
)
def test_what_cannot_be_told_is_refused(make: Any, message: str):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def test_an_unknown_suffix_is_refused_by_name(tmp_path: Path):
    path = tmp_path / "a.dat"
    path.write_bytes(b"what?")
    with pytest.raises(ValueError, match=r"cannot tell the type of .*a\.dat; pass mime_type"):
        Image(path=path)
    with pytest.raises(FileNotFoundError):
        Image(path=tmp_path / "missing.png")


@pytest.mark.parametrize(
    ("name", "data", "mime_type", "text"),
    [
        ("a.txt", "é".encode(), "text/plain", "é"),
        ("a.md", b"# a", "text/markdown", "# a"),
        ("a.json", b"{}", "application/json", "{}"),
        ("a.svg", b"<svg/>", "image/svg+xml", "<svg/>"),
        ("a.py", b"1", "text/x-python", "1"),
        ("latin1.txt", b"\xe9", "text/plain", None),
        ("a.png", b"ascii", "image/png", None),
        ("a.pdf", b"%PDF", "application/pdf", None),
        ("a.unheard-of", b"ascii", "application/octet-stream", None),
        ("no suffix", b"ascii", "application/octet-stream", None),
    ],
)
def test_files(tmp_path: Path, name: str, data: bytes, mime_type: str, text: str | None):
    path = tmp_path / name
    path.write_bytes(data)
    resource = File(path=path).resource
    assert resource.uri == path.as_uri()
    assert resource.mime_type == mime_type
    if text is None:
        assert isinstance(resource, BlobResourceContents)
        assert base64.b64decode(resource.blob) == data
    else:
        assert isinstance(resource, TextResourceContents)
        assert resource.text == text


def test_a_relative_path_gets_a_whole_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a b.txt").write_text("x")
    monkeypatch.chdir(tmp_path)
    assert File(path="a b.txt").resource.uri == (tmp_path / "a b.txt").as_uri()


@pytest.mark.parametrize(
    ("made", "resource"),
    [
        (File("a", uri="note://1"), TextResourceContents(uri="note://1", mime_type="text/plain", text="a")),
        (File("a", uri="note://1.csv"), TextResourceContents(uri="note://1.csv", mime_type="text/csv", text="a")),
        (File(b"a", uri="note://1.csv"), TextResourceContents(uri="note://1.csv", mime_type="text/csv", text="a")),
        (
            File(b"a", uri="note://1"),
            BlobResourceContents(uri="note://1", mime_type="application/octet-stream", blob="YQ=="),
        ),
        (
            File(b"{}", uri="note://1", mime_type="application/problem+json; charset=utf-8"),
            TextResourceContents(uri="note://1", mime_type="application/problem+json; charset=utf-8", text="{}"),
        ),
    ],
    ids=range(5),
)
def test_data_under_a_uri(made: Any, resource: Any):
    assert made.resource == resource
