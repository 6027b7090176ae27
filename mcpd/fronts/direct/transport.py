"""Bytes from and to one client.

A plain socket is read and written without Trio's streams around it: it waits only where the kernel says it must, which
halves the cost of a small exchange. What `send_nowait` takes at once needs no checkpoint; `receive` always is one.
TLS, and whatever else Trio has a stream for, goes through `StreamTransport`.
"""

from __future__ import annotations

import socket
import struct
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

READ_SIZE: Final = 64 * 1024
"""Bytes taken from the kernel at once, and at most read ahead of the parser."""
_MOST_WAITS: Final = 15
"""How often at most one waits for a client's bytes without a look between two looks that are in vain."""
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class LostError(Exception):
    """The client is gone: the connection is reset, or closed by us."""


class Transport(Protocol):
    """One connection. Each direction is used by one task at a time."""

    async def receive(self) -> bytes:
        """Some bytes; b"" when the client will send no more.

        Raises:
          LostError: the connection is broken.
        """
        ...

    def send_nowait(self, data: bytes) -> int:
        """Send what can be sent without waiting, and say how many bytes that was.

        Raises:
          LostError: the connection is broken.
        """
        ...

    async def send(self, data: bytes | memoryview) -> None:
        """Send it all. Cancelled within, it may have sent a part: then only `abort` is left.

        Raises:
          LostError: the connection is broken.
        """
        ...

    async def send_eof(self) -> None:
        """Say that nothing more will be sent, if the transport can say it."""
        ...

    async def close(self) -> None:
        """Close in good order."""
        ...

    async def abort(self) -> None:
        """Close at once; what was sent and not yet received may be lost. Closing twice does nothing."""
        ...


class SocketTransport:
    """A stream socket."""

    __slots__ = ("_in_vain", "_socket", "_waits")

    def __init__(self, sock: socket.socket) -> None:
        """Args: *sock*: connected and non-blocking; the transport closes it."""
        self._socket = sock
        self._waits = 0
        """How many times still it does not look before it waits."""
        self._in_vain = 0
        """How many times it was to be after the last look, which was in vain."""

    async def receive(self) -> bytes:
        """Some bytes."""
        sock = self._socket
        try:
            if not self._waits:
                # From a busy client the next request is there once all others have had their turn. To look for it then
                # costs half of what it costs to be told of it; with a client that thinks that is seldom tried.
                await trio.lowlevel.checkpoint()
                try:
                    data = sock.recv(READ_SIZE)
                except BlockingIOError:
                    self._waits = self._in_vain = min(2 * self._in_vain + 1, _MOST_WAITS)
                else:
                    self._in_vain = 0
                    return data
            elif sock.fileno() < 0:
                raise LostError  # Trio would take -1 for a descriptor, and keep whoever waits for it
            else:
                self._waits -= 1
            while True:
                await trio.lowlevel.wait_readable(sock)
                try:
                    return sock.recv(READ_SIZE)
                except BlockingIOError:
                    continue
        except (OSError, ValueError, trio.ClosedResourceError) as exc:
            raise LostError from exc

    def send_nowait(self, data: bytes) -> int:
        """Send what the kernel takes."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as exc:
            raise LostError from exc

    async def send(self, data: bytes | memoryview) -> None:
        """Send it all."""
        sock, rest = self._socket, memoryview(data)
        try:
            while rest:
                await trio.lowlevel.wait_writable(sock)
                try:
                    rest = rest[sock.send(rest) :]
                except BlockingIOError:
                    continue
        except (OSError, ValueError, trio.ClosedResourceError) as exc:
            raise LostError from exc

    async def send_eof(self) -> None:
        """Send a FIN."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as exc:
            raise LostError from exc

    async def close(self) -> None:
        """Close; the kernel delivers what it has."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    async def abort(self) -> None:
        """Reset the connection: the kernel drops what a client that does not read leaves in its buffers."""
        if self._socket.fileno() >= 0:
            with suppress(OSError):  # it is reset already
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            await self.close()


class StreamTransport:
    """A stream of Trio, such as TLS."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        """Args: *stream*: the transport closes it."""
        self._stream = stream

    async def receive(self) -> bytes:
        """Some bytes."""
        with _broken_is_lost():
            return bytes(await self._stream.receive_some(READ_SIZE))

    def send_nowait(self, data: bytes) -> int:
        """Trio's streams cannot say."""
        return 0

    async def send(self, data: bytes | memoryview) -> None:
        """Send it all."""
        with _broken_is_lost():
            await self._stream.send_all(data)

    async def send_eof(self) -> None:
        """Send the end, where that can be done without closing."""
        if isinstance(self._stream, trio.abc.HalfCloseableStream):
            with _broken_is_lost():
                await self._stream.send_eof()

    async def close(self) -> None:
        """Close; TLS says so to the client."""
        with _broken_is_lost():
            await self._stream.aclose()

    async def abort(self) -> None:
        """Close without a word."""
        await trio.aclose_forcefully(self._stream)


class WatchedTransport(StreamTransport):
    """A stream that no `Watcher` can watch: a task of its own reads ahead, and so notices the client's end.

    It reads `READ_SIZE` bytes ahead, so an end behind more than that is noticed later.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        """Args: *stream*: the transport closes it."""
        super().__init__(stream)
        self._ahead = bytearray()
        self._changed = trio.Event()
        self._ended = False
        self._broken = False

    async def watch(self, lost: Callable[[bool], object]) -> None:
        """Read ahead until the client's end; then call *lost*, with whether the connection is broken."""
        try:
            while True:
                while len(self._ahead) >= READ_SIZE:
                    await self._changed.wait()
                data = await super().receive()
                if not data:
                    break
                self._ahead += data
                self._notify()
        except LostError:
            self._broken = True
        self._ended = True
        self._notify()
        lost(self._broken)

    async def receive(self) -> bytes:
        """What was read ahead."""
        await trio.lowlevel.checkpoint()
        while not self._ahead:
            if self._broken:
                raise LostError
            if self._ended:
                return b""
            await self._changed.wait()
        data = bytes(self._ahead)
        self._ahead.clear()
        self._notify()
        return data

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


@contextmanager
def _broken_is_lost() -> Generator[None]:
    try:
        yield
    except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
        raise LostError from exc
