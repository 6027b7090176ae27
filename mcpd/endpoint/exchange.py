"""The seam between the endpoint and what speaks HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import trio

    from mcpd.endpoint.access import Checked
    from mcpd.protocol.headers import Headers
    from mcpd.server.principal import Owner, Principal
    from mcpd.settings import Settings

MAX_HEAD: Final = 64 * 1024
"""Bytes of a request line and all header fields; a front refuses more with 431."""

JSON: Final = (b"content-type", b"application/json")

HeaderList = list[tuple[bytes, bytes]]
"""Response header fields: names in lower case, and values."""


class Exchange(Protocol):
    """One HTTP request and its response. A front makes it, and drops it when the endpoint is done with it."""

    @property
    def method(self) -> str:
        """The method, in upper case."""
        ...

    @property
    def path(self) -> str:
        """The path, percent-decoded, below where the application is mounted."""
        ...

    @property
    def headers(self) -> Headers:
        """The request's header fields."""
        ...

    @property
    def client(self) -> str | None:
        """The peer's address, if it has one."""
        ...

    @property
    def scope(self) -> trio.CancelScope | None:
        """A cancel scope around the exchange, for the call in it to run in; None where there is none.

        Whoever cancels it has used it up, and says so with `use_up`. What is left to do for the exchange then needs a
        shield.
        """
        ...

    def use_up(self) -> None:
        """The scope has been cancelled."""
        ...

    def body_nowait(self, limit: int) -> bytes | None:
        """The request's body, if all of it is there; None if `body` has to wait for it, or to say what is wrong."""
        ...

    async def body(self, limit: int) -> bytes:
        """The request's body.

        Raises:
          BodyTooLargeError: it is longer than *limit* bytes; a Content-Length that says so is enough, and nothing is
          read.
          ExchangeClosedError: the client went away before it was complete.
        """
        ...

    async def respond(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes = b"") -> None:
        """Send the whole response. To a client that is gone, and once a response has begun, it does nothing."""
        ...

    async def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Start a response whose body comes piece by piece."""
        ...

    async def write(self, data: bytes) -> None:
        """Send a piece of the body; waits while the client does not read.

        Raises:
          ExchangeClosedError: the client is gone.
        """
        ...

    async def finish(self) -> None:
        """End the body cleanly. To a client that is gone it does nothing."""
        ...

    def on_close(self, callback: Callable[[], object]) -> None:
        """Call *callback*, which does not wait, as soon as the client is known to be gone; at once if it is already.

        One callback for an exchange: the last one given counts. It is not called once the response is complete.
        """
        ...


class Handler(Protocol):
    """What answers exchanges: an endpoint, or something around or beside one."""

    @property
    def settings(self) -> Settings:
        """The bounds that the front keeps."""
        ...

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one exchange. It raises nothing but ``trio.Cancelled``."""
        ...


class Admitted(msgspec.Struct, frozen=True):
    """An exchange that may come in, and who is asking."""

    exchange: Exchange
    checked: Checked
    principal: Principal | None
    """None where there is no authorization."""
    owner: Owner
    """On whose account it goes."""
