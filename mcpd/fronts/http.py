"""Serving HTTP on Trio, with the direct front or with Hypercorn, from binding the port to a clean end.

The signal to stop is mcpd's own affair: no longer ready, streams end, calls are drained, and the front is left to close
what is idle.
"""

from __future__ import annotations

import logging
import os
import socket
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Unpack

import trio

from mcpd.auth.setup import new_authorization
from mcpd.core import Core
from mcpd.debug import Debug
from mcpd.endpoint.endpoint import Endpoint
from mcpd.endpoint.operations import Operations
from mcpd.fronts.asgi import AsgiApp
from mcpd.fronts.direct.listener import DirectFront
from mcpd.fronts.hypercorn import HypercornFront
from mcpd.fronts.legacy_sse import handler_of
from mcpd.fronts.siblings import merged
from mcpd.fronts.sockets import METRICS_LISTENER, bind, bind_path, bound, inherited, tls_context, url, with_port
from mcpd.fronts.workers import FOLDER
from mcpd.metrics import Metrics
from mcpd.protocol.headers import is_loopback
from mcpd.settings import Options, Settings
from mcpd.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcpd.auth.verifier import TokenVerifier
    from mcpd.ports import Store
    from mcpd.server.server import Server

logger: Final = logging.getLogger("mcpd")


def new_endpoint(
    server: Server, store: Store | str, settings: Settings, verifier: TokenVerifier | None = None
) -> Endpoint:
    """The parts of a served server, put together.

    Raises:
      SettingError: there is no such store, or a setting that can never work.
    """
    opened = open_store(store) if isinstance(store, str) else store
    return Endpoint(Core(server, opened, settings), new_authorization(settings, verifier))


def asgi_app(
    server: Server, *, store: Store | str = "memory", verifier: TokenVerifier | None = None, **options: Unpack[Options]
) -> AsgiApp:
    """*server* as an ASGI 3 application with a lifespan.

    For Hypercorn's Trio worker (``hypercorn -k trio module:app``), or mounted in a larger application on Trio that runs
    its lifespan.

    Args:
      server: what to serve.
      store: a store, or its URL.
      verifier: says whose an access token is, in place of the built-in verifiers.
      options: see `Settings`. *host* is not listened on here; it says whether only loopback names are answered for.

    Raises:
      SettingError: an option that can never work.
    """
    endpoint = new_endpoint(server, store, Settings(**options), verifier)
    if endpoint.settings.metrics:
        endpoint.operations = Operations(endpoint, {"/metrics": Metrics(endpoint).page})
    return AsgiApp(endpoint)


async def serve(
    server: Server,
    *,
    store: Store | str = "memory",
    verifier: TokenVerifier | None = None,
    stop: Callable[[], Awaitable[object]] | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    **options: Unpack[Options],
) -> None:
    """Serve *server* over HTTP until *stop* returns, then drain; or until cancelled, which stops at once.

    ``url = await nursery.start(partial(mcpd.serve, server, port=0))`` starts it in any Trio program.

    Args:
      server: what to serve.
      store: a store, or its URL.
      verifier: says whose an access token is, in place of the built-in verifiers.
      stop: an async function to wait for; when it returns, streams end cleanly and calls may go on for
      ``drain_timeout`` seconds.
      task_status: started with the endpoint's URL, once connections are accepted.
      options: see `Settings`.

    Raises:
      SettingError: an option that can never work, or a port that cannot be had.
      StoreError: the store cannot be used.
    """
    settings = Settings(**options)
    tls = tls_context(settings)
    with bound(settings) as sock:
        endpoint = new_endpoint(server, store, with_port(settings, sock), verifier)
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

            async def run(*, task_status: trio.TaskStatus[None]) -> None:
                front = (
                    DirectFront(handler_of(endpoint), tls=tls)
                    if settings.front == "direct"
                    else HypercornFront(AsgiApp(endpoint), settings)
                )
                # Our own drain ends first; the front's, which cancels, is the last resort.
                grace = settings.drain_timeout + 2.0
                await front.serve(sock, stop=stopping.wait, grace=grace, task_status=task_status)
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
            folder = os.environ.get(FOLDER)
            if folder is not None:
                # This is one worker of several: it tells of itself here, and of all of them everywhere else.
                own = Operations(endpoint, pages)
                await nursery.start(_serve_pages, own, bind_path(Path(folder) / f"{os.getpid()}.sock"))
                pages = {"/metrics": partial(merged, Path(folder))}
        if not settings.metrics_port:
            endpoint.operations = Operations(endpoint, pages)
        else:
            if settings.debug_endpoints:
                debug = Debug(endpoint)
                pages |= {"/debug/heap": debug.heap, "/debug/tasks": debug.tasks, "/debug/sessions": debug.sessions}
            host = metrics_host(settings)
            sock = inherited(METRICS_LISTENER) or bind(host, settings.metrics_port)
            await nursery.start(_serve_pages, Operations(endpoint, pages, loopback=is_loopback(host)), sock)
        task_status.started()


async def _serve_pages(operations: Operations, sock: socket.socket, *, task_status: trio.TaskStatus[None]) -> None:
    with sock:
        await DirectFront(operations).serve(sock, stop=trio.sleep_forever, grace=1.0, task_status=task_status)


def metrics_host(settings: Settings) -> str:
    """Where the metrics port listens: who looks inside a server should be on its machine, unless told otherwise."""
    return settings.metrics_host or ("127.0.0.1" if settings.debug_endpoints else settings.host)
