"""Standard input and output: on streams in memory, and with a real process on real pipes."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, memory_stream_one_way_pair, wait_all_tasks_blocked

from mcpd import Context, Server, serve_stdio

WITHIN = 20.0  # seconds; a slow machine under load needs a few
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "test", "version": "1"},
}
APP = """
import os, subprocess, sys
from contextlib import asynccontextmanager

import trio

from mcpd import Context, Server

print("printed on import")


@asynccontextmanager
async def lifespan(server):
    print("lifespan in", file=sys.stderr, flush=True)
    yield
    print("lifespan out", file=sys.stderr, flush=True)


server = Server("app", version="1", lifespan=lifespan)


@server.tool(read_only=True)
async def echo(text: str) -> str:
    return text


@server.tool(read_only=True)
async def era(ctx: Context) -> str:
    return ctx.protocol_version


@server.tool
async def wait(seconds: float, ctx: Context) -> str:
    await ctx.progress(0)
    try:
        await trio.sleep(seconds)
    except trio.Cancelled:
        print("cancelled", file=sys.stderr, flush=True)
        raise
    return f"waited {seconds:g}"


@server.tool
async def noise() -> str:
    print("printed by a tool")
    print("and flushed", flush=True)
    sys.stdout.write("x" * 100_000)
    os.write(1, b"written to the descriptor\\n")
    subprocess.run([sys.executable, "-c", "print('printed by a child')"], check=True)
    return "quiet"


@server.tool
def thread_noise() -> str:
    print("printed in a thread", flush=True)
    return "quiet"


@server.tool
async def big(size: int) -> str:
    return "x" * size


@server.tool
async def fail() -> str:
    raise RuntimeError("no")
"""


# ------------------------------------------------------------------------------------------------------ in memory


class Wire:
    """The client's end of streams in memory."""

    def __init__(self, to_server: Any, from_server: Any) -> None:
        self.to_server = to_server
        self.from_server = from_server
        self._rest = b""
        self.ended = trio.Event()

    async def send(self, message: Any) -> None:
        await self.send_bytes(json.dumps(message).encode() + b"\n")

    async def send_bytes(self, data: bytes) -> None:
        await self.to_server.send_all(data)

    async def receive(self) -> Any:
        with trio.fail_after(WITHIN):
            while b"\n" not in self._rest:
                data = await self.from_server.receive_some()
                assert data, "the server has closed its output"
                self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    async def silent(self) -> bool:
        await wait_all_tasks_blocked()
        with trio.move_on_after(0):
            self._rest += await self.from_server.receive_some()
        return not self._rest


def modern(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params | {"_meta": ENVELOPE}}


