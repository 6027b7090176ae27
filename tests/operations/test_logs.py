"""Logs: one line an event, of which request and session it is, and nothing in it that is anybody's secret."""

import hashlib
import json
import logging
import re
import sys

import pytest
import trio

from mcpd import Server
from mcpd.logs import CallFilter, JsonFormatter, TextFormatter
from tests.harness import rpc, serving
from tests.harness.process import process

APP = "tests.operations.logging_app:server"
TOKEN = "token-" + "q" * 40
ARGUMENT = "argument-" + "w" * 40
FORGED = "no\nCRITICAL mcpd: all is lost"


async def scenario(served):
    """All that may be logged of a client: calls, failures, refusals, streams, cancellations, the end of a session."""
    auth = {"Authorization": f"Bearer {TOKEN}"}
    session = await served.initialize(headers=auth, initialized=False)
    await session.notify("notifications/initialized", headers=auth)
    for tool in ("say", "threaded", "fail", "none"):
        await session.call(tool, {"text": ARGUMENT}, headers=auth)
        await served.call(tool, {"text": ARGUMENT}, headers=auth)
    await session.call("say", {"text": {"wrong": ARGUMENT}}, headers=auth)
    await session.post("tools/call", {"name": ARGUMENT}, id=ARGUMENT, headers=auth)
    await session.post(ARGUMENT, headers=auth)
    async with (
        session.get(headers=auth),
        session.open_call("keep", {"text": ARGUMENT}, progress=1, headers=auth) as calling,
    ):
        await calling.event()
        await session.notify("notifications/cancelled", {"requestId": ARGUMENT, "reason": FORGED}, headers=auth)
        await served.request("DELETE", headers=session.headers(auth))
    await session.post("ping", headers=auth)
    await served.request("POST", headers={"Authorization": "Bearer wrong-" + "e" * 40}, json={})
    await served.request("POST", headers={**auth, "Origin": "https://evil.example"}, body=ARGUMENT.encode())
    await served.request("POST", headers={**auth, "Mcp-Session-Id": session.id + "x"}, json={})
    return session


def secrets(session):
    return [TOKEN, ARGUMENT, session.id, "e" * 40]


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"ada {TOKEN}\n")
    path.chmod(0o600)
    return str(path)


async def test_json_lines_tell_request_and_session_and_no_secret(front, tokens):
    options = ["--front", front, "--log-level", "debug", "--log-format", "json", "--auth-tokens", tokens]
    with process(APP, *options, allow_traceback=True) as served, trio.fail_after(60):
        session = await scenario(served)
        served.popen.terminate()
        assert await trio.to_thread.run_sync(served.wait) == 0
        log = served.stderr
    for secret in secrets(session):
        assert secret not in log, secret
    events = [json.loads(line) for line in log.splitlines() if not line.startswith("mcpd ")]
    short = hashlib.sha256(session.id.encode()).hexdigest()[:12]
    for message in ("said\nsomething", "aside", "in a thread", "Tool 'fail' failed"):
        legacy, modern = (event for event in events if event["message"] == message)
        assert legacy["session"] == short
        assert "session" not in modern
        assert isinstance(legacy["request"], int)
        assert modern["request"] == 1
    assert {event["logger"] for event in events} > {"app", "mcpd", "mcpd.handlers"}
    assert not any("request" in event for event in events if "draining" in event["message"])


async def test_text_lines_tell_them_too(front, tokens):
    options = ["--front", front, "--log-level", "debug", "--auth-tokens", tokens]
    with process(APP, *options, allow_traceback=True) as served, trio.fail_after(60):
        session = await scenario(served)
        served.popen.terminate()
        assert await trio.to_thread.run_sync(served.wait) == 0
        log = served.stderr
    for secret in secrets(session):
        assert secret not in log, secret
    short = hashlib.sha256(session.id.encode()).hexdigest()[:12]
    assert re.search(
        rf"^\d\d:\d\d:\d\d INFO    app: said\\nsomething \[request \d+, session {short}\]$", log, re.MULTILINE
    )
    assert re.search(r"^\d\d:\d\d:\d\d ERROR   mcpd\.handlers: Tool 'fail' failed \[request 1\]$", log, re.MULTILINE)
    assert "\nCRITICAL" not in log


