"""A served mcpd in a process of its own, for what needs a kernel: real buffers, resets, signals, sudden death."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.harness.client import Client
from tests.harness.connection import Connection
from tests.harness.ends import WINDOW, SocketEnd

ROOT: Final = Path(__file__).parents[2]
APPS: Final = ROOT / "tests" / "apps"
STARTS_WITHIN: Final = 30.0
STOPS_WITHIN: Final = 30.0
_STARTED: Final = re.compile(r" at (http://\S+) \(")


class Process(Client):
    """A served mcpd that is up. In a test on Trio (in real time) it can be used as a `Client` of itself."""

    def __init__(self, popen: subprocess.Popen[bytes], log: Path) -> None:
        super().__init__()
        self.popen = popen
        self.pid = popen.pid
        self.url = ""
        self._log = log
        self._connections: list[Connection] = []

    @property
    def stderr(self) -> str:
        """What it has said so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, _, port = self.url.split("/")[2].rpartition(":")
        return host, int(port)

    def socket(self, *, window: int = WINDOW) -> socket.socket:
        """A connection to it, with about *window* bytes for what was not read yet."""
        sock = socket.socket()
        sock.settimeout(STOPS_WITHIN)
        if window != WINDOW:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        sock.connect(self.address)
        return sock

    def connect(self, *, window: int = WINDOW) -> Connection:
        """The same, for tests on Trio."""
        connection = Connection(SocketEnd(self.socket(window=window)))
        self._connections.append(connection)
        if len(self._connections) % 1000 == 0:  # there may be very many, one after the other
            self._connections = [each for each in self._connections if not each.closed]
        return connection

    def close_connections(self) -> None:
        """Close all connections of all clients."""
        for connection in self._connections:
            connection.leave(reset=False)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.popen.send_signal(number)

    def wait(self, within: float = STOPS_WITHIN) -> int:
        """Wait until it has ended; its exit code, or the negative number of the signal that ended it."""
        return self.popen.wait(within)

    def rss(self) -> int:
        """How many bytes of memory it has."""
        size: int = psutil.Process(self.pid).memory_info().rss
        return size

    def connections(self, status: str) -> int:
        """How many of its TCP connections are in *status*, as ``CLOSE_WAIT``."""
        return sum(1 for found in psutil.Process(self.pid).net_connections("tcp") if found.status == status)


@contextmanager
def process(
    app: str | None = None,
    *options: str,
    env: Mapping[str, str] | None = None,
    code: int | None = 0,
    allow_traceback: bool = False,
    through: Sequence[str] = (),
) -> Generator[Process, None, None]:
    """``mcpd serve APP`` on a free port, up inside the block and ended by SIGTERM after it, unless it has ended before.

    Args:
      app: what to serve: the name of a module in ``tests/apps``, ``module:attribute``, or nothing for the demo.
      options: more of the command line.
      env: more of the environment.
      code: the exit code it must have; None for any.
      allow_traceback: a traceback on stderr is no failure.
      through: a command that runs the command behind it.
    """
    command = [*through, sys.executable, "-m", "mcpd", "serve", "--port", "0", *options]
    if app is not None:
        command.append(app if ":" in app else str(APPS / f"{app}.py"))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "stderr")
        with log.open("wb") as stderr:
            popen = subprocess.Popen(command, cwd=ROOT, env=os.environ | dict(env or {}), stderr=stderr)
        served = Process(popen, log)
        try:
            _await_start(served)
            yield served
            if popen.poll() is None:
                popen.terminate()
            ended = popen.wait(STOPS_WITHIN)
        finally:
            served.close_connections()
            popen.kill()  # does nothing to one that has ended
            popen.wait()
        if not allow_traceback:
            assert "Traceback" not in served.stderr, served.stderr
        if code is not None:
            assert ended == code, f"mcpd ended with {ended}:\n{served.stderr}"


def _await_start(served: Process) -> None:
    deadline = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < deadline:
        started = _STARTED.search(served.stderr)
        if started is not None:
            served.url = started[1]
            return
        if served.popen.poll() is not None:
            pytest.fail(f"mcpd ended with {served.popen.returncode} at its start:\n{served.stderr}")
        time.sleep(0.02)
    pytest.fail(f"mcpd was not up after {STARTS_WITHIN:g} s:\n{served.stderr}")
