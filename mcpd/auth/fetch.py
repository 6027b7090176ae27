"""JSON from an authorization server: over HTTPS, in time, of bounded size, never following a redirect."""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, Self, cast
from urllib.parse import urlsplit

import httpx
import msgspec
import trio

from mcpd.errors import VerifierError
from mcpd.protocol.headers import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

logger: Final = logging.getLogger("mcpd.auth")
TIMEOUT: Final = 10.0
"""Seconds that an authorization server may take."""
MAX_BYTES: Final = 512 * 1024
_OK: Final = 200


def is_secure(url: str) -> bool:
    """Whether nobody between can read or change what is fetched: HTTPS, or this machine."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    if not parts.hostname or parts.username is not None or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))


class Fetcher:
    """An HTTP client for one authorization server; of use while it is open."""

    def __init__(self, *, timeout: float = TIMEOUT) -> None:
        """Args: *timeout*: seconds that one request may take, all in all."""
        self._timeout = timeout
        self._client: httpx.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        # Made here, so that whoever has served once can serve again.
        self._client = await httpx.AsyncClient(
            timeout=self._timeout, headers={"accept": "application/json", "accept-encoding": "identity"}
        ).__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.__aexit__(kind, value, traceback)

    async def get(self, url: str) -> dict[str, Any] | None:
        """The JSON object at *url*; None when there is nothing (a status of 4xx).

        Raises:
          VerifierError: the server cannot be reached, fails, or answers with something else.
        """
        return await self._json("GET", url, missing_is_none=True)

    async def post(self, url: str, form: Mapping[str, str], credentials: tuple[str, str] | None) -> dict[str, Any]:
        """The JSON object that answers a form, sent with HTTP Basic *credentials* if there are any.

        Raises:
          VerifierError: as `get`, and for every status but 200.
        """
        answer = await self._json("POST", url, form=form, credentials=credentials)
        assert answer is not None  # noqa: S101 - see missing_is_none
        return answer

    async def _json(
        self,
        method: str,
        url: str,
        *,
        form: Mapping[str, str] | None = None,
        credentials: tuple[str, str] | None = None,
        missing_is_none: bool = False,
    ) -> dict[str, Any] | None:
        if not is_secure(url):
            raise VerifierError(f"{url!r} is no https URL")
        if self._client is None:
            raise RuntimeError("A verifier that asks an authorization server is of use while it is open: `async with`")
        try:
            with trio.fail_after(self._timeout):
                status, body = await self._send(self._client, method, url, form, credentials)
        except (httpx.HTTPError, trio.TooSlowError) as exc:
            # Not the exception's own words: they could repeat what was sent.
            raise VerifierError(f"{url} cannot be reached ({type(exc).__name__})") from None
        if missing_is_none and 400 <= status < 500:
            return None
        if status != _OK:
            raise VerifierError(f"{url} answered with {status}")
        try:
            return msgspec.json.decode(body, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise VerifierError(f"{url} did not answer with a JSON object") from None

    async def _send(
        self,
        client: httpx.AsyncClient,
        method: str,
        url: str,
        form: Mapping[str, str] | None,
        credentials: tuple[str, str] | None,
    ) -> tuple[int, bytes]:
        auth = None if credentials is None else httpx.BasicAuth(*credentials)
        request = client.build_request(method, url, data=form)
        response = await client.send(request, auth=auth, stream=True)
        try:
            pieces: list[bytes] = []
            size = 0
            async with aclosing(cast("Any", response.aiter_raw())) as raw:
                async for piece in raw:
                    size += len(piece)
                    if size > MAX_BYTES:
                        raise VerifierError(f"{url} answered with more than {MAX_BYTES} bytes")
                    pieces.append(piece)
            return response.status_code, b"".join(pieces)
        finally:
            await response.aclose()
