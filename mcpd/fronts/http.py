"""Serving HTTP on Trio, with the direct front or with Hypercorn, from binding the port to a clean end.

Hypercorn waits its grace time on the signal to stop, and then cancels, without a final chunk. So mcpd hears the signal
itself: no longer ready, streams end, calls are drained, and the front is left to close what is idle.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Final, Unpack

import trio
from hypercorn.config import Config
from hypercorn.trio import serve as hypercorn_serve  # pyright: ignore[reportUnknownVariableType]

from mcpd.core import Core
from mcpd.debug import Debug
from mcpd.endpoint.endpoint import Endpoint
from mcpd.endpoint.operations import Operations
from mcpd.fronts.asgi import AsgiApp
from mcpd.fronts.direct.listener import DirectFront
from mcpd.fronts.legacy_sse import handler_of
from mcpd.fronts.sockets import bind, bound, tls_context, url
from mcpd.metrics import Metrics
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
    tls = tls_context(settings)
    with bound(settings) as sock:
        async with endpoint.running(), trio.open_nursery() as nursery:
            stopping = trio.Event()
            await nursery.start(_operations, endpoint)

            async def drain_on_stop(stop: Callable[[], Awaitable[object]]) -> None:
                await stop()
                # The front closes its listeners and idle connections on this event, and waits for the others.
                stopping.set()
                await endpoint.drain()

            if stop is not None:
                nursery.start_soon(drain_on_stop, stop)
            finished = trio.Event()

            async def run(*, task_status: trio.TaskStatus[Any]) -> None:
                if settings.front == "direct":
                    # Our own drain ends first; the front's, which cancels, is the last resort.
                    grace = settings.drain_timeout + 2.0
                    await DirectFront(handler_of(endpoint)).serve(
                        sock, stop=stopping.wait, grace=grace, tls=tls, task_status=task_status
                    )
                else:
                    # Hypercorn closes the socket it is given, as we do ours.
                    config = _config(settings, os.dup(sock.fileno()))
                    await hypercorn_serve(
                        _application(AsgiApp(endpoint)), config, shutdown_trigger=stopping.wait, task_status=task_status
                    )
                finished.set()

            await nursery.start(run)
            task_status.started(url(sock, settings))
            await finished.wait()
            nursery.cancel_scope.cancel()


async def _operations(endpoint: Endpoint, *, task_status: trio.TaskStatus[None]) -> None:
    """Offer metrics and debug pages where the settings want them."""
    settings = endpoint.settings
    pages: dict[str, Callable[[], Awaitable[tuple[bytes, bytes]]]] = {}
    async with trio.open_nursery() as nursery:
        if settings.metrics:
            metrics = Metrics(endpoint)
            await nursery.start(metrics.run)
            pages["/metrics"] = metrics.page
        if not settings.metrics_port:
            endpoint.operations = Operations(endpoint, pages)
            task_status.started()
            return
        if settings.debug_endpoints:
            debug = Debug(endpoint)
            pages |= {"/debug/heap": debug.heap, "/debug/tasks": debug.tasks, "/debug/sessions": debug.sessions}
        # Who looks inside a server should be on its machine, unless the operator says otherwise.
        host = settings.metrics_host or ("127.0.0.1" if settings.debug_endpoints else settings.host)
        with bind(host, settings.metrics_port) as sock:
            front = DirectFront(Operations(endpoint, pages))
            await front.serve(sock, stop=trio.sleep_forever, grace=1.0, task_status=task_status)


def _config(settings: Settings, descriptor: int) -> Config:
    config = Config()
    config.bind = [f"fd://{descriptor}"]
    config.accesslog = None
    config.errorlog = logging.getLogger("mcpd.hypercorn")
    config.include_server_header = False
    config.certfile = settings.tls_certfile or None
    config.keyfile = settings.tls_keyfile or settings.tls_certfile or None
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
