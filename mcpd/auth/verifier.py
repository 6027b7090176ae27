"""Whose a token is: the seam to what knows."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from mcpd.server.principal import Principal


class TokenVerifier(Protocol):
    """Says whose a token is.

    One that is an async context manager as well is open while the server runs.
    """

    async def verify(self, token: str) -> Principal | None:
        """Whose the token is; None when it is not valid, whatever the reason.

        A verifier answers for all of it: that the token is genuine, of the right issuer, has not expired, and was
        issued for this server (its audience). It must not block the loop, and keep no token. It may be called many
        times at once, and is cancelled with its exchange.

        Raises:
          VerifierError: that cannot be found out just now. Never raised for a token that is merely bad: clients give up
            a token that is refused, and try again where there was an outage.
        """
        ...


@asynccontextmanager
async def opened(verifiers: Sequence[TokenVerifier]) -> AsyncGenerator[None, None]:
    """Keep those open that are to be."""
    async with AsyncExitStack() as stack:
        for verifier in verifiers:
            if isinstance(verifier, AbstractAsyncContextManager):
                await stack.enter_async_context(verifier)
        yield
