"""Real Redis and Valkey servers: alone, with a replica and Sentinel, as a cluster; and a proxy, slow or with TLS.

`make` puts the servers on PATH: the oldest Redis that mcpd supports and a recent Valkey. Without make, those that are
installed are used.
"""

import contextlib
import itertools
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import redis
import trio

from mcpd.errors import only
from mcpd_stores.redis import RedisStore
from tests.processes import free_port, missing

PROGRAMS = ("redis-server", "valkey-server")
UP_WITHIN = 20.0  # seconds; a slow machine under load needs a few
_prefixes = itertools.count(1)


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        missing(name, "run the tests with make, or put it on PATH")
    return found


class RedisServer:
    """One server process on a port of its own; it keeps nothing on disk."""

    def __init__(self, executable: str, folder: str, *options: str) -> None:
        # A cluster's nodes talk to each other on the port 10000 above.
        self.port = next(port for port in iter(free_port, None) if port < 55_000)
        self.socket = f"{folder}/{self.port}.sock"
        self._command = [
            *(executable, "--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", self.socket),
            *("--save", "", "--appendonly", "no", "--dir", folder, "--logfile", f"{folder}/{self.port}.log"),
            # A cluster is found by its nodes' file; the other two only shorten the tests.
            *("--cluster-config-file", f"{folder}/{self.port}.nodes", "--repl-diskless-sync-delay", "0"),
            *options,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, options: str = "", *, login: str = "") -> str:
        """A store URL with a prefix of its own, so that tests can share a server."""
        return f"redis://{login}{self.address}/0?prefix=test{next(_prefixes)}&{options}".rstrip("&")

    def client(self, **options: Any) -> "redis.Redis":
        """Somebody else's connection, to look behind the store's back."""
        return redis.Redis(port=self.port, protocol=2, socket_timeout=10, **options)

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        wait_for(self._answers, f"{self._command[0]} on port {self.port}")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the server has ended; its command was {self._command}"
        with self.client() as client:
            try:
                return bool(client.ping())
            except redis.exceptions.AuthenticationError:
                return True
            except redis.exceptions.ConnectionError:
                return False

    def kill(self) -> None:
        """SIGKILL: nobody is told."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """It keeps its connections and does not answer any more."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


def wait_for(condition: Callable[[], object], what: str) -> None:
    """For the tests' own preparations, outside Trio."""
    deadline = time.monotonic() + UP_WITHIN
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {UP_WITHIN:g} s"
        time.sleep(0.02)


@contextmanager
def servers(number: int, *options: str, name: str = "redis-server") -> Generator[list[RedisServer]]:
    """So many servers that know nothing of each other; they are gone after the block, whatever happens in it."""
    executable = program(name)
    with tempfile.TemporaryDirectory(prefix="mcpd-") as folder:
        started = [RedisServer(executable, folder, *options) for _ in range(number)]
        try:
            for server in started:
                server.start()
            yield started
        finally:
            for server in started:
                server.kill()


@contextmanager
def server(*options: str, name: str = "redis-server") -> Generator[RedisServer]:
    with servers(1, *options, name=name) as (one,):
        yield one


@contextmanager
def replicated() -> Generator[tuple[RedisServer, RedisServer]]:
    """A primary, and its replica that has caught up."""
    with servers(2) as (primary, replica), replica.client() as client:
        client.replicaof("127.0.0.1", primary.port)
        wait_for(lambda: client.info("replication")["master_link_status"] == "up", "the replica has caught up")
        yield primary, replica


