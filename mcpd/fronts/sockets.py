"""What a front listens on: a TCP port or a Unix socket, plain or with TLS."""

from __future__ import annotations

import os
import socket
import ssl
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from mcpd.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Generator

    from mcpd.settings import Settings

LISTENER: Final = "MCPD_WORKER_LISTENER"
METRICS_LISTENER: Final = "MCPD_WORKER_METRICS_LISTENER"
"""Tell a worker which file descriptors its parent has bound for it."""
_LONGEST: Final = 2**31 - 1
"""Milliseconds, as the kernel counts them."""
UNIX: Final = "unix:"
"""What a host begins with that is the path of a Unix socket."""


def inherited(variable: str = LISTENER) -> socket.socket | None:
    """The socket that a parent has bound for this process, to whoever asks first; None when there is none."""
    descriptor = os.environ.pop(variable, None)
    # The descriptor itself: while there is a copy, the kernel goes on accepting connections that nobody will serve.
    return None if descriptor is None else socket.socket(fileno=int(descriptor))


@contextmanager
def bound(settings: Settings) -> Generator[socket.socket]:
    """A bound socket; afterwards it is closed, and a Unix socket's file gone.

    Raises:
      SettingError: the name is unknown, the port or the path is taken or not allowed.
    """
    given = inherited()
    if given is not None:
        with given:
            yield given
        return
    host, port = settings.host, settings.port
    if host.startswith(UNIX):
        path = Path(host.removeprefix(UNIX))
        with bind_path(path) as sock:
            try:
                yield sock
            finally:
                path.unlink(missing_ok=True)
        return
    with bind(host, port) as sock:
        yield sock


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


def with_port(settings: Settings, sock: socket.socket) -> Settings:
    """The settings with the port that was found, where any free one would do."""
    if settings.port or sock.family == socket.AF_UNIX:
        return settings
    return msgspec.structs.replace(settings, port=sock.getsockname()[1])


def url(sock: socket.socket, settings: Settings) -> str:
    """Where the endpoint is; a Unix socket as proxies write it, ``http://unix:/path/of/socket:/mcp``."""
    scheme = "https" if settings.tls_certfile else "http"
    if settings.host.startswith(UNIX):
        return f"{scheme}://{settings.host}:{settings.path}"
    host, port = sock.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{settings.path}"


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """What makes it HTTPS (HTTP/1.1 over TLS 1.2 or later), if the settings say so.

    Raises:
      SettingError: the certificate or its key cannot be read, or do not belong together.
    """
    if not settings.tls_certfile:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(settings.tls_certfile, settings.tls_keyfile or None)
    except OSError as exc:
        files = " and ".join(filter(None, (settings.tls_certfile, settings.tls_keyfile)))
        raise SettingError(f"Cannot use {files} for TLS: {exc.strerror or exc}") from exc
    return context


def bind_path(path: Path) -> socket.socket:
    """A bound Unix socket.

    Raises:
      SettingError: the path is taken or not allowed.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_left_over(path)
        sock.bind(str(path))
    except OSError as exc:
        sock.close()
        raise SettingError(f"Cannot listen on {UNIX}{path}: {exc.strerror or exc}") from exc
    return sock


def _remove_left_over(path: Path) -> None:
    """Remove the file of a server that was killed; it is nobody's when nobody accepts there."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return  # Then the bind says that the path is taken.
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()


def give_up_after(sock: socket.socket, seconds: float) -> None:
    """Count a client that takes nothing for so long as gone, as one is that vanishes without a FIN.

    The kernel alone would keep it for a quarter of an hour. Connections inherit it from their listener. Where the
    kernel cannot do that, nothing changes.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        milliseconds = max(1, round(min(seconds * 1000, _LONGEST)))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