async def test_no_call_is_left_in_the_context_of_a_connection(autojump_clock, front):
    """The next request of the same connection, and the connection's own lines, are not of the request before."""
    seen: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record)

    handler = Keep()
    handler.addFilter(CallFilter())
    logger = logging.getLogger("mcpd")
    logger.addHandler(handler)
    try:
        server = Server("s")

        @server.tool
        async def fail() -> str:
            raise RuntimeError("broken")

        async with serving(server, front=front, allow_errors=True) as http, http.connect() as connection:
            session = await http.initialize(on=connection)
            await session.call("fail", on=connection)
            await session.post("ping", headers={"Origin": "https://evil.example"}, on=connection)
    finally:
        logger.removeHandler(handler)
    failed, refused = seen
    assert (failed.session is None, refused.session is None) == (False, True)
    assert refused.request is None


HOSTILE = "x\r\n12:00:00 CRITICAL mcpd: forged\x1b[2J\x1b[31m\x00\x7f\x85\x9b31m\u2028\u202e" + "y" * 500


async def attack(served):
    """What is logged of it, in every place that a client can write to."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}}
    client = {"clientInfo": {"name": HOSTILE, "version": HOSTILE, "title": HOSTILE}}
    await served.request("POST", json=rpc("initialize", {**hello, **client}, id=HOSTILE))
    session = await served.initialize()
    for arguments in ({"text": HOSTILE}, {HOSTILE: "x"}, {"text": {HOSTILE: 1}}):
        await session.post("tools/call", {"name": "blame", "arguments": arguments}, id=HOSTILE)
        await served.call("blame", arguments)
    for method, params in ((HOSTILE, {}), ("tools/call", {"name": HOSTILE}), ("prompts/get", {"name": HOSTILE})):
        await session.post(method, params, id=HOSTILE)
    await session.post("resources/read", {"uri": HOSTILE}, id=HOSTILE)
    await session.notify("notifications/cancelled", {"requestId": HOSTILE, "reason": HOSTILE})
    # What may stand in a header, as the escape character may not.
    raw = HOSTILE.encode("latin-1", "ignore").translate(None, b"\r\n\x00\x1b\x7f").decode("latin-1")
    for name in (
        "Host",
        "Origin",
        "Authorization",
        "Mcp-Session-Id",
        "MCP-Protocol-Version",
        "Forwarded",
        "User-Agent",
    ):
        await served.request("POST", headers={name: raw}, json=rpc("ping", id=1))
    for name in ("Host", "Origin", "X-Anything"):
        async with served.connect() as connection:
            await connection.send_bytes(b"GET /mcp HTTP/1.1\r\n%s: a\x1b[31mb\r\n\r\n" % name.encode(), "GET")
            assert 400 <= (await connection.response()).status < 500  # h11 lets the escape character pass
    await served.request("GET", "/%1b%5b2J%0d%0aCRITICAL")


@pytest.mark.parametrize("form", ["text", "json"])
async def test_nobody_can_forge_a_line_or_move_a_cursor(front, form):
    options = ["--front", front, "--log-level", "debug", "--log-format", form]
    with process(APP, *options, allow_traceback=True) as served, trio.fail_after(60):
        await attack(served)
        served.popen.terminate()
        assert await trio.to_thread.run_sync(served.wait) == 0
        log = served.stderr
    assert re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\ufffd]", log) == []
    assert "forged" in log, "it is told, in its place"
    lines = [line for line in log.split("\n")[:-1] if not line.startswith("mcpd ")]
    if form == "json":
        for line in lines:
            assert json.loads(line).keys() >= {"time", "level", "logger", "message"}
    else:
        for line in lines:
            assert re.match(r"    |\d\d:\d\d:\d\d (DEBUG|INFO|WARNING|ERROR) +[\w.]+: ", line), line


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_one_event_is_one_line_whatever_is_in_it(formatter):
    record = logging.LogRecord("mcpd", logging.INFO, "", 0, "a %s b", (HOSTILE + "\udcff",), None)
    record.request, record.session = HOSTILE, "s"
    line = formatter.format(record)
    assert len(line.splitlines()) == 1
    assert line.isprintable() or "\udcff" in line


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_what_is_below_a_line_cannot_look_like_one(formatter):
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        record = logging.LogRecord("mcpd", logging.ERROR, "", 0, "failed", None, sys.exc_info(), sinfo="Stack:\nhere")
    # Another handler has formatted it before, and logging keeps what it made of it.
    logging.Formatter().format(record)
    first, *below = formatter.format(record).splitlines()
    assert "failed" in first
    if isinstance(formatter, JsonFormatter):
        assert below == []
        assert json.loads(first)["stack"] == "Stack:\nhere"
        assert json.loads(first)["traceback"].count("forged") == 1
    else:
        assert len(below) > 4
        assert all(line.startswith("    ") and line.isprintable() for line in below)
