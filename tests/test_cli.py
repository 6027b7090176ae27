"""The command line, as an operator meets it: real processes, their output and their exit status."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click
import httpx
import msgspec
import pytest

from mcpd import Settings
from mcpd.cli import _ENVIRONMENT_ONLY, Duration, Size, duration, serve_command
from mcpd.settings import Options

WITHIN = 20.0  # seconds; a slow machine under load needs a few
APP = '''
from mcpd import Server

server = Server("app", version="3.2", instructions="Read me.")


@server.tool(read_only=True)
async def look(where: str, deep: bool = False) -> str:
    """Look somewhere.

    It changes nothing.
    """
    return where


@server.tool
async def change() -> str:
    """Change something."""
    return "changed"


@server.tool(read_only=True)
async def fail() -> str:
    raise RuntimeError("secret reason")


@server.resource("app://{name}")
async def thing(name: str) -> str:
    return name


@server.prompt
async def ask(topic: str, tone: str = "kind") -> str:
    """Ask for something."""
    return topic


NOT_ONE = 5
'''
IMPORTED = "print('imported')\nfrom mcpd import Server\none = Server('one')\ntwo = Server('two')\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp_path = tmp_path_factory.mktemp("apps")
    files = {
        "app.py": APP,
        "two.py": IMPORTED,
        "none.py": "x = 1\n",
        "syntax.py": "def broken(:\n    pass\n",
        "raises.py": "\n\nraise ValueError('no\\nway')\n",
        "leaves.py": "import sys\nsys.exit(3)\n",
        "needs.py": "import surely_not_installed\n",
        "beside.py": "from app import server\n",
        "wrong.py": "from mcpd import Server\nserver = Server('w')\n@server.tool\nasync def t(*args): ...\n",
        "text.txt": "hello",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("from app import server\nclass N: inner = server\n")
    (tmp_path / "package" / "app.py").write_text("from app import server as mine\n")
    return tmp_path


def run(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "mcpd", *arguments],
        cwd=folder,
        env=_environment() | (env or {}),
        capture_output=True,
        text=True,
        timeout=WITHIN,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def _environment() -> dict[str, str]:
    """Ours without what would be settings of mcpd."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MCPD_")}


class Served:
    def __init__(self, process: "subprocess.Popen[str]", line: str) -> None:
        self.process = process
        self.line = line
        found = re.search(r" at (http://\S+) ", line)
        assert found is not None, line
        self.url = found[1]
        self.rest = ""

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", int(self.url.split(":")[2].partition("/")[0])), WITHIN)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        try:
            _, self.rest = self.process.communicate(timeout=WITHIN)
        finally:
            self.process.kill()
        return self.process.returncode

    @staticmethod
    def message(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**(params or {}), "_meta": meta}}

    def post(self, method: str, params: dict[str, Any] | None = None, *, host: str | None = None) -> Any:
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
        }
        if params is not None and "name" in params:
            headers["Mcp-Name"] = params["name"]
        if host is not None:
            headers["Host"] = host
        return httpx.post(self.url, json=self.message(method, params), headers=headers, timeout=WITHIN).json()


