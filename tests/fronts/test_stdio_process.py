"""Standard input and output of a real process: what only a process can show."""

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests import wire
from tests.requirements import requirement

APP = """
    import os, subprocess, sys
    import trio
    from mcpd import Server

    server = Server("s")

    @server.tool
    async def noisy() -> str:
        print("printed")
        sys.stdout.flush()
        os.write(1, b"written to descriptor 1\\n")
        subprocess.run([sys.executable, "-c", "print('a child printed')"], check=True)
        return os.environ.get("SECRET", "none")

    @server.tool
    async def wait() -> str:
        print("waiting", file=sys.stderr, flush=True)
        await trio.sleep_forever()
        return ""

    print("at import")
"""
WITHIN = 30.0
"""Seconds: a slow machine under load needs a few to start Python."""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(textwrap.dedent(APP))
    return path


def command(app: Path) -> list[str]:
    return [sys.executable, "-m", "mcpd", "serve", str(app), "--stdio"]


def request(method: str, id: str, **params: Any) -> dict[str, Any]:
    envelope = {
        "io.modelcontextprotocol/protocolVersion": wire.MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {"_meta": envelope, **params}}


@requirement("H130", "H131", "H134", "H140")
def test_nothing_but_messages_goes_to_standard_output(app):
    messages = [
        request("tools/list", "list"),
        request("tools/call", "noise", name="noisy"),
        {"jsonrpc": "2.0", "id": "bad"},
        request("tools/call", "again", name="noisy"),
    ]
    data = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
    done = subprocess.run(
        command(app), input=data, capture_output=True, timeout=WITHIN, check=True, env={"SECRET": "from outside"}
    )
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert set(answers) == {"list", "noise", "bad", "again"}
    for each, method in (("list", "tools/list"), ("noise", "tools/call"), ("again", "tools/call"), ("bad", None)):
        wire.check(wire.MODERN, method, answers[each])
    assert answers["noise"]["result"]["content"][0]["text"] == "from outside"
    for noise in (b"at import", b"printed", b"written to descriptor 1", b"a child printed"):
        assert noise in done.stderr
    assert b"Traceback" not in done.stderr


@requirement("H135", "H136")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_also_in_the_middle_of_a_call(app, number):
    with subprocess.Popen(
        command(app), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stderr is not None
            process.stdin.write(json.dumps(request("tools/call", "w", name="wait")).encode() + b"\n")
            process.stdin.flush()
            while process.stderr.readline() != b"waiting\n":
                assert process.poll() is None
            process.send_signal(number)
            process.wait(WITHIN)
            assert b"Traceback" not in process.stderr.read()
        finally:
            process.kill()
