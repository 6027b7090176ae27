"""Connecting: redis-py does everything up to the ready socket, blocking, in a worker thread.

TCP, TLS, the unix socket, HELLO 3 with user and password, CLIENT SETNAME, SELECT; and before it the question where to
connect to: Sentinel knows the primary of a service, any node of a cluster knows who has our slot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.crc import key_slot
from redis.exceptions import NoScriptError, RedisError
from redis.retry import Retry
from redis.sentinel import Sentinel

from mcpd.errors import StoreError
from mcpd_stores.redis.replies import ReplyError, explain_connecting

if TYPE_CHECKING:
    import socket

    from mcpd_stores.redis.address import Address


class Line:
    """A connection that is ready: its socket, non-blocking."""

    def __init__(self, connection: Any) -> None:
        """Args: *connection*: redis-py's, connected."""
        self._connection = connection
        # redis-py has no public name for it; the tests hold it to this one.
        self.socket: Final[socket.socket] = connection._sock  # noqa: SLF001
        self.socket.settimeout(0)

    def close(self) -> None:
        """Close it at once."""
        self._connection.disconnect()


class Dialer:
    """Makes connections to wherever the address leads now. Its methods block, and are for worker threads."""

    def __init__(self, address: Address) -> None:
        """Args: *address*: where, and how to get in."""
        self._address = address
        # The commands have a time limit of their own; a connection that was never ready gets the same.
        self._common: dict[str, Any] = {
            "socket_timeout": address.timeout,
            "socket_connect_timeout": address.timeout,
            # The link is what retries, and can be cancelled while it waits.
            "retry": Retry(NoBackoff(), 0),
        }
        # A cluster changes: whoever was part of it when we last asked can be asked next time.
        self._nodes = list(address.hosts)

    def dial(self) -> Line:
        """A new connection.

        Raises:
          StoreError: it cannot be had, with the reason.
        """
        try:
            return Line(self._dial())
        except (RedisError, OSError, ValueError) as exc:
            raise explain_connecting(exc, self._address.name) from exc

    def ask(self, host: str, port: int, data: bytes) -> Any:
        """Send one command to the node to which a cluster that is moving the slot sends it, and return the reply.

        Raises:
          ReplyError: that node does not know the script yet.
          StoreError: there is no answer, or it is another error.
        """
        try:
            connection = self._open(host, port)
            try:
                connection.send_command("ASKING")
                connection.read_response()
                connection.send_packed_command([data])
                return connection.read_response()
            finally:
                connection.disconnect()
        except NoScriptError as exc:
            raise ReplyError(f"NOSCRIPT {exc}") from exc
        except (RedisError, OSError) as exc:
            raise StoreError(f"The cluster is moving this slot, and {host}:{port} answered: {exc}") from exc

    def _dial(self) -> Any:
        match self._address.kind:
            case "unix":
                # redis-py's annotations are incomplete, here and below.
                kind: Any = UnixDomainSocketConnection
                connection = kind(path=self._address.path, protocol=3, **self._common, **self._address.login)
                connection.connect()
                return connection
            case "sentinel":
                return self._open(*self._primary())
            case "cluster":
                return self._owner()
            case _:
                return self._open(*self._address.hosts[0])

    def _open(self, host: str, port: int) -> Any:
        tls = self._address.tls
        kind: Any = Connection if tls is None else SSLConnection
        connection = kind(
            host=host,
            port=port,
            protocol=3,
            socket_keepalive=True,
            **self._common,
            **self._address.login,
            **(tls or {}),
        )
        connection.connect()
        return connection

    def _primary(self) -> tuple[str, int]:
        address = self._address
        settings = {**self._common, **address.sentinel_login}
        if address.tls is not None:
            settings |= {"ssl": True, **address.tls}
        kind: Any = Sentinel
        sentinel = kind(list(address.hosts), sentinel_kwargs=settings)
        try:
            host, port = sentinel.discover_master(address.path)
        finally:
            for client in sentinel.sentinels:
                client.close()
        return host, port

    def _owner(self) -> Any:
        """A connection to the node that has the slot of our prefix."""
        slot: int = key_slot(b"{%b}" % self._address.prefix.encode())
        failed: Exception = StoreError("no node of the cluster has this slot")
        for host, port in dict.fromkeys([*self._nodes, *self._address.hosts]):
            try:
                connection = self._open(host, port)
            except (RedisError, OSError) as exc:
                failed = exc
                continue
            try:
                connection.send_command("CLUSTER", "SLOTS")
                ranges = connection.read_response()
                owner = self._find(ranges, slot, host)
            except RedisError as exc:
                connection.disconnect()
                failed = exc
                continue
            if owner == (host, port):
                return connection
            connection.disconnect()
            if owner is not None:
                try:
                    return self._open(*owner)
                except (RedisError, OSError) as exc:
                    # It has just died, perhaps; another node may know better already.
                    failed = exc
        raise failed

    def _find(self, ranges: Any, slot: int, asked: str) -> tuple[str, int] | None:
        # Each range: first and last slot, then its nodes, the primary first: host (none: the one asked), port, ID.
        self._nodes = [_node(node, asked) for _, _, *nodes in ranges for node in nodes]
        for first, last, primary, *_ in ranges:
            if first <= slot <= last:
                return _node(primary, asked)
        return None


def _node(node: Any, asked: str) -> tuple[str, int]:
    host = node[0]
    if isinstance(host, bytes):
        host = host.decode()
    return (host if host and host != "?" else asked), int(node[1])
