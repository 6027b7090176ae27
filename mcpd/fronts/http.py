"""Serving HTTP with Hypercorn on Trio, from binding the port to a clean end.

Hypercorn waits its grace time on the signal to stop, and then cancels, without a final chunk. So mcpd hears the signal
itself: no longer ready, streams end, calls are drained, and Hypercorn is left to close what is idle.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING, Any, Final, Unpack

import trio
from hypercorn.config import Config
from hypercorn.trio import serve as hypercorn_serve  # pyright: ignore[reportUnknownVariableType]

from mcpd.core import Core
from mcpd.endpoint.endpoint import Endpoint
from mcpd.errors import SettingError
from mcpd.fronts.asgi import AsgiApp
from mcpd.settings import Options, Settings
from mcpd.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcpd.fronts.asgi import Receive, Scope, Send
    from mcpd.ports import Store
    from mcpd.server.server import Server

logger: Final = logging.getLogger("mcpd")


def new_endpoint(server: Server, store: Store | str, settings: Settings) -> Endpoint:
    """The parts of a served server, put together.

    Raises:
      SettingError: there is no such store, or a setting that can never work.
    """
    opened = open_store(store) if isinstance(store, str) else store
    return Endpoint(Core(server, opened, settings))


def asgi_app(server: Server, *, store: Store | str = "memory", **options: Unpack[Options]) -> AsgiApp:
    """*server* as an ASGI 3 application with a lifespan.

    For Hypercorn's Trio worker (``hypercorn -k trio module:app``), or mounted in a larger application on Trio that runs
    its lifespan.

    Args:
      server: what to serve.
      store: a store, or its URL.
      options: see `Settings`. *host* is not listened on here; it says whether only loopback names are answered for.

    Raises:
      SettingError: an option that can never work.
    """
    return AsgiApp(new_endpoint(server, store, Settings(**options)))


async def serve(
    server: Server,
    *,
    store: Store | str = "memory",
    stop: Callable[[], Awaitable[object]] | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    **options: Unpack[Options],
) -> None:
    """Serve *server* over HTTP until *stop* returns, then drain; or until cancelled, which stops at once.

    ``url = await nursery.start(partial(mcpd.serve, server, port=0))`` starts it in any Trio program.

    Args:
      server: what to serve.
      store: a store, or its URL.
      stop: an async function to wait for; when it returns, streams end cleanly and calls may go on for
      ``drain_timeout`` seconds.
      task_status: started with the endpoint's URL, once connections are accepted.
      options: see `Settings`.

    Raises:
      SettingError: an option that can never work, or a port that cannot be had.
      StoreError: the store cannot be used.
    """
    settings = Settings(**options)
    endpoint = new_endpoint(server, store, settings)
    with bind(settings.host, settings.port) as sock:
        host, port = sock.getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}{settings.path}"
        async with endpoint.running(), trio.open_nursery() as nursery:
            stopping = trio.Event()

            async def drain_on_stop(stop: Callable[[], Awaitable[object]]) -> None:
                await stop()
                # Hypercorn closes its listeners and idle connections on this event, and waits for the others.
                stopping.set()
                await endpoint.drain()

            if stop is not None:
                nursery.start_soon(drain_on_stop, stop)
            # Hypercorn closes the socket it is given, as we do ours.
            config = _config(settings, os.dup(sock.fileno()))
            hypercorn = trio.Event()

            async def run(*, task_status: trio.TaskStatus[list[str]]) -> None:
                await hypercorn_serve(
                    _application(AsgiApp(endpoint)), config, shutdown_trigger=stopping.wait, task_status=task_status
                )
                hypercorn.set()

            await nursery.start(run)
            task_status.started(url)
            await hypercorn.wait()
            nursery.cancel_scope.cancel()


def bind(host: str, port: int) -> socket.socket:
    """A bound TCP socket.

    Raises:
      SettingError: the name is unknown, or the port is taken or not allowed.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, proto)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
        except BaseException:
            sock.close()
            raise
    except OSError as exc:
        raise SettingError(f"Cannot listen on {host}:{port}: {exc.strerror or exc}") from exc
    return sock


def _config(settings: Settings, descriptor: int) -> Config:
    config = Config()
    config.bind = [f"fd://{descriptor}"]
    config.accesslog = None
    config.errorlog = logging.getLogger("mcpd.hypercorn")
    config.include_server_header = False
    config.keep_alive_timeout = settings.keep_alive
    config.h11_max_incomplete_size = 64 * 1024
    # Our own drain ends first; Hypercorn's, which cancels, is the last resort.
    config.graceful_timeout = settings.drain_timeout + 2.0
    return config


def _application(app: AsgiApp) -> Any:
    # Any: Hypercorn's type for an application is a private union of TypedDicts.
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await app(scope, receive, send)
            return
        # The endpoint runs around all of Hypercorn already, so that it can drain before Hypercorn stops.
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    return application
