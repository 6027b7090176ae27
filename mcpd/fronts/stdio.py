"""Newline-delimited JSON-RPC on standard input and output (basic/transports, "stdio")."""

from __future__ import annotations

import logging
import math
import os
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, Protocol, Unpack

import trio

from mcpd.core import Core
from mcpd.errors import PARSE_ERROR, ProtocolError
from mcpd.fronts.connection import Connection
from mcpd.protocol.jsonrpc import encode_error
from mcpd.settings import Options, Settings
from mcpd.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcpd.ports import Store
    from mcpd.server.server import Server

logger: Final = logging.getLogger("mcpd.stdio")
LINGER: Final = 1.0
"""Seconds that the client may take to read what is being written when all is over."""


class ByteReceiver(Protocol):
    """What bytes come from."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Some bytes; none at the end."""
        ...


class ByteSender(Protocol):
    """Where bytes go."""

    async def send_all(self, data: bytes) -> None:
        """Send all of *data*."""
        ...


async def serve_stdio(
    server: Server,
    *,
    receiver: ByteReceiver | None = None,
    sender: ByteSender | None = None,
    store: Store | str = "memory",
    stop: Callable[[], Awaitable[object]] | None = None,
    **options: Unpack[Options],
) -> None:
    """Serve *server* on standard input and output until the input ends.

    Nothing but messages goes to standard output: while it is served, what the program prints goes to standard error.

    Args:
      server: what to serve.
      receiver: where messages come from, instead of standard input.
      sender: where they go, instead of standard output.
      store: a store for tasks and handles, or its URL.
      stop: an async function to wait for; when it returns, the calls in flight are cancelled, and all ends cleanly.
      options: see `Settings`. A message that is longer than ``max_body`` is answered with an error and skipped; when
        the input has ended, calls may go on for ``drain_timeout``. The others of HTTP have no meaning here.
    """
    settings = Settings(**options)
    core = Core(server, open_store(store) if isinstance(store, str) else store, settings)
    async with AsyncExitStack() as stack:
        if receiver is None:
            receiver = await stack.enter_async_context(trio.lowlevel.FdStream(os.dup(0)))
        if sender is None:
            sender = stdout = await stack.enter_async_context(take_stdout())
            stack.callback(_give_back, stdout)
        output = _Output(sender)
        connection = Connection(core, output.send)
        async with core.running(), connection.running():
            try:
                async with trio.open_nursery() as nursery:
                    if stop is not None:
                        nursery.start_soon(_end_after, stop, nursery.cancel_scope)
                    await _read_lines(receiver, connection, settings.max_body)
                    with trio.move_on_after(settings.drain_timeout):
                        await connection.finish()
                    nursery.cancel_scope.cancel()
            finally:
                output.hurry()
            await connection.stop_listening()


async def _end_after(stop: Callable[[], Awaitable[object]], scope: trio.CancelScope) -> None:
    await stop()
    scope.cancel()


def take_stdout() -> trio.lowlevel.FdStream:
    """Standard output, for messages alone: from here on what the program prints goes to standard error."""
    sys.stdout.flush()
    out = trio.lowlevel.FdStream(os.dup(1))
    os.dup2(2, 1)
    return out


def _give_back(stdout: trio.lowlevel.FdStream) -> None:
    sys.stdout.flush()
    os.dup2(stdout.fileno(), 1)


class _Output:
    """Writes whole messages, one after the other, whichever task sends them."""

    def __init__(self, sender: ByteSender) -> None:
        self._sender = sender
        self._lock = trio.Lock()
        self._until = math.inf
        self._writing: trio.CancelScope | None = None
        self._broken = False

    async def send(self, message: bytes) -> None:
        async with self._lock:
            if self._broken:
                return
            # A message that is begun is finished, or the next one would be unreadable.
            with trio.CancelScope(shield=True, deadline=self._until) as self._writing:
                try:
                    await self._sender.send_all(message + b"\n")
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    logger.debug("Nobody reads standard output any more")
                    self._broken = True
            self._broken = self._broken or self._writing.cancelled_caught
            self._writing = None

    def hurry(self) -> None:
        """All is over: a client that does not read is not waited for much longer."""
        self._until = trio.current_time() + LINGER
        if self._writing is not None:
            self._writing.deadline = self._until


async def _read_lines(receiver: ByteReceiver, connection: Connection, max_line: int) -> None:
    buffer = bytearray()
    skipping = False
    while True:
        try:
            data = await receiver.receive_some(65_536)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        if not data:
            if buffer.strip():
                await connection.receive(bytes(buffer))  # a last line that has no end
            return
        *lines, rest = bytes(data).split(b"\n")
        for line in lines:
            buffer += line
            if not skipping and len(buffer) <= max_line:
                if buffer.strip():
                    await connection.receive(bytes(buffer))
            elif not skipping:
                await _too_long(connection, max_line)
            buffer.clear()
            skipping = False
        if not skipping:
            buffer += rest
            if len(buffer) > max_line:
                await _too_long(connection, max_line)
                buffer.clear()
                skipping = True


async def _too_long(connection: Connection, max_line: int) -> None:
    message = f"The message is longer than {max_line} bytes; raise --max-body (MCPD_MAX_BODY) if that is too small"
    await connection.send(encode_error(None, ProtocolError(PARSE_ERROR, message)))