def legacy(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def notification(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def tool(id: Any, name: str, make: Any = modern, **arguments: Any) -> Any:
    return make(id, "tools/call", name=name, arguments=arguments)


def text(answer: Any) -> str:
    found: str = answer["result"]["content"][0]["text"]
    return found


@asynccontextmanager
async def talking(server: Server, **options: Any) -> AsyncGenerator[Wire, None]:
    to_server, stdin = memory_stream_one_way_pair()
    stdout, from_server = memory_stream_one_way_pair()
    wire = Wire(to_server, from_server)

    async def serve() -> None:
        await serve_stdio(server, receiver=stdin, sender=stdout, **options)
        wire.ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        yield wire
        nursery.cancel_scope.cancel()


@pytest.fixture
def server() -> Server:
    server = Server("memory", version="1")

    @server.tool(read_only=True)
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def wait(seconds: float) -> str:
        await trio.sleep(seconds)
        return f"waited {seconds:g}"

    @server.tool
    async def ask(number: int, ctx: Context) -> str:
        class Name(msgspec.Struct):
            name: str

        result = await ctx.elicit(str(number), Name)
        return result.action

    return server


async def test_requests_are_answered_as_they_are_done(autojump_clock: MockClock, server: Server) -> None:
    async with talking(server) as wire:
        for id_, seconds in (("slow", 3), ("quick", 1), ("middle", 2)):
            await wire.send(tool(id_, "wait", seconds=seconds))
        assert [(await wire.receive())["id"] for _ in range(3)] == ["quick", "middle", "slow"]
        assert trio.current_time() == pytest.approx(3, abs=0.1)


async def test_line_ends_may_have_a_carriage_return_and_be_empty(autojump_clock: MockClock, server: Server) -> None:
    async with talking(server) as wire:
        line = json.dumps(tool(1, "echo", text="a\nb\r")).encode()
        await wire.send_bytes(b"\n\r\n  \n" + line + b"\r\n" + line + b"\n\n")
        for _ in range(2):
            assert text(await wire.receive()) == "a\nb\r"
        assert await wire.silent()


async def test_an_answer_is_one_line(autojump_clock: MockClock, server: Server) -> None:
    async with talking(server) as wire:
        odd = "a\nb\u2028c\u0085d\r"
        await wire.send(tool(1, "echo", text=odd))
        with trio.fail_after(5):
            data = await wire.from_server.receive_some()
        assert data.count(b"\n") == 1
        assert text(json.loads(data)) == odd


@pytest.mark.parametrize("piece", [1, 7, 64])
async def test_lines_may_come_in_pieces(autojump_clock: MockClock, server: Server, piece: int) -> None:
    async with talking(server) as wire:
        data = b"".join(json.dumps(tool(n, "echo", text="ä" * 50)).encode() + b"\n" for n in range(3))
        for start in range(0, len(data), piece):
            await wire.send_bytes(data[start : start + piece])
        assert sorted([(await wire.receive())["id"] for _ in range(3)]) == [0, 1, 2]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b"hello", -32700),
        (b"\xff\xfe", -32700),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32700),
        (b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}', -32700),
        (b"[" * 100_000, -32700),
        (b'"text"', -32600),
        (b"[]", -32600),
        (b'{"id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', -32600),
    ],
)
async def test_what_is_no_message_is_answered_and_the_next_one_is_read(
    autojump_clock: MockClock, server: Server, line: bytes, code: int
) -> None:
    async with talking(server) as wire:
        await wire.send_bytes(line + b"\n")
        answer = await wire.receive()
        assert answer["error"]["code"] == code
        assert answer["id"] in {None, 1}
        await wire.send(tool(2, "echo", text="next"))
        assert text(await wire.receive()) == "next"
        assert await wire.silent()


