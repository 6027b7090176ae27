"""The server under measurement: one that runs already, or one started for the run and stopped after it."""

from __future__ import annotations

import ipaddress
import shlex
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

import psutil

if TYPE_CHECKING:
    from collections.abc import Generator

START_SECONDS = 30.0
STOP_SECONDS = 10.0


class BenchError(Exception):
    """The measurement cannot be made or cannot be trusted; the message says why and what to change."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where the server answers, and its process if that is on this machine.

    `pid` is the process that listens, which is not always the one that was started.
    """

    url: str
    pid: int | None

    @property
    def origin(self) -> str:
        """The scheme, host and port of `url`, without a path."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"


def loopback_port(url: str) -> int:
    """Give the port of `url`; refuse whatever is not plain HTTP on this machine.

    Raises `BenchError` for another scheme or host: a load generator is pointed at one's own machine only.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "http":
        raise BenchError(f"{url!r} is not a plain http:// URL; the measurement speaks HTTP/1.1 on loopback only")
    if host != "localhost":
        try:
            loopback = ipaddress.ip_address(host).is_loopback
        except ValueError:
            loopback = False
        if not loopback:
            raise BenchError(f"{host!r} is not a loopback address; use 127.0.0.1, ::1 or localhost")
    try:
        return parts.port or 80
    except ValueError as exc:
        raise BenchError(
            f"{url!r} has no usable port ({exc}); write a number, or {{port}} together with --serve"
        ) from exc


@contextmanager
def serving(command: str | None, url: str, *, pid: int | None = None) -> Generator[Target]:
    """Yield the server at `url`; with `command`, start it first and stop it (and its children) on leaving.

    `{port}` in the command and in the URL becomes a free port. Without a command the URL must be answered by a
    server that runs already; `pid` names its process where the socket table cannot.
    Raises `BenchError` when nothing listens within 30 seconds, with the last lines the command wrote.
    """
    if command is None:
        loopback_port(url)
        yield Target(url, pid if pid is not None else _listener(loopback_port(url)))
        return
    free = str(_free_port())
    url = url.replace("{port}", free)
    port = loopback_port(url)
    if _listener(port) is not None:
        raise BenchError(f"port {port} is taken by another server; stop it, or write {{port}} in the URL")
    arguments = shlex.split(command.replace("{port}", str(port)))
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        try:
            process = psutil.Popen(arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        except OSError as exc:
            raise BenchError(f"--serve: cannot start {arguments[0]!r}: {exc}") from exc
        try:
            yield Target(url, _wait_for_listener(process, port, output))
        finally:
            _stop(process)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _listener(port: int) -> int | None:
    """Give the process that listens on `port`, or None if there is none that this user may see."""
    pids = {
        connection.pid
        for connection in psutil.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr[1:2] == (port,) and connection.pid is not None
    }
    if len(pids) > 1:
        raise BenchError(f"{len(pids)} processes listen on port {port} ({sorted(pids)}); say which with --pid")
    return pids.pop() if pids else None


def _wait_for_listener(process: psutil.Popen, port: int, output: IO[str]) -> int:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        pid = _listener(port)
        if pid is not None:
            return pid
        time.sleep(0.05)
    output.seek(0)
    tail = "\n".join(output.read().splitlines()[-20:]) or "(it wrote nothing)"
    state = "still runs" if process.poll() is None else f"ended with status {process.returncode}"
    raise BenchError(f"--serve: nothing listens on port {port}; the command {state}. Its last lines:\n{tail}")


def _stop(process: psutil.Popen) -> None:
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for member in family:
        _signal(member, kill=False)
    _, alive = psutil.wait_procs(family, timeout=STOP_SECONDS)
    for member in alive:
        _signal(member, kill=True)
    psutil.wait_procs(alive, timeout=STOP_SECONDS)


def _signal(process: psutil.Process, *, kill: bool) -> None:
    try:
        process.kill() if kill else process.terminate()
    except psutil.NoSuchProcess:
        return