@contextmanager
def sentinel(primary: RedisServer, service: str) -> Generator[int]:
    """A Sentinel that watches the service; its port."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="mcpd-") as folder:
        # It rewrites its configuration, so it needs a file.
        config = Path(folder, "sentinel.conf")
        lines = [
            *(f"port {port}", "bind 127.0.0.1", f"dir {folder}", f"logfile {folder}/log"),
            f"sentinel monitor {service} 127.0.0.1 {primary.port} 1",
            f"sentinel down-after-milliseconds {service} 500",
            f"sentinel failover-timeout {service} 5000",
        ]
        config.write_text("\n".join(lines))
        process = subprocess.Popen([program("redis-server"), str(config), "--sentinel"])
        try:
            with redis.Redis(port=port, protocol=2) as client:

                def knows_all() -> bool:
                    try:
                        state = raw(client, "SENTINEL", "MASTER", service)
                    except redis.exceptions.ConnectionError:
                        return False
                    return state[state.index(b"num-slaves") + 1] == b"1"

                wait_for(knows_all, "Sentinel has found the replica")
            yield port
        finally:
            process.kill()
            process.wait()


@contextmanager
def cluster() -> Generator[list[RedisServer]]:
    """Three nodes that share the slots."""
    with servers(3, "--cluster-enabled", "yes") as nodes, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(node.client()) for node in nodes]
        bounds = [0, 5461, 10923, 16384]
        for client, first, end in zip(clients, bounds, bounds[1:], strict=False):
            client.execute_command("CLUSTER", "ADDSLOTS", *range(first, end))
        for epoch, client in enumerate(clients, 1):
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        for node in nodes[1:]:
            clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", node.port)

        def agreed() -> bool:
            return all(
                b"cluster_state:ok" in (info := raw(client, "CLUSTER", "INFO")) and b"known_nodes:3" in info
                for client in clients
            )

        wait_for(agreed, "the cluster is up")
        yield nodes


def raw(client: "redis.Redis", *words: str | int) -> Any:
    """A reply as it comes, before redis-py makes something of it."""
    pool: Any = client.connection_pool
    connection = pool.get_connection()
    try:
        connection.send_command(*words)
        return connection.read_response()
    finally:
        pool.release(connection)


@asynccontextmanager
async def running(*urls: str) -> AsyncGenerator[list[RedisStore]]:
    """Stores that are connected; one for each URL."""
    stores = [RedisStore(url) for url in urls]
    try:
        async with trio.open_nursery() as nursery:
            for store in stores:
                await nursery.start(store.run)
            yield stores
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise only(group) from None


async def until(condition: Callable[[], object], *, within: float = 5.0) -> None:
    """Wait for what happens in another process, or in a background task; there is nothing to await."""
    with trio.fail_after(within):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.01)


class Proxy:
    """Between a store and its Redis: late by *delay* seconds, and TLS towards the store if it is given a context."""

    def __init__(self, port: int, *, delay: float = 0.0, tls: ssl.SSLContext | None = None) -> None:
        self._target = port
        self._delay = delay
        self._tls = tls
        self._streams: set[trio.abc.Stream] = set()
        self.port = 0
        self.black_hole = False
        """Take everything and pass nothing on."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            (listener,) = await nursery.start(partial(trio.serve_tcp, self._serve, 0, host="127.0.0.1"))
            self.port = listener.socket.getsockname()[1]
            task_status.started()
            await trio.sleep_forever()

    def cut(self) -> None:
        """Reset all connections."""
        for stream in list(self._streams):
            trio.lowlevel.spawn_system_task(trio.aclose_forcefully, stream)

    async def _serve(self, client: trio.abc.Stream) -> None:
        if self._tls is not None:
            client = trio.SSLStream(client, self._tls, server_side=True, https_compatible=True)
        with contextlib.suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            target = await trio.open_tcp_stream("127.0.0.1", self._target)
            self._streams |= {client, target}
            try:
                async with client, target, trio.open_nursery() as nursery:
                    nursery.start_soon(self._pump, client, target, nursery.cancel_scope)
                    nursery.start_soon(self._pump, target, client, nursery.cancel_scope)
            finally:
                self._streams -= {client, target}

    async def _pump(self, source: trio.abc.Stream, to: trio.abc.Stream, scope: trio.CancelScope) -> None:
        send, receive = trio.open_memory_channel[tuple[float, bytes]](1000)

        async def deliver() -> None:
            async for when, data in receive:
                await trio.sleep_until(when)
                if not self.black_hole:
                    await to.send_all(data)

        async with trio.open_nursery() as nursery, send:
            nursery.start_soon(self._quietly, deliver)
            await self._quietly(lambda: self._pull(source, send))
        scope.cancel()

    async def _pull(self, source: trio.abc.Stream, send: "trio.MemorySendChannel[tuple[float, bytes]]") -> None:
        while data := await source.receive_some():
            await send.send((trio.current_time() + self._delay / 2, bytes(data)))

    async def _quietly(self, work: Callable[[], Any]) -> None:
        with contextlib.suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            await work()


@asynccontextmanager
async def proxy(port: int, **options: Any) -> AsyncGenerator[Proxy]:
    async with trio.open_nursery() as nursery:
        between = Proxy(port, **options)
        await nursery.start(between.run)
        yield between
        nursery.cancel_scope.cancel()


def calls(client: "redis.Redis", command: str) -> int:
    """How often the server has executed a command."""
    found = client.info("commandstats").get(f"cmdstat_{command}")
    return 0 if found is None else int(found["calls"])


def keys_without_ttl(client: "redis.Redis") -> list[bytes]:
    """What would stay for ever."""
    return [key for key in client.scan_iter(count=1000) if client.pttl(key) == -1]


_SHIFT = """
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  if redis.call('TYPE', key).ok == 'zset' and not string.find(key, ':events:', 1, true) then
    for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZINCRBY', key, -ARGV[2], member) end
  end
end
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local left = redis.call('PTTL', key)
  if left < 0 then return redis.error_reply(key .. ' has no TTL') end
  redis.call('PEXPIRE', key, left - ARGV[2])
end
return redis.status_reply('OK')
"""


def shift(client: "redis.Redis", seconds: float) -> None:
    """Let so many seconds pass for all that is kept. The test fails if something is kept for ever."""
    client.eval(_SHIFT, 0, "*", round(seconds * 1000))
