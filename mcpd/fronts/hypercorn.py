"""Hypercorn as a front: HTTP/1.1 and HTTP/2, on a socket that is bound already.

Hypercorn's own way to serve waits for connections whose clients are gone until their keep-alive time is over, and stops
in an order that cuts streams. So its parts are put together here: its connections, under our nursery.
"""

from __future__ import annotations

import logging
import socket
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from mcpd.endpoint.exchange import MAX_HEAD
from mcpd.fronts.sockets import give_up_after

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcpd.fronts.asgi import AsgiApp
    from mcpd.settings import Settings

logger: Final = logging.getLogger("mcpd.http")


class HypercornFront:
    """Serves an ASGI application that needs no lifespan of Hypercorn's."""

    def __init__(self, app: AsgiApp, settings: Settings) -> None:
        """Args: *app*: to serve; *settings*: the limits."""
        config = Config()
        config.accesslog = None
        config.errorlog = logging.getLogger("mcpd.hypercorn")
        config.include_server_header = False
        config.keep_alive_timeout = settings.keep_alive
        config.h11_max_incomplete_size = MAX_HEAD
        config.certfile = settings.tls_certfile or None
        config.keyfile = settings.tls_keyfile or settings.tls_certfile or None
        self._config = config
        self._context = WorkerContext(None)
        self._write_timeout = settings.write_timeout
        # Any: Hypercorn's type for an application is a private union of TypedDicts.
        self._app: Any = ASGIWrapper(app)  # type: ignore[arg-type]

    async def handle(self, stream: Any) -> None:
        """Serve one connection until it ends."""
        connection = _Connection(self._app, self._config, self._context, ConnectionState({}), stream)
        connection.write_timeout = self._write_timeout
        await connection

    async def stop(self) -> None:
        """Close what is idle, and each other connection after its response."""
        await self._context.terminated.set()

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
          stop: an async function; when it returns, no connection is accepted any more and idle ones are closed.
          grace: seconds that the others have to end.
          task_status: started when connections are accepted.
        """
        listener.setblocking(False)  # noqa: FBT003 - its only name is its position
        if listener.family != socket.AF_UNIX:
            give_up_after(listener, self._write_timeout)
        listener.listen(self._config.backlog)
        accepting: trio.abc.Listener[Any] = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
        tls: ssl.SSLContext | None = self._config.create_ssl_context()
        if tls is not None:
            accepting = trio.SSLListener(accepting, tls, https_compatible=True)
        async with accepting, trio.open_nursery() as connections:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(trio.serve_listeners, self.handle, [accepting], handler_nursery=connections))
                task_status.started()
                await stop()
                nursery.cancel_scope.cancel()
            await self.stop()
            connections.cancel_scope.deadline = trio.current_time() + grace


class _Connection(TCPServer):
    """A connection that ends when its client has, or does not read."""

    write_timeout: float
    _reading: trio.CancelScope
    _read = False
    """Nobody reads any more: what the client sent last is being answered, and nothing can follow."""

    async def protocol_send(self, event: Event) -> None:
        if not isinstance(event, RawData):
            # Waiting for a next request would only hold the socket.
            if not (self._read and isinstance(event, Updated)):
                await super().protocol_send(event)
            return
        # Hypercorn's own way has no limit, and nothing else can stop it: it is shielded from cancellation, so that no
        # response is cut.
        async with self.send_lock:
            try:
                with trio.fail_after(self.write_timeout, shield=True):
                    await self.stream.send_all(event.data)
            except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
                await self._lost()  # or just being closed: to say the end is to send as well
            except trio.TooSlowError:
                logger.warning("A client has read nothing for %g s: its connection is closed", self.write_timeout)
                await trio.aclose_forcefully(self.stream)
                await self._lost()

    async def _lost(self) -> None:
        await self.protocol.handle(Closed())
        # With another request behind the one that is answered nobody reads, and so nobody would see the end.
        self._reading.cancel()

    async def _read_data(self) -> None:
        with trio.CancelScope() as self._reading:
            await super()._read_data()
        self._read = True
        # Or its idle task would hold the socket, in CLOSE_WAIT, until the keep-alive time is over.
        await self.idle_task.stop()
