"""The servers that are compared: how each is installed, built and started. All have the tools echo and add."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"
CACHE = HERE.parent / ".cache" / "bench"


class MissingError(Exception):
    """A peer cannot be had on this machine; the message says what is missing."""


@dataclass(frozen=True)
class Peer:
    """One server in one configuration."""

    name: str
    prepare: Callable[[], list[str]]
    """Installs what it needs, and gives its command; `{port}` stands for the port."""
    eras: tuple[str, ...] = ("legacy", "modern")
    environment: dict[str, str] = field(default_factory=dict)
    warm_up: float = 1.0
    """Seconds of load before anything counts."""


def run(*command: str | Path, cwd: Path | None = None) -> None:
    """Run a command of an installation; its output shows only if it fails."""
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingError(f"{command[0]} {command[1]} failed: {(done.stderr or done.stdout).strip()[-300:]}")


def python_peer(requirements: str, script: str) -> Callable[[], list[str]]:
    """A Python server in a virtual environment of its own."""

    def prepare() -> list[str]:
        venv = CACHE / requirements
        python = venv / "bin" / "python"
        pinned = PEERS / f"{requirements}.txt"
        stamp = venv / "stamp"
        if not stamp.exists() or stamp.read_text() != pinned.read_text():
            run(sys.executable, "-m", "venv", venv)
            run(python, "-m", "pip", "install", "--quiet", "-r", pinned)
            stamp.write_text(pinned.read_text())
        return [str(python), str(PEERS / script), "{port}"]

    return prepare


def go_peer(folder: str, module: str) -> Callable[[], list[str]]:
    """A Go server; *module* is what it is made with, and its version."""

    def prepare() -> list[str]:
        go = shutil.which("go")
        if go is None:
            raise MissingError("go is not installed")
        built = CACHE / module.replace("/", "_")
        source = PEERS / folder / "main.go"
        binary = built / "peer"
        if not binary.exists() or (built / "main.go").read_text() != source.read_text():
            shutil.rmtree(built, ignore_errors=True)
            built.mkdir(parents=True)
            shutil.copy(source, built)
            run(go, "mod", "init", "peer", cwd=built)
            run(go, "get", module, cwd=built)
            run(go, "mod", "tidy", cwd=built)
            run(go, "build", "-o", "peer", ".", cwd=built)
        return [str(binary), "-addr", "127.0.0.1:{port}"]

    return prepare


def typescript_peer() -> list[str]:
    """The TypeScript SDK's server on Node."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise MissingError("node or npm is not installed")
    built = CACHE / "typescript"
    if not (built / "node_modules").exists():
        built.mkdir(parents=True, exist_ok=True)
        shutil.copy(PEERS / "package.json", built)
        run(npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error", cwd=built)
    shutil.copy(PEERS / "typescript_sdk.mjs", built)
    return [node, str(built / "typescript_sdk.mjs"), "{port}"]


def mcpd_peer(*options: str) -> Callable[[], list[str]]:
    """This mcpd."""

    def prepare() -> list[str]:
        served = str(PEERS / "mcpd_peer.py")
        limits = ["--max-sessions", "2000000", "--log-level", "error"]
        return [sys.executable, "-m", "mcpd", "serve", served, "--port", "{port}", *limits, *options]

    return prepare


def redis_peer(*options: str) -> Callable[[], list[str]]:
    """This mcpd on Redis, at MCPD_BENCH_REDIS."""

    def prepare() -> list[str]:
        url = os.environ.get("MCPD_BENCH_REDIS")
        if url is None:
            raise MissingError("MCPD_BENCH_REDIS names no Redis to use")
        return [*mcpd_peer(*options)(), "--store", url]

    return prepare


FLOOR = Peer("a fixed answer", lambda: [sys.executable, str(PEERS / "floor.py"), "{port}"], eras=("legacy",))
"""What one call alone takes where nothing is done for it."""
ONE_CORE = {"GOMAXPROCS": "1"}
PEERS_BY_NAME: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer("mcpd direct", mcpd_peer("--front", "direct")),
        Peer("mcpd hypercorn", mcpd_peer("--front", "hypercorn")),
        Peer("mcpd direct, redis", redis_peer("--front", "direct")),
        Peer("Python SDK 2.3.0 (JSON)", python_peer("python_sdk", "python_sdk_peer.py"), environment={"JSON": "1"}),
        Peer("Python SDK 2.3.0 (SSE)", python_peer("python_sdk", "python_sdk_peer.py")),
        Peer("FastMCP 4.2.3 (JSON)", python_peer("fastmcp", "fastmcp_peer.py"), environment={"JSON": "1"}),
        Peer("TypeScript SDK 2.4.0 (JSON)", typescript_peer, environment={"JSON": "1"}, warm_up=6.0),
        Peer(
            "official Go SDK 1.7.0",
            go_peer("go_sdk", "github.com/modelcontextprotocol/go-sdk@v1.7.0"),
            eras=("legacy",),
            environment=ONE_CORE,
        ),
        Peer(
            "mcp-go 0.43.2",
            go_peer("mcp_go", "github.com/mark3labs/mcp-go@v0.43.2"),
            eras=("legacy",),
            environment=ONE_CORE,
        ),
        Peer(
            "mcp-go 1.0.0-beta.1",
            go_peer("mcp_go", "github.com/mark3labs/mcp-go@v1.0.0-beta.1"),
            eras=("legacy",),
            environment=ONE_CORE,
        ),
    )
}
