"""The consoles of the documentation: each command is run, and prints what the page shows.

``...`` stands for anything. A server is started, waited for, and ended with the page. The ports of a page are replaced
by free ones, so nothing else on the machine is in the way.
"""

import doctest
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import which

import pytest

from tests.docs.pages import PAGES, ROOT, Command, blocks, commands, name_of
from tests.processes import READY_WITHIN, STOPS_WITHIN, free_port, missing

ELLIPSIS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PORTS = re.compile(r"\b(80[0-9]{2}|90[0-9]{2}|6379)\b")
RUN_WITHIN = 60.0


class Console:
    """What a page's commands run in."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._ports: dict[str, int] = {}
        self._servers: dict[int, ExitStack] = {}
        scripts = str(Path(sys.executable).parent)
        ours = {name: value for name, value in os.environ.items() if not name.startswith("MCPD_")}
        self._environment = ours | {"PATH": f"{scripts}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "examples")}

    def run(self, command: Command) -> None:
        """Run it, and compare."""
        words = shlex.split(command.text.replace("\\\n", " "))
        wanted = self._mapped(command.output)
        refused = wanted.startswith("mcpd: ")
        if words[:2] in (["mcpd", "serve"], ["make", "serve"]) and not refused:
            log = self._serve(words[2:], "mcpd", "serve")
        elif words[0] == "redis-server":
            log = self._serve(words[1:], "redis-server")
        else:
            done = subprocess.run(
                ["bash", "-c", self._mapped(command.text)], cwd=self._folder, env=self._environment,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=RUN_WITHIN, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == (2 if refused else 0), f"line {command.line}: {done.stdout}"
            assert not wanted or _same(wanted, done.stdout), _difference(command, wanted, done.stdout)
            return
        # What a server says of its start may come a moment after it has begun to listen.
        deadline = time.monotonic() + READY_WITHIN
        while wanted and not _same(wanted, log.read_text(encoding="utf-8")):
            assert time.monotonic() < deadline, _difference(command, wanted, log.read_text(encoding="utf-8"))
            time.sleep(0.02)

    def _mapped(self, text: str) -> str:
        text = re.sub(r"--store redis(?= |$)", "--store redis://127.0.0.1:6379", text)
        return PORTS.sub(lambda found: str(self._port(found[0])), text)

    def _port(self, shown: str) -> int:
        if shown not in self._ports:
            self._ports[shown] = free_port()
        return self._ports[shown]

    def _serve(self, arguments: list[str], *program: str) -> Path:
        if which(program[0], path=self._environment["PATH"]) is None:
            missing(program[0], "make pytest")
        if "--port" not in arguments:
            arguments = [*arguments, "--port", "8000" if program[0] == "mcpd" else "6379"]
        arguments = shlex.split(self._mapped(shlex.join(arguments)))
        port = int(arguments[arguments.index("--port") + 1])
        if port in self._servers:
            self._servers.pop(port).close()
        stack = self._servers[port] = ExitStack()
        self._stack.callback(stack.close)
        return stack.enter_context(self._server([*program, *arguments], port))

    @contextmanager
    def _server(self, command: list[str], port: int) -> Iterator[Path]:
        log = self._folder / f"{port}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=self._folder, env=self._environment, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            _await_port(process, port, log)
            yield log
            process.terminate()
            code = process.wait(STOPS_WITHIN)
        finally:
            process.kill()
            process.wait()
        assert code == 0, log.read_text(encoding="utf-8")
        assert "Traceback" not in log.read_text(encoding="utf-8")


def _same(wanted: str, found: str) -> bool:
    return doctest.OutputChecker().check_output(f"{wanted}\n", f"{found}\n", ELLIPSIS)


def _difference(command: Command, wanted: str, found: str) -> str:
    return f"line {command.line}: {command.text}\nwanted:\n{wanted}\nfound:\n{found}"


def _await_port(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"{process.args} is not up: {log.read_text(encoding='utf-8')}")


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")], ids=name_of)
def test_the_commands_of_a_page_print_what_it_shows(page: Path, tmp_path: Path) -> None:
    for block in blocks(page, "python"):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    with ExitStack() as stack:
        console = Console(tmp_path, stack)
        for block in blocks(page, "console"):
            for command in commands(block):
                console.run(command)


def test_make_serve_is_mcpd_serve() -> None:
    # So the consoles may start the one for the other.
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^serve: .*\n\t@exec \$\(venv\)/bin/mcpd serve \$\(ARGS\)$", makefile, re.MULTILINE)
