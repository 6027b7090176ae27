"""The two ends of a connection: in memory, for a front in the test's own process, or a real socket to another."""

from __future__ import annotations

import os
import socket
import struct
from typing import Any, Final, Protocol, Self

import trio
from trio.testing import memory_stream_pair

WINDOW: Final = 256 * 1024
"""Bytes that wait for a client that does not read before the server's writes block, as the kernel's buffers do."""


class ClientEnd(Protocol):
    """What a `tests.harness.connection.Connection` needs."""

    async def send_all(self, data: bytes) -> None: ...

    async def receive_some(self, max_bytes: int) -> bytes | bytearray: ...

    async def send_eof(self) -> None: ...

    def leave(self, *, reset: bool) -> None:
        """Close at once, in good order or with a reset."""
        ...

    def server_has_closed(self) -> bool:
        """Whether a request would find nobody; nothing is waited for."""
        ...


class _Addresses:
    """What Hypercorn asks a stream's socket."""

    family = socket.AF_INET

    def getpeername(self) -> tuple[str, int]:
        return ("127.0.0.1", 50_000)

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", 8000)


class ServerEnd(trio.abc.HalfCloseableStream):
    """The server's end of a connection in memory. Like a socket's, its writes block when nobody reads."""

    def __init__(self, inner: trio.StapledStream[Any, Any], window: int) -> None:
        self.socket = _Addresses()
        self._inner = inner
        self._window = window
        self._unread = 0
        self._changed = trio.Event()
        self._sending = False
        self._reset = False
        self.closed = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._sending:
            raise trio.BusyResourceError("another task is sending")
        self._sending = True
        try:
            rest = memoryview(data)
            await trio.lowlevel.checkpoint()
            while rest:
                while self._unread >= self._window:
                    await self._changed.wait()
                piece = rest[: self._window - self._unread]
                await self._inner.send_all(bytes(piece))
                self._unread += len(piece)
                rest = rest[len(piece) :]
        finally:
            self._sending = False

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data: bytes | bytearray = await self._inner.receive_some(max_bytes)
        if self._reset:
            raise trio.BrokenResourceError("connection reset by peer")
        return data

    async def send_eof(self) -> None:
        await self._inner.send_eof()

    async def aclose(self) -> None:
        self.closed = True
        self._wake()
        await self._inner.aclose()

    # What the other end does

    def read(self, size: int) -> None:
        """The client has read so many bytes."""
        self._unread -= size
        self._wake(0)

    def left(self, *, reset: bool) -> None:
        """The client is gone."""
        self._reset = reset
        self._wake()

    def _wake(self, unread: int | None = None) -> None:
        # At the end writers must come on, to find what became of the connection.
        if unread is None:
            self._unread = -(1 << 60)
        self._changed.set()
        self._changed = trio.Event()


class MemoryEnd:
    """The client's end of a connection in memory."""

    def __init__(self, inner: trio.StapledStream[Any, Any], server: ServerEnd) -> None:
        self._inner = inner
        self._server = server

    async def send_all(self, data: bytes) -> None:
        await self._inner.send_all(data)

    async def receive_some(self, max_bytes: int) -> bytes | bytearray:
        data: bytes | bytearray = await self._inner.receive_some(max_bytes)
        self._server.read(len(data))
        return data

    async def send_eof(self) -> None:
        await self._inner.send_eof()

    def leave(self, *, reset: bool) -> None:
        self._server.left(reset=reset)
        self._inner.receive_stream.close()
        self._inner.send_stream.close()

    def server_has_closed(self) -> bool:
        return self._server.closed


def pair(window: int) -> tuple[MemoryEnd, ServerEnd]:
    """Both ends of a new connection in memory."""
    ours, theirs = memory_stream_pair()
    server = ServerEnd(theirs, window)
    return MemoryEnd(ours, server), server


class SocketEnd:
    """The client's end of a TCP connection."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))

    @classmethod
    def connect(cls, address: tuple[str, int]) -> Self:
        """A new connection to somebody on this machine, whose kernel accepts it at once."""
        return cls(socket.create_connection(address, timeout=30.0))

    async def send_all(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def receive_some(self, max_bytes: int) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    def leave(self, *, reset: bool) -> None:
        if reset:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if trio.lowlevel.in_trio_run():
            trio.lowlevel.notify_closing(self._socket)
        self._socket.close()

    def server_has_closed(self) -> bool:
        with socket.socket(fileno=os.dup(self._socket.fileno())) as same:
            try:
                return same.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
            except BlockingIOError:
                return False
            except ConnectionError:
                return True