@pytest.mark.parametrize("pieces", [1, 10])
async def test_a_message_that_is_too_long_is_answered_once_and_skipped(
    autojump_clock: MockClock, server: Server, pieces: int
) -> None:
    async with talking(server, max_body=1_000) as wire:
        for _ in range(pieces):
            await wire.send_bytes(b"x" * (100_000 // pieces))
        await wire.send_bytes(b"\n")
        fits = json.dumps(tool(1, "echo", text="")).encode()
        fits = json.dumps(tool(1, "echo", text="y" * (1_000 - len(fits)))).encode()
        assert len(fits) == 1_000
        await wire.send_bytes(fits + b"\n")
        await wire.send_bytes(fits + b" \n")
        answer = await wire.receive()
        assert (answer["id"], answer["error"]["code"]) == (None, -32700)
        assert "1000" in answer["error"]["message"]
        answers = [await wire.receive() for _ in range(2)]
        assert sorted("error" in answer for answer in answers) == [False, True]
        assert await wire.silent()


async def test_what_is_not_finished_when_the_input_ends_is_no_message(
    autojump_clock: MockClock, server: Server
) -> None:
    async with talking(server) as wire:
        await wire.send_bytes(json.dumps(tool(1, "wait", seconds=600)).encode()[:-5])
        await wire.to_server.aclose()
        with trio.fail_after(5):
            await wire.ended.wait()


async def test_the_last_line_needs_no_line_end(autojump_clock: MockClock, server: Server) -> None:
    # `echo -n '{...}' | mcpd serve --stdio`: it is whole, and the end of the input ends it.
    async with talking(server) as wire:
        await wire.send_bytes(json.dumps(tool(1, "echo", text="last")).encode())
        await wire.to_server.aclose()
        assert text(await wire.receive()) == "last"
        with trio.fail_after(5):
            await wire.ended.wait()


async def test_calls_may_finish_when_the_input_has_ended_but_not_for_ever(
    autojump_clock: MockClock, server: Server
) -> None:
    async with talking(server, drain_timeout=5.0) as wire:
        await wire.send(tool("soon", "wait", seconds=2))
        await wire.send(tool("never", "wait", seconds=1_000))
        await wait_all_tasks_blocked()
        await wire.to_server.aclose()
        assert (await wire.receive())["id"] == "soon"
        with trio.fail_after(10):
            await wire.ended.wait()


async def test_a_client_that_does_not_read_slows_the_server_down_and_loses_nothing(
    autojump_clock: MockClock, server: Server
) -> None:
    gate = trio.Event()

    class Slow:
        async def send_all(self, data: bytes) -> None:
            await gate.wait()
            await from_here.send_all(data)

    from_here, from_server = memory_stream_one_way_pair()
    to_server, stdin = memory_stream_one_way_pair()
    wire = Wire(to_server, from_server)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: serve_stdio(server, receiver=stdin, sender=Slow()))
        for n in range(20):
            await wire.send(tool(n, "echo", text="x" * 1_000))
        await wait_all_tasks_blocked()
        gate.set()
        assert sorted([(await wire.receive())["id"] for _ in range(20)]) == list(range(20))
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["input ends", "cancelled"])
async def test_a_client_that_never_reads_again_does_not_hold_up_the_end(
    autojump_clock: MockClock, server: Server, how: str
) -> None:
    class Stuck:
        async def send_all(self, data: bytes) -> None:
            await trio.sleep_forever()

    to_server, stdin = memory_stream_one_way_pair()
    ended = trio.Event()

    async def serve() -> None:
        try:
            await serve_stdio(server, receiver=stdin, sender=Stuck())
        finally:
            ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        await to_server.send_all(json.dumps(tool(1, "echo", text="x")).encode() + b"\n")
        await wait_all_tasks_blocked()
        if how == "input ends":
            await to_server.aclose()
        else:
            nursery.cancel_scope.cancel()
        with trio.fail_after(30) as patience:
            patience.shield = True
            await ended.wait()


async def test_with_many_calls_under_way_the_client_is_still_heard(autojump_clock: MockClock, server: Server) -> None:
    async with talking(server) as wire:
        await wire.send(legacy(0, "initialize", **INITIALIZE))
        await wire.receive()
        await wire.send(notification("notifications/initialized"))
        for n in range(1, 101):
            await wire.send(tool(n, "ask", legacy, number=n))
        asked = [await wire.receive() for _ in range(100)]
        questions = {int(question["params"]["message"]): question["id"] for question in asked}
        # All places are taken by calls that wait for this client. What it says now must be read all the same.
        await wire.send(tool(101, "echo", legacy, text="one more"))
        await wire.send(legacy("ping", "ping"))
        assert (await wire.receive()) == {"jsonrpc": "2.0", "id": "ping", "result": {}}
        await wire.send(notification("notifications/cancelled", requestId=1))
        await wire.send({"jsonrpc": "2.0", "id": questions[2], "result": {"action": "decline"}})
        answers = {answer["id"]: text(answer) for answer in [await wire.receive() for _ in range(2)]}
        assert answers == {2: "decline", 101: "one more"}
        for n in range(3, 101):
            await wire.send({"jsonrpc": "2.0", "id": questions[n], "result": {"action": "cancel"}})
        assert {(await wire.receive())["id"] for _ in range(98)} == set(range(3, 101))
        assert await wire.silent()