@contextmanager
def serve(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> Iterator[Served]:
    """``mcpd serve`` that is up, seen by its start-up line."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mcpd", "serve", *arguments],
        cwd=folder,
        env=_environment() | (env or {}),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stderr is not None
        seen = ""
        while " serves " not in (line := process.stderr.readline()):
            seen += line
            assert line, f"mcpd ended with {process.wait(WITHIN)} at its start:\n{seen}"
        yield Served(process, line)
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


# ------------------------------------------------------------------------------------------------------------- mistakes


# The command line, and what the message says of the mistake.
MISTAKES: list[tuple[list[str], str]] = [
    # The application
    (["no_such_module"], "There is no module 'no_such_module'"),
    (["no_such_module:server"], "There is no module 'no_such_module'"),
    (["package.missing"], "There is no module 'package.missing'"),
    (["missing.py"], "There is no file 'missing.py'"),
    (["text.txt"], "text.txt"),
    (["two.py"], "Which server of two.py.*one, two"),
    (["two:three"], "two has no 'three'.*one, two"),
    (["app:server.nothing"], "app has no 'server.nothing'"),
    (["none.py"], "none.py.*no mcpd.Server"),
    (["none:x"], "none:x is a int, not a mcpd.Server"),
    (["app:NOT_ONE"], "app:NOT_ONE is a int, not a mcpd.Server.*its servers are: server"),
    (["app:"], "app:"),
    ([":server"], ":server"),
    (["syntax.py"], r"syntax.py.*SyntaxError.*line 1"),
    (["syntax"], r"syntax.*SyntaxError.*line 1"),
    (["raises.py"], r"raises.py.*ValueError: no.*line 3"),
    (["raises"], r"raises.*ValueError: no.*line 3"),
    (["leaves"], "leaves.*SystemExit"),
    (["needs"], "needs.*surely_not_installed"),
    (["wrong.py"], r"wrong.py.*\*args.*wrong.py, line 3\)"),
    (["not a module"], "'not a module' is no module"),
    # Settings
    (["--port", "eighty"], "--port.*'eighty'"),
    (["--port", "99999"], "port.*99999"),
    (["--port", "-1"], "port.*-1"),
    (["--host", "no.such.host.invalid"], "no.such.host.invalid"),
    (["--host", "203.0.113.1"], "203.0.113.1"),
    (["--path", "mcp"], "path.*'mcp'"),
    (["--session-idle", "soon"], "--session-idle.*'soon' is no duration; write 90s, 30m or 2h"),
    (["--session-idle", "-5s"], "--session-idle"),
    (["--session-idle", "0"], "session_idle.*0"),
    (["--heartbeat", "5 weeks"], "'5 weeks' is no duration"),
    (["--max-body", "big"], "--max-body.*'big' is no size; write 4MiB or 512KiB"),
    (["--max-body", "0"], "max_body.*0"),
    (["--max-sessions", "many"], "--max-sessions.*'many'"),
    (["--max-sessions", "0"], "max_sessions.*0"),
    (["--store", "etcd://host"], "There is no store 'etcd'; known are .*memory"),
    (["--store", "memory:5"], "memory:5"),
    (["--cache-scope", "secret"], "cache.scope.*'?secret'?"),
    (["--log-level", "loud"], "--log-level.*'loud'"),
    (["--log-format", "xml"], "--log-format.*'xml'"),
    (["--no-such-flag"], "--no-such-flag"),
    (["--prot", "80"], "--prot.*--port"),
    (["app", "extra"], "extra"),
]
FOUND = ["app.py", "app", "app:server", "app.py:server", "beside.py", "package", "package.app", "package:N.inner"]
# Starting an interpreter takes longer than all that is tested here, so one is started and forks for each command line:
# a process each, with its own output and exit status.
FORKS = """
import json, os, signal, sys, tempfile, traceback
from mcpd.cli import main

ended = []
for arguments in json.load(sys.stdin):
    output = tempfile.TemporaryFile()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(20)  # it should say what is wrong, but it serves
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            sys.argv = ["mcpd", *arguments]
            main()
            status = 0
        except SystemExit as exc:
            status = exc.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    output.seek(0)
    ended.append([status, output.read().decode()])
print(json.dumps(ended))
"""


@pytest.fixture(scope="module")
def ended(folder: Path) -> dict[str, tuple[int, str]]:
    """Exit status and output of all command lines of `MISTAKES` and `FOUND`."""
    commands = [["serve", *(() if "--port" in options else ("--port", "0")), *options] for options, _ in MISTAKES]
    commands += [["inspect", name] for name in FOUND]
    driver = subprocess.run(
        [sys.executable, "-c", FORKS],
        cwd=folder,
        env=_environment(),
        input=json.dumps(commands),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(driver.stdout)
    names = [" ".join(options) for options, _ in MISTAKES] + FOUND
    return {name: (status, output) for name, (status, output) in zip(names, found, strict=True)}


@pytest.mark.parametrize(("options", "says"), MISTAKES, ids=[" ".join(options) for options, _ in MISTAKES])
def test_a_mistake_is_one_clear_line_and_status_2(
    ended: dict[str, tuple[int, str]], options: list[str], says: str
) -> None:
    status, output = ended[" ".join(options)]
    lines = [line for line in output.splitlines() if line != "imported"]
    assert len(lines) == 1, output
    assert lines[0].startswith("mcpd: ")
    assert re.search(says, lines[0]), lines[0]
    assert status == 2


def test_a_mistake_in_a_process_of_its_own(folder: Path) -> None:
    # As above, but without the driver between.
    ended = run(folder, "serve", "--port", "99999")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "mcpd: port must be from 0 to 65535, not 99999\n"
    ended = run(folder, "serve", "raises.py")
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr


def test_no_command_shows_what_there_is(folder: Path) -> None:
    ended = run(folder)
    assert "serve" in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    assert run(folder, "sing").returncode == 2


def test_a_mistake_in_the_environment_names_the_variable(folder: Path) -> None:
    for name, value in {"MCPD_PORT": "x", "MCPD_SESSION_IDLE": "soon", "MCPD_SESSIONS": "perhaps"}.items():
        ended = run(folder, "serve", env={name: value})
        assert ended.returncode == 2
        assert len(ended.stderr.splitlines()) == 1
        assert repr(value) in ended.stderr
        # Which of both it is from, flag or variable, has to be found by somebody who did not write the deployment.
        assert name in ended.stderr or "--" + name[5:].lower().replace("_", "-") in ended.stderr


def test_a_port_that_is_taken(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = run(folder, "serve", "--port", str(port))
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"mcpd: Cannot listen on 127.0.0.1:{port}: Address already in use")
    assert len(ended.stderr.splitlines()) == 1


def test_a_lifespan_that_fails_at_the_start_is_not_a_mistake_of_the_command_line(folder: Path) -> None:
    (folder / "lifespan.py").write_text(
        "from contextlib import asynccontextmanager\nfrom mcpd import Server\n"
        "@asynccontextmanager\nasync def lifespan(server):\n    raise RuntimeError('no database')\n    yield\n"
        "server = Server('l', lifespan=lifespan)\n"
    )
    for options in ([], ["--stdio"]):
        ended = run(folder, "serve", "--port", "0", *options, "lifespan")
        # The application is broken, so its traceback is what helps.
        assert ended.returncode == 1
        assert "no database" in ended.stderr


# ------------------------------------------------------------------------------------------------------------- starting


def test_the_first_line_says_what_is_served_where(folder: Path) -> None:
    with serve(folder, "--port", "0", "app.py") as served:
        assert re.fullmatch(
            r"mcpd \S+ serves app at http://127\.0\.0\.1:\d+/mcp "
            r"\(store memory, idle 30m, at most 10000 sessions.*\)\n",
            served.line,
        )
        assert served.post("tools/list")["result"]["tools"][0]["name"] == "look"
        assert served.stop() == 0
        assert "Traceback" not in served.rest


@pytest.mark.parametrize("name", FOUND)
def test_an_application_is_found(ended: dict[str, tuple[int, str]], name: str) -> None:
    status, output = ended[name]
    assert status == 0, output
    assert output.startswith("app 3.2\n")


def test_a_file_elsewhere_finds_what_stands_beside_it(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    ended = run(tmp_path_factory.mktemp("elsewhere"), "inspect", str(folder / "beside.py"))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("app 3.2\n")


def test_without_an_application_there_is_a_small_one(folder: Path) -> None:
    with serve(folder, "--port", "0") as served:
        assert "serves mcpd-demo at" in served.line
        called = served.post("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        assert called["result"]["structuredContent"] == 3
        assert served.stop() == 0


def test_ipv6(folder: Path) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    with serve(folder, "--host", "::1", "--port", "0", "app") as served:
        assert re.search(r"http://\[::1\]:\d+/mcp", served.line)
        assert served.post("tools/list")["result"]["tools"]
        assert served.stop() == 0


def test_settings_come_from_the_environment_and_flags_win(folder: Path) -> None:
    env = {
        "MCPD_APP": "app.py",
        "MCPD_PORT": "0",
        "MCPD_PATH": "/from/env",
        "MCPD_SESSION_IDLE": "90s",
        "MCPD_MAX_SESSIONS": "17",
        "MCPD_READ_ONLY": "1",
        "MCPD_ALLOWED_HOST": "one.example, two.example",
    }
    with serve(folder, env=env) as served:
        assert served.url.endswith("/from/env")
        assert "idle 90s, at most 17 sessions" in served.line
        assert [tool["name"] for tool in served.post("tools/list")["result"]["tools"]] == ["look", "fail"]
        for host in ("one.example", "two.example"):
            assert served.post("tools/list", host=host)["result"]["tools"]
        assert "error" in served.post("tools/list", host="three.example")
        assert served.stop() == 0
    with serve(folder, "--path", "/flag", "--no-read-only", "--session-idle", "2h", env=env) as served:
        assert served.url.endswith("/flag")
        assert "idle 2h" in served.line
        assert len(served.post("tools/list")["result"]["tools"]) == 3
        assert served.stop() == 0


def test_read_only_offers_and_runs_only_what_says_so(folder: Path) -> None:
    with serve(folder, "--port", "0", "--read-only", "app") as served:
        assert [tool["name"] for tool in served.post("tools/list")["result"]["tools"]] == ["look", "fail"]
        assert served.post("tools/call", {"name": "look", "arguments": {"where": "up"}})["result"]["content"]
        assert served.post("tools/call", {"name": "change", "arguments": {}})["error"]["code"] == -32602
        assert served.stop() == 0


# ------------------------------------------------------------------------------------------------------------- stopping


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_and_soon(folder: Path, number: signal.Signals) -> None:
    with serve(folder, "--port", "0", "app") as served:
        # Also with a client that keeps its connection.
        with httpx.Client() as client:
            client.get(served.url.replace("/mcp", "/health"))
            began = time.monotonic()
            assert served.stop(number) == 0
        assert time.monotonic() - began < 5
        assert number.name in served.rest
        assert "Traceback" not in served.rest


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_ends_it_at_once(folder: Path, number: signal.Signals) -> None:
    with serve(folder, "--port", "0") as served, served.connect() as sock:
        body = json.dumps(served.message("tools/call", {"name": "slow", "arguments": {"seconds": 600}}))
        fields = (
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
            f"Mcp-Method: tools/call\r\nMcp-Name: slow\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        sock.sendall((fields + body).encode())
        assert sock.recv(100).startswith(b"HTTP/1.1 200")  # it became a stream, so the call is under way
        served.process.send_signal(number)
        assert served.process.stderr is not None
        while "draining" not in (line := served.process.stderr.readline()):
            assert line
        assert served.process.poll() is None
        began = time.monotonic()
        assert served.stop(number) == -number
        assert time.monotonic() - began < 5


# ----------------------------------------------------------------------------------------------------------------- logs


def test_logs_as_json_are_one_object_a_line(folder: Path) -> None:
    with serve(folder, "--port", "0", "--log-format", "json", "app") as served:
        served.post("tools/call", {"name": "fail", "arguments": {}})
        served.post("tools/list", host="evil.example")
        assert served.stop() == 0
    events = [json.loads(line) for line in served.rest.splitlines()]
    assert {"time", "level", "logger", "message"} <= set(events[0])
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event["time"]) for event in events)
    [failure] = [event for event in events if event["level"] == "error"]
    assert "RuntimeError: secret reason" in failure["traceback"]
    assert "fail" in failure["message"]
    assert [event["message"] for event in events if "evil.example" in event["message"]]


def test_the_log_level_holds(folder: Path) -> None:
    with serve(folder, "--port", "0", "--log-level", "error", "app") as served:
        served.post("tools/list", host="evil.example")
        assert served.stop() == 0
    assert served.rest == ""


# -------------------------------------------------------------------------------------------------------------- inspect


def test_inspect_shows_what_is_offered(folder: Path) -> None:
    ended = run(folder, "inspect", "app")
    assert ended.returncode == 0
    assert ended.stdout == (
        "app 3.2\n"
        "\ntools: 3\n  look(where, deep?)  Look somewhere.\n  change()  Change something.\n  fail()\n"
        "\nresources: none\n"
        "\nresourceTemplates: 1\n  app://{name}\n"
        "\nprompts: 1\n  ask(topic, tone?)  Ask for something.\n"
    )


def test_inspect_as_json_is_what_a_client_gets(folder: Path) -> None:
    ended = run(folder, "inspect", "--json", "app")
    found = json.loads(ended.stdout)
    assert found["serverInfo"] == {"name": "app", "version": "3.2"}
    with serve(folder, "--port", "0", "app") as served:
        assert found["tools"] == served.post("tools/list")["result"]["tools"]
        served.stop()
    assert [item["uriTemplate"] for item in found["resourceTemplates"]] == ["app://{name}"]
    assert [item["name"] for item in found["prompts"]] == ["ask"]


def test_inspect_takes_the_application_from_the_environment_as_serve_does(folder: Path) -> None:
    ended = run(folder, "inspect", env={"MCPD_APP": "app.py"})
    assert ended.stdout.startswith("app 3.2\n")


def test_version_and_help(folder: Path) -> None:
    assert re.fullmatch(r"mcpd \d+\.\d+\.\d+\S*\n", run(folder, "--version").stdout)
    for arguments in (["--help"], ["-h"], ["serve", "--help"], ["inspect", "-h"]):
        ended = run(folder, *arguments)
        assert ended.returncode == 0
        assert ended.stdout.startswith("Usage: ")


# ----------------------------------------------------------------------------------- one table for arguments and flags

FIELDS = {field.name: field for field in msgspec.structs.fields(Settings)}
FLAGS = [name for name in FIELDS if name not in _ENVIRONMENT_ONLY]
_SIZES = {"max_body", "max_buffer"}


def _another(name: str) -> tuple[str, Any]:
    """A value that is not the default: as an operator writes it, and as it must arrive."""
    kind, default = get_type_hints(Settings)[name], FIELDS[name].default
    if name in _SIZES:
        return "3KiB", 3 * 1024
    if kind is bool:
        return ("false", False) if default else ("true", True)
    if kind is int:
        return "123", 123
    if kind is float:
        return "12.5m", 750.0
    if get_origin(kind) is Literal:
        value = next(value for value in get_args(kind) if value != default)
        return value, value
    if get_origin(kind) is tuple:
        return "one,two", ("one,two",)
    return "/other", "/other"


def _parse(*arguments: str) -> dict[str, Any]:
    return serve_command.make_context("serve", list(arguments)).params


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MCPD_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize("name", FLAGS)
def test_each_setting_is_a_flag_and_a_variable(name: str, no_settings: None, monkeypatch: pytest.MonkeyPatch) -> None:
    text, value = _another(name)
    flag = "--" + name.replace("_", "-")
    default = () if get_origin(get_type_hints(Settings)[name]) is tuple else FIELDS[name].default
    assert _parse()[name] == default
    if isinstance(value, bool):
        assert _parse(flag if value else "--no-" + flag[2:])[name] is value
    else:
        assert _parse(flag, text)[name] == value
    monkeypatch.setenv(f"MCPD_{name.upper()}", text)
    found = _parse()[name]
    assert found == (("one,two",) if value == ("one,two",) else value)


@pytest.mark.parametrize("name", FLAGS)
def test_each_setting_is_explained(name: str) -> None:
    [option] = [option for option in serve_command.params if option.name == name]
    assert isinstance(option, click.Option)
    assert option.help
    assert option.help.endswith((".", ")"))
    assert option.envvar == f"MCPD_{name.upper()}"
    assert option.show_envvar


def test_each_setting_is_a_keyword_argument() -> None:
    ours = get_type_hints(Settings)
    theirs = get_type_hints(Options)
    assert theirs == {name: kind for name, kind in ours.items() if name != "store"}


def test_secrets_are_read_from_the_environment_alone(folder: Path) -> None:
    # Every user of the machine can read the command lines of all processes.
    assert set(_ENVIRONMENT_ONLY) <= set(FIELDS)
    assert _ENVIRONMENT_ONLY
    assert not [option for option in serve_command.params if option.name in _ENVIRONMENT_ONLY]
    ended = run(folder, "serve", env={"MCPD_AUTH_INTROSPECTION_CLIENT_SECRET": "hidden"})
    assert ended.returncode == 2
    assert "auth_introspection_client_secret needs" in ended.stderr
    assert "hidden" not in ended.stderr


def test_no_two_settings_share_a_flag() -> None:
    flags = [flag for option in serve_command.params for flag in (*option.opts, *option.secondary_opts)]
    assert len(flags) == len(set(flags))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1.5m", 90), ("30m", 1800), ("2h", 7200), ("1d", 86400), ("250ms", 0.25), (" 5 s ", 5)],
)
def test_durations(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "-1", "1e3", "nan", "inf", "1 week", "1h30m", "٣s", "1..5s", ".5s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no duration"):
        Duration().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("100", 100),
        ("4MiB", 4 << 20),
        ("512KiB", 512 << 10),
        ("1GiB", 1 << 30),
        ("2k", 2048),
        ("1 MB", 10**6),
        ("7B", 7),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert Size().convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1.5MiB", "1TiB", "٣", "0x10"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no size"):
        Size().convert(text, None, None)


@pytest.mark.parametrize(
    ("seconds", "text"), [(1800, "30m"), (90, "90s"), (7200, "2h"), (86400, "1d"), (0.25, "0.25s"), (0, "0s")]
)
def test_a_duration_as_people_write_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text
    assert Duration().convert(text, None, None) == seconds
