"""Newline-delimited JSON-RPC on standard input and output (basic/transports, "stdio")."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Final, Protocol, Unpack

import trio

from mcpd.core import Core
from mcpd.errors import PARSE_ERROR, ProtocolError
from mcpd.fronts.connection import Connection
from mcpd.protocol.jsonrpc import encode_error
from mcpd.settings import Options, Settings
from mcpd.stores import open_store

if TYPE_CHECKING:
    from mcpd.ports import Store
    from mcpd.server.server import Server

logger: Final = logging.getLogger("mcpd.stdio")
MAX_LINE: Final = 4 * 1024 * 1024
DRAIN: Final = 5.0
"""Seconds that calls in flight may go on when the input has ended."""


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
    max_line: int = MAX_LINE,
    **options: Unpack[Options],
) -> None:
    """Serve *server* on standard input and output until the input ends.

    Nothing but messages goes to standard output: while it is served, what the program prints goes to standard error.

    Args:
      server: what to serve.
      receiver: where messages come from, instead of standard input.
      sender: where they go, instead of standard output.
      store: a store for tasks and handles, or its URL.
      max_line: how long a message may be, in bytes; a longer one is answered with an error and skipped.
      options: see `Settings`; those of HTTP have no meaning here.
    """
    if receiver is None:
        receiver = trio.lowlevel.FdStream(os.dup(0))
    if sender is None:
        # From here on, file descriptor 1 is standard error: a stray print cannot corrupt the protocol.
        sender = trio.lowlevel.FdStream(os.dup(1))
        sys.stdout.flush()
        os.dup2(2, 1)
    out = sender
    lock = trio.Lock()

    async def send(message: bytes) -> None:
        async with lock:
            # A message that is begun is finished, or the next one would be unreadable.
            with trio.CancelScope(shield=True):
                try:
                    await out.send_all(message + b"\n")
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    logger.debug("Nobody reads standard output any more")

    core = Core(server, open_store(store) if isinstance(store, str) else store, Settings(**options))
    connection = Connection(core, send)
    async with core.running(), connection.running():
        await _read_lines(receiver, connection, max_line)
        await connection.stop_listening()
        with trio.move_on_after(DRAIN):
            await connection.finish()


async def _read_lines(receiver: ByteReceiver, connection: Connection, max_line: int) -> None:
    buffer = bytearray()
    skipping = False
    while True:
        try:
            data = await receiver.receive_some(65_536)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        if not data:
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
    await connection.send(encode_error(None, ProtocolError(PARSE_ERROR, f"A message is longer than {max_line} bytes")))