async def test_a_call_that_was_cancelled_before_its_turn_never_runs(autojump_clock: MockClock) -> None:
    server = Server("turns")
    ran: list[int] = []

    @server.tool
    async def run(number: int) -> str:
        ran.append(number)
        await trio.sleep(10)
        return "done"

    async with talking(server) as wire:
        for n in range(101):
            await wire.send(tool(n, "run", number=n))
        await wire.send(notification("notifications/cancelled", requestId=100))
        await wire.send(tool(101, "run", number=101))
        assert {(await wire.receive())["id"] for _ in range(101)} == {*range(100), 101}
        assert 100 not in ran
        assert len(ran) == 101


async def test_there_is_a_bound_to_the_calls_that_wait(autojump_clock: MockClock, server: Server) -> None:
    async with talking(server) as wire:
        number = 3_000
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                for n in range(number):
                    await wire.send(tool(n, "wait", seconds=5))

            nursery.start_soon(send)
            answers = [await wire.receive() for _ in range(number)]
        refused = [answer for answer in answers if "error" in answer]
        assert len({answer["id"] for answer in answers}) == number
        assert 0 < len(refused) < number - 100
        assert all("at once" in answer["error"]["message"] for answer in refused)


async def test_changes_are_told_to_who_is_initialized(autojump_clock: MockClock, server: Server) -> None:
    async with talking(server) as wire:
        await wire.send(legacy(0, "initialize", **INITIALIZE))
        await wire.receive()
        server.notify_tools_changed()
        assert await wire.silent()
        await wire.send(notification("notifications/initialized"))
        await wait_all_tasks_blocked()
        server.notify_tools_changed()
        server.notify_tools_changed()
        assert (await wire.receive())["method"] == "notifications/tools/list_changed"
        assert await wire.silent()
    assert server.listeners == set()


async def test_read_only(autojump_clock: MockClock, server: Server) -> None:
    async with talking(server, read_only=True) as wire:
        await wire.send(modern(1, "tools/list"))
        assert [found["name"] for found in (await wire.receive())["result"]["tools"]] == ["echo"]


# ------------------------------------------------------------------------------------------------- on real pipes


class Child:
    """``python -m mcpd serve --stdio`` and both ends of its pipes."""

    def __init__(self, process: "subprocess.Popen[bytes]", stderr: Path) -> None:
        self.process = process
        self._stderr = stderr
        self._rest = b""
        assert process.stdin is not None
        assert process.stdout is not None
        self.stdin = process.stdin
        self.stdout = process.stdout

    def send(self, message: Any) -> None:
        self.send_bytes(json.dumps(message).encode() + b"\n")

    def send_bytes(self, data: bytes) -> None:
        self.stdin.write(data)
        self.stdin.flush()

    def receive(self, within: float = WITHIN) -> Any:
        deadline = time.monotonic() + within
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            assert left > 0, f"nothing came within {within} s:\n{self.stderr}"
            if select.select([self.stdout], [], [], left)[0]:
                data = os.read(self.stdout.fileno(), 1 << 20)
                assert data, f"the server has closed its output:\n{self.stderr}"
                self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def call(self, name: str, **arguments: Any) -> str:
        self.send(tool(name, name, **arguments))
        answer = self.receive()
        assert answer["id"] == name
        return text(answer)

    def end(self) -> tuple[int, bytes, float]:
        """Close its input; its exit status, the rest of its output, and how long it took."""
        began = time.monotonic()
        self.stdin.close()
        rest = self._rest + self.stdout.read()
        status = self.process.wait(WITHIN)
        return status, rest, time.monotonic() - began

    @property
    def stderr(self) -> str:
        return self._stderr.read_text(errors="replace")

    def await_stderr(self, what: str) -> None:
        deadline = time.monotonic() + WITHIN
        while what not in self.stderr:
            assert time.monotonic() < deadline, self.stderr
            time.sleep(0.02)


