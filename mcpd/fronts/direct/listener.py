"""The front itself: it accepts connections within a cap, serves them, and stops in good order."""

from __future__ import annotations

import logging
import socket
import ssl
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

import trio

from mcpd.fronts.direct import response, watcher
from mcpd.fronts.direct.connection import FAREWELL, Connection, Service
from mcpd.fronts.direct.deadlines import enforce
from mcpd.fronts.direct.transport import SocketTransport, StreamTransport, WatchedTransport
from mcpd.fronts.direct.watcher import Watcher
from mcpd.fronts.sockets import give_up_after

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcpd.endpoint.exchange import Handler
    from mcpd.fronts.direct.transport import Transport

logger: Final = logging.getLogger("mcpd.http")

BACKLOG: Final = 4096
"""Connections that may wait to be accepted; the kernel has a limit of its own."""
_AT_ONCE: Final = 64
"""Connections accepted in one go, before others have their turn."""
_PAUSE: Final = 0.1
"""Seconds without accepting after the process has run out of descriptors."""


class DirectFront:
    """Serves an endpoint over HTTP/1.1."""

    def __init__(self, endpoint: Handler, *, tls: ssl.SSLContext | None = None) -> None:
        """Args: *endpoint*: to serve; it runs already, and its settings have the limits; *tls*: makes it HTTPS."""
        self._tls = tls
        self._service = Service(endpoint)
        self._settings = settings = endpoint.settings
        limits = (settings.header_timeout, settings.body_timeout, settings.keep_alive, settings.write_timeout)
        self._tick = min(1.0, min(limits) / 4)

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return len(self._service.connections)

    async def serve(
        self,
        listener: socket.socket,
        *,
        stop: Callable[[], Awaitable[object]],
        grace: float,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until *stop* returns and the connections have ended; cancelled, it closes them all at once.

        Args:
          listener: a bound stream socket; it is closed here.
          stop: an async function; when it returns, no connection is accepted any more, idle ones are closed, and others
            end with their response.
          grace: seconds that they have for it.
          task_status: started when connections are accepted.
        """
        with ExitStack() as stack:
            stack.enter_context(listener)
            watching = Watcher() if watcher.AVAILABLE else None
            if watching is not None:
                stack.callback(watching.close)
            self._service.now = trio.lowlevel.current_clock().current_time
            listener.setblocking(False)  # noqa: FBT003 - its only name is its position
            listener.listen(BACKLOG)
            async with trio.open_nursery() as helpers:
                helpers.start_soon(lambda: enforce(self._service.connections, every=self._tick))
                if watching is not None:
                    helpers.start_soon(watching.run)
                async with trio.open_nursery() as nursery:
                    async with trio.open_nursery() as accepting:
                        accepting.start_soon(self._accept, listener, self._tls, watching, nursery)
                        task_status.started()
                        await stop()
                        accepting.cancel_scope.cancel()
                        trio.lowlevel.notify_closing(listener)
                        listener.close()
                    await self.stop()
                    nursery.cancel_scope.deadline = trio.current_time() + grace
                helpers.cancel_scope.cancel()

    async def handle(self, stream: trio.abc.Stream) -> None:
        """Serve one connection over any stream, until it ends."""
        transport = WatchedTransport(stream)
        connection = Connection(self._service, transport)
        async with trio.open_nursery() as helpers:
            helpers.start_soon(transport.watch, connection.lost)
            helpers.start_soon(lambda: enforce({connection}, every=self._tick))
            await connection.run()
            helpers.cancel_scope.cancel()

    async def stop(self) -> None:
        """Close what is idle; every other connection ends with its response. It waits for none of them.

        A request that is not even there yet has a moment left to come.
        """
        self._service.draining = True
        soon = trio.current_time() + FAREWELL
        for connection in list(self._service.connections):
            if connection.idle:
                connection.expire()
            elif not connection.busy:
                connection.deadline = min(connection.deadline, soon)
        await trio.lowlevel.checkpoint()

    # ----- Accepting

    async def _accept(
        self, listener: socket.socket, tls: ssl.SSLContext | None, watching: Watcher | None, nursery: trio.Nursery
    ) -> None:
        complained = False
        while True:
            await trio.lowlevel.wait_readable(listener)
            for _ in range(_AT_ONCE):
                try:
                    client, address = listener.accept()
                except (BlockingIOError, ConnectionError):
                    # A client may be gone before it is accepted.
                    break
                except OSError as exc:
                    if not complained:
                        complained = True
                        logger.error("Connections cannot be accepted: %s", exc)  # noqa: TRY400 - no fault of the code
                    await trio.sleep(_PAUSE)
                    break
                complained = False
                client.setblocking(False)  # noqa: FBT003
                if len(self._service.connections) >= self._settings.max_connections:
                    _turn_away(client, plain=tls is None)
                    continue
                peer = None if client.family == socket.AF_UNIX else str(address[0])
                connection = Connection(self._service, self._transport(client, tls, watching), peer)
                nursery.start_soon(self._run, connection, client.fileno(), watching)

    def _transport(self, client: socket.socket, tls: ssl.SSLContext | None, watching: Watcher | None) -> Transport:
        if client.family != socket.AF_UNIX:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            give_up_after(client, self._settings.write_timeout)
        if tls is None and watching is not None:
            return SocketTransport(client)
        stream: trio.abc.Stream = trio.SocketStream(trio.socket.from_stdlib_socket(client))
        if tls is not None:
            # Not https_compatible, which would mean to end without a word. Who ends so himself counts as lost.
            stream = trio.SSLStream(stream, tls, server_side=True)
        return StreamTransport(stream) if watching is not None else WatchedTransport(stream)

    async def _run(self, connection: Connection, descriptor: int, watching: Watcher | None) -> None:
        if watching is not None:
            watching.add(descriptor, connection.lost)
            try:
                await connection.run()
            finally:
                watching.discard(descriptor, connection.lost)
            return
        transport = connection.transport
        assert isinstance(transport, WatchedTransport)  # noqa: S101 - see _transport
        async with trio.open_nursery() as helpers:
            helpers.start_soon(transport.watch, connection.lost)
            await connection.run()
            helpers.cancel_scope.cancel()


def _turn_away(client: socket.socket, *, plain: bool) -> None:
    """Tell a client that there is no room, as far as that goes without waiting for it."""
    with client:
        if plain:
            with suppress(OSError):
                client.send(response.refusal(503, "There are too many connections", [(b"retry-after", b"5")]))
