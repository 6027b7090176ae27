"""Tokens from a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from mcpd import SettingError
from mcpd.auth.static import read_tokens
from tests.harness import mentions
from tests.requirements import requirement

ADA, BOB = "a" * 40, "b0b." * 10


async def test_a_file_of_tokens(tmp_path: Path):
    file = tmp_path / "tokens"
    hashed = hashlib.sha256(b"c" * 32).hexdigest()
    file.write_text(
        f"# who    token    scopes\n\nada {ADA} mcp files:read  # the boss\nbob\t{BOB}\nada sha256:{hashed} mcp\n"
    )
    tokens = read_tokens(str(file))
    ada = await tokens.verify(ADA)
    assert ada is not None
    assert (ada.identity, ada.scopes) == (("static", "ada"), {"mcp", "files:read"})
    again = await tokens.verify("c" * 32)
    assert again is not None
    assert (again.identity, again.scopes) == (ada.identity, {"mcp"})
    bob = await tokens.verify(BOB)
    assert bob is not None
    assert (bob.subject, bob.scopes) == ("bob", frozenset())
    for wrong in (ADA[:-1], ADA + "a", ADA.upper(), "sha256:" + hashed, hashed, "ada", "#"):
        assert await tokens.verify(wrong) is None


@requirement("Y327")
async def test_a_token_is_not_kept(tmp_path: Path):
    file = tmp_path / "tokens"
    file.write_text(f"ada {ADA}\n")
    tokens = read_tokens(str(file))
    assert mentions([ADA], ADA), "it would not find one"
    assert not mentions(tokens, ADA)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no token"),
        ("# nothing\n", "has no token"),
        ("ada\n", "line 1: write a subject"),
        ("ada short\n", "at least 32 characters"),
        (f"ada {ADA}\nbob {ADA}\n", "line 2: the same token"),
        (f"ada {ADA}!\n", "a token is of"),
        ("ada sha256:abc\n", "64 hexadecimal"),
        (f"ada {ADA} offline_access\n", "offline_access"),
        (f'ada {ADA} a"b\n', "is no scope"),
    ],
)
async def test_mistakes(tmp_path: Path, text: str, message: str):
    file = tmp_path / "tokens"
    file.write_text(text)
    with pytest.raises(SettingError, match=message) as mistake:
        read_tokens(str(file))
    assert ADA not in str(mistake.value)
    assert "auth_tokens" in str(mistake.value)


async def test_a_file_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(SettingError, match="No such file"):
        read_tokens(str(tmp_path / "none"))
    (tmp_path / "odd").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingError, match="cannot be read"):
        read_tokens(str(tmp_path / "odd"))