@pytest.fixture
def app(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(APP)
    return path


@contextmanager
def started(app: Path, *options: str, command: list[str] | None = None) -> Iterator[Child]:
    log = app.parent / "stderr"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command or [sys.executable, "-m", "mcpd", "serve", "--stdio", *options, str(app)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=app.parent,
            env={name: value for name, value in os.environ.items() if not name.startswith("MCPD_")},
        )
    try:
        yield Child(process, log)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


def test_both_eras_in_one_process(app: Path) -> None:
    with started(app) as child:
        assert child.call("era") == "2026-07-28"
        child.send(legacy(0, "initialize", **INITIALIZE))
        assert child.receive()["result"]["protocolVersion"] == "2025-11-25"
        child.send(notification("notifications/initialized"))
        child.send(tool(1, "era", legacy))
        assert text(child.receive()) == "2025-11-25"
        assert child.call("era") == "2026-07-28"
        status, rest, _ = child.end()
        assert (status, rest) == (0, b"")


def test_concurrent_requests(app: Path) -> None:
    with started(app) as child:
        began = time.monotonic()
        child.send_bytes(b"".join(json.dumps(tool(n, "wait", seconds=0.5)).encode() + b"\n" for n in range(50)))
        assert sorted(child.receive()["id"] for _ in range(50)) == list(range(50))
        assert time.monotonic() - began < 15  # one after the other they take 25


def test_cancellation(app: Path) -> None:
    with started(app) as child:
        message = tool(7, "wait", seconds=600)
        message["params"]["_meta"] = ENVELOPE | {"progressToken": "p"}
        child.send(message)
        assert child.receive()["method"] == "notifications/progress"
        child.send(notification("notifications/cancelled", requestId=7, reason="enough"))
        child.await_stderr("cancelled")
        # No response comes to what was cancelled: the next line is the answer to the next request.
        assert child.call("echo", text="next") == "next"
        assert child.end()[0] == 0


def test_the_end_of_input_ends_it_quickly_and_cleanly(app: Path) -> None:
    with started(app) as child:
        assert child.call("echo", text="a") == "a"
        status, rest, took = child.end()
        assert (status, rest) == (0, b"")
        assert took < 3
        assert child.stderr.splitlines()[-1] == "lifespan out"
        assert "Traceback" not in child.stderr


def test_no_input_at_all(app: Path) -> None:
    with started(app) as child:
        assert child.end()[:2] == (0, b"")


def test_the_end_of_input_lets_calls_finish_for_a_while(app: Path) -> None:
    with started(app, "--drain-timeout", "5s") as child:
        child.send(tool("soon", "wait", seconds=1))
        child.send(tool("never", "wait", seconds=600))
        time.sleep(0.3)  # the calls are under way; there is nothing on this side that could be waited for
        status, rest, took = child.end()
        assert status == 0
        assert [json.loads(line)["id"] for line in rest.splitlines()] == ["soon"]
        assert took < 10
        assert "cancelled" in child.stderr


def test_nothing_but_messages_comes_out(app: Path) -> None:
    with started(app) as child:
        assert child.call("noise") == "quiet"
        assert child.call("thread_noise") == "quiet"
        child.send(tool("fail", "fail"))
        assert child.receive()["result"]["isError"]
        status, rest, _ = child.end()
        assert (status, rest) == (0, b"")
        for said in (
            "printed on import",
            "printed by a tool",
            "and flushed",
            "written to the descriptor",
            "printed by a child",
            "printed in a thread",
            "RuntimeError: no",
        ):
            assert said in child.stderr, said


def test_what_is_printed_when_it_is_over_is_printed_as_ever(app: Path) -> None:
    script = (
        "import trio, app, mcpd\nprint('before', flush=True)\ntrio.run(mcpd.serve_stdio, app.server)\nprint('after')\n"
    )
    with started(app, command=[sys.executable, "-c", script]) as child:
        child.send(tool(1, "noise"))
        status, rest, _ = child.end()
        assert status == 0
        lines = rest.decode().splitlines()
        assert lines[0] == "printed on import"
        assert lines[1] == "before"
        assert text(json.loads(lines[2])) == "quiet"
        assert lines[3:] == ["after"]


def test_an_over_long_line(app: Path) -> None:
    with started(app) as child:
        child.send_bytes(b"x" * (5 * 1024 * 1024) + b"\n")
        assert child.receive()["error"]["code"] == -32700
        assert child.call("echo", text="next") == "next"
        # Up to the bound it is a message like any other.
        assert child.call("echo", text="y" * 3_000_000) == "y" * 3_000_000


def test_invalid_json(app: Path) -> None:
    with started(app) as child:
        child.send_bytes(b"{not json}\n\x00\xff\n")
        for _ in range(2):
            answer = child.receive()
            assert (answer["id"], answer["error"]["code"]) == (None, -32700)
        assert child.call("echo", text="next") == "next"


def test_a_client_that_goes_away_without_a_word(app: Path) -> None:
    with started(app) as child:
        assert child.call("echo", text="a") == "a"
        child.stdout.close()
        child.send(tool(1, "big", size=1_000_000))
        child.stdin.close()
        assert child.process.wait(WITHIN) == 0
        assert "Traceback" not in child.stderr


def test_a_client_that_does_not_read_its_answers_and_leaves(app: Path) -> None:
    with started(app, "--drain-timeout", "5s") as child:
        child.send(tool(1, "big", size=3_000_000))
        assert select.select([child.stdout], [], [], WITHIN)[0]
        began = time.monotonic()
        child.stdin.close()
        # The pipe is full and stays so: nobody reads, and nobody closes it.
        assert child.process.wait(WITHIN) == 0
        assert time.monotonic() - began < 15


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(app: Path, number: signal.Signals) -> None:
    with started(app) as child:
        child.send(tool(1, "wait", seconds=600))
        child.send(tool(2, "echo", text="a"))
        assert child.receive()["id"] == 2
        began = time.monotonic()
        child.process.send_signal(number)
        assert child.process.wait(WITHIN) == 0
        assert time.monotonic() - began < 10
        assert child.stderr.splitlines()[-1] == "lifespan out"
        assert "Traceback" not in child.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_also_when_nobody_reads(app: Path, number: signal.Signals) -> None:
    with started(app) as child:
        child.send(tool(1, "big", size=3_000_000))
        assert select.select([child.stdout], [], [], WITHIN)[0]
        child.process.send_signal(number)
        assert child.process.wait(WITHIN) == 0
        assert "Traceback" not in child.stderr


def test_files_instead_of_pipes(app: Path) -> None:
    # `mcpd serve --stdio < requests > answers`: regular files cannot be waited for, and need not.
    requests, answers = app.parent / "requests", app.parent / "answers"
    requests.write_bytes(b"".join(json.dumps(tool(n, "echo", text=str(n))).encode() + b"\n" for n in range(200)))
    with requests.open("rb") as stdin, answers.open("wb") as stdout:
        ended = subprocess.run(
            [sys.executable, "-m", "mcpd", "serve", "--stdio", str(app)],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            timeout=WITHIN,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    found = [json.loads(line) for line in answers.read_bytes().splitlines()]
    assert sorted(answer["id"] for answer in found) == list(range(200))


def test_read_only_on_the_command_line(app: Path) -> None:
    with started(app, "--read-only") as child:
        child.send(modern(1, "tools/list"))
        assert [found["name"] for found in child.receive()["result"]["tools"]] == ["echo", "era"]
        child.send(tool(2, "noise"))
        assert child.receive()["error"]["code"] == -32602
