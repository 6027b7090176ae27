"""Users of a served server: each with a token of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcpd import Server
from tests.harness import Http, Response, Session, serving
from tests.harness.messages import HeaderFields, HeaderValue, merged

ADA = "ada-" + "a" * 40
ADA_AGAIN = "ada-" + "b" * 40
"""Another token of the same user."""
BOB = "bob-" + "b" * 40
RESOURCE = "http://127.0.0.1:8000/mcp"
ISSUER = "https://as.example"
METADATA = "http://127.0.0.1:8000/.well-known/oauth-protected-resource/mcp"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@asynccontextmanager
async def guarded(
    server: Server, folder: Path, *, ada: str = "mcp", bob: str = "mcp", **settings: Any
) -> AsyncGenerator[Http, None]:
    """Serve *server* to ada and bob, who hold the scopes given, and to nobody else."""
    tokens = folder / "tokens"
    tokens.write_text(f"ada {ADA} {ada}\nada {ADA_AGAIN} {ada}\nbob {BOB} {bob}\n")
    async with serving(server, auth_tokens=str(tokens), **{"auth_issuer": ISSUER} | settings) as http:
        yield http


@dataclass
class Owned(Session):
    """A session, used with a token."""

    token: str = ""

    def headers(self, more: HeaderFields | None = None) -> list[tuple[str, HeaderValue]]:
        own: list[tuple[str, HeaderValue]] = [*bearer(self.token).items(), *super().headers()]
        return merged(own, more)

    def by(self, token: str, id: str | None = None) -> Owned:
        """The same requests with another token, and perhaps another session id."""
        return Owned(self.http, id or self.id, self.version, self.init, token)


async def log_in(http: Http, token: str = ADA, **kwargs: Any) -> Owned:
    """Open a legacy session."""
    plain = await http.initialize(headers=bearer(token), initialized=False, **kwargs)
    session = Owned(plain.http, plain.id, plain.version, plain.init, token)
    assert (await session.notify("notifications/initialized")).status == 202
    return session


def seen(response: Response) -> tuple[int, dict[str, str], bytes]:
    """All of a response but the time of day."""
    return response.status, {name: value for name, value in response.headers.items() if name != "date"}, response.body
