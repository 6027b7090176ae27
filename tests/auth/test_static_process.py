"""A file of tokens and the command `mcpd serve`, over a socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.auth.users import ADA, BOB, bearer
from tests.harness import Process, Response, process, rpc
from tests.requirements import requirement

STRANGER = "eve-" + "e" * 40
INITIALIZE = rpc(
    "initialize",
    {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}},
    id=1,
)


async def initialize(served: Process, token: str | None) -> Response:
    return await served.request("POST", headers={} if token is None else bearer(token), json=INITIALIZE)


async def check(served: Process, *, known: str, unknown: tuple[str | None, ...]) -> None:
    assert (await initialize(served, known)).status == 200
    for token in unknown:
        response = await initialize(served, token)
        assert response.status == 401
        assert "mcp-session-id" not in response.headers
        challenge = response.headers["www-authenticate"]
        assert challenge.startswith("Bearer")
        assert ('error="invalid_token"' in challenge) == (token is not None)
        assert "error" in response.json


@requirement("Y327")
async def test_who_is_in_the_file_is_let_in(tmp_path: Path, front: str):
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ada {ADA} mcp\n")
    with process(None, "--front", front, "--auth-tokens", str(tokens)) as served:
        await check(served, known=ADA, unknown=(STRANGER, ADA[:-1], None))
        assert ADA not in served.stderr
        assert STRANGER not in served.stderr


@pytest.mark.parametrize("how", ["written to", "replaced", "a link"])
async def test_the_file_is_read_once_at_the_start(tmp_path: Path, how: str):
    """Who can write to the file, or swap what stands in its place, lets nobody in before the next start."""
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.write_text(f"ada {ADA}\n")
    theirs.write_text(f"eve {STRANGER}\n")
    tokens = tmp_path / "tokens"
    if how == "a link":
        tokens.symlink_to(mine)
    else:
        mine.rename(tokens)
        tokens.chmod(0o666)
    options = ("--auth-tokens", str(tokens))
    with process(None, *options) as served:
        await check(served, known=ADA, unknown=(STRANGER, BOB))
        if how == "written to":
            tokens.write_text(theirs.read_text())
        elif how == "replaced":
            theirs.replace(tokens)
        else:
            (tmp_path / "link").symlink_to(theirs)
            (tmp_path / "link").replace(tokens)
        await check(served, known=ADA, unknown=(STRANGER, BOB))
    with process(None, *options) as served:
        await check(served, known=STRANGER, unknown=(ADA, BOB))
