"""A balancer: each request goes to the next replica, whichever session or connection it belongs to.

It answers nothing by itself but 502, retries nothing that a replica has begun to read, and passes bytes on as they
come. After each response the connection is closed, so that a client's next request is balanced again.
"""

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial

import trio

from tests.harness import Client, Connection, Process
from tests.harness.ends import WINDOW, SocketEnd

_GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
_NOBODY = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Balancer(Client):
    """Strict round robin over `targets`, which may change at any time. It is a client of what it balances as well."""

    def __init__(self, targets: Iterable[tuple[str, int]]) -> None:
        super().__init__()
        self.targets = list(targets)
        self.served: dict[tuple[str, int], int] = {}
        """How many requests each replica was given."""
        self._turn = 0
        self._address = ("", 0)

    @property
    def url(self) -> str:
        return f"http://{self._address[0]}:{self._address[1]}/mcp"

    def connect(self, *, window: int = WINDOW) -> Connection:
        return Connection(SocketEnd.connect(self._address))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            (listener,) = await nursery.start(partial(trio.serve_tcp, self._serve, 0, host="127.0.0.1"))
            self._address = listener.socket.getsockname()
            task_status.started()

    async def _serve(self, client: trio.SocketStream) -> None:
        with suppress(*_GONE):
            async with client:
                request = await _with_close(client)
                if request is None:
                    return
                replica = await self._next()
                if replica is None:
                    await client.send_all(_NOBODY)
                    return
                async with replica, trio.open_nursery() as nursery:
                    await replica.send_all(request)
                    nursery.start_soon(_pass_on, client, replica, nursery.cancel_scope)
                    await _pass_on(replica, client, nursery.cancel_scope)

    async def _next(self) -> trio.SocketStream | None:
        for _ in range(len(self.targets)):
            self._turn += 1
            host, port = target = self.targets[self._turn % len(self.targets)]
            with suppress(OSError):
                replica = await trio.open_tcp_stream(host, port)
                self.served[target] = self.served.get(target, 0) + 1
                return replica
        return None


async def _with_close(client: trio.SocketStream) -> bytes | None:
    """The head of a request, and what has come of its body; its connection will be closed after the response."""
    received = bytearray()
    while b"\r\n\r\n" not in received:
        data = await client.receive_some()
        if not data:
            return None
        received += data
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    return b"\r\n".join([*lines, b"Connection: close", b"", body])


async def _pass_on(source: trio.SocketStream, to: trio.SocketStream, scope: trio.CancelScope) -> None:
    """Until one end is gone: then both connections are closed."""
    with suppress(*_GONE):
        async for data in source:
            await to.send_all(data)
    scope.cancel()


@asynccontextmanager
async def balanced(*replicas: Process) -> AsyncGenerator[Balancer]:
    """A balancer in front of these replicas."""
    balancer = Balancer(replica.address for replica in replicas)
    async with trio.open_nursery() as nursery:
        await nursery.start(balancer.run)
        yield balancer
        nursery.cancel_scope.cancel()
