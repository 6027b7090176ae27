"""What an open stream costs on the direct front: one task, and few objects, for there may be ten thousand."""

import gc
import json
import socket
from functools import partial

import pytest
import trio

import mcpd
from mcpd import Server

FIELDS = b"host: 127.0.0.1\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\n"
FIELDS += b"".join(b"x-field-%d: of a proxy\r\n" % number for number in range(20))
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"roots": {}, "sampling": {}},
    "clientInfo": {"name": "c", "version": "1"},
}


async def read(client: socket.socket) -> bytes:
    await trio.lowlevel.wait_readable(client)
    return client.recv(65_536)


async def session(client: socket.socket) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}).encode()
    client.sendall(b"POST /mcp HTTP/1.1\r\n%bcontent-length: %d\r\n\r\n%b" % (FIELDS, len(body), body))
    head = (await read(client)).split(b"\r\n")
    return next(line.partition(b": ")[2] for line in head if line.startswith(b"mcp-session-id: "))


async def listen(client: socket.socket, session_id: bytes) -> None:
    client.sendall(b"GET /mcp HTTP/1.1\r\n%bmcp-session-id: %b\r\n\r\n" % (FIELDS, session_id))
    assert (await read(client)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.usefixtures("no_gc")
async def test_an_open_stream_is_one_task_and_few_objects() -> None:
    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(mcpd.serve, Server("s"), front="direct", port=0, heartbeat=0.05))
        port = int(url.split(":")[2].partition("/")[0])
        idle = trio.lowlevel.current_statistics().tasks_living
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(60)]
        sessions = [await session(client) for client in clients]

        async def opened(some: slice) -> tuple[int, int]:
            for client, session_id in zip(clients[some], sessions[some], strict=True):
                await listen(client, session_id)
            return trio.lowlevel.current_statistics().tasks_living, len(gc.get_objects())

        tasks, objects = await opened(slice(10))
        more_tasks, more_objects = await opened(slice(10, 60))
        # The one of its connection: a stream has none of its own, nor a nursery or a timer.
        assert tasks == more_tasks == idle + len(clients)
        assert (more_objects - objects) / 50 < 20
        # They are alive all the same.
        for client in clients:
            assert b":" in await read(client)
        for client in clients:
            client.close()
        nursery.cancel_scope.cancel()
