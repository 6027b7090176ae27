"""An OAuth 2.1 authorization server, small but real: it serves sockets, signs with a library that mcpd does not verify
with, checks PKCE, registers clients, rotates refresh tokens, and says `iss` where it should.

Its one user consents to everything.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote_plus, urlencode, urlsplit

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from joserfc import jwt
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

RESOURCE = "http://127.0.0.1:8000/mcp"
"""What tokens are issued for unless told otherwise: where `tests.harness` has its server."""
_KINDS = {"RSA": (RSAKey, 2048), "EC": (ECKey, "P-256"), "OKP": (OKPKey, "Ed25519")}


class Reply(Exception):  # noqa: N818 - an answer, not always an error
    """What is answered at once."""

    def __init__(self, status: int, body: Any = None, **headers: str) -> None:
        super().__init__(status)
        self.status = status
        self.body = b"" if body is None else json.dumps(body).encode()
        self.headers = headers


def new_key(kind: str = "EC", *, alg: str = "ES256", kid: str | None = None, size: Any = None) -> Key:
    """A new private key, named and with its use."""
    cls, usual = _KINDS[kind]
    parameters: Any = {"kid": kid or secrets.token_hex(4), "use": "sig", "alg": alg}
    return cls.generate_key(size or usual, parameters, private=True)  # type: ignore[attr-defined,no-any-return]


class AuthorizationServer:
    """All that the server knows. Tests look into it, and break it."""

    def __init__(self, path: str = "") -> None:
        self.origin = ""
        self.path = path
        self.keys: list[Key] = [new_key()]
        """Published; the last one signs."""
        self.requests: Counter[str] = Counter()
        """By path, without the query."""
        self.seen: list[tuple[str, dict[str, str]]] = []
        """Path and form or query of each request that has one."""
        self.failing: int | None = None
        """Answer everything with this status."""
        self.hanging = False
        """Answer nothing."""
        self.subject = "ada"
        self.lifetime = 3600.0
        self.metadata: dict[str, Any] = {}
        """Overrides of its metadata; None leaves out."""
        self.introspected: dict[str, dict[str, Any]] = {}
        """What `/introspect` says of a token."""
        self.resource_server = ("mcpd server", "s:cr%t")
        """Who may introspect."""
        self._clients: dict[str, dict[str, Any]] = {}
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh: dict[str, dict[str, str]] = {}

    @property
    def issuer(self) -> str:
        return self.origin + self.path

    # ----- Tokens

    def claims(self, **changed: Any) -> dict[str, Any]:
        """The claims of a good token; None takes one away."""
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "sub": self.subject,
            "aud": RESOURCE,
            "client_id": "test-client",
            "scope": "mcp",
            "iat": now,
            "exp": now + int(self.lifetime),
            "jti": secrets.token_hex(8),
        } | changed
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, *, key: Key | None = None, header: Mapping[str, Any] | None = None, **changed: Any) -> str:
        """A signed token; *header* replaces what its header would have."""
        key = key or self.keys[-1]
        fields: dict[str, Any] = {"alg": key.get("alg") or "ES256", "typ": "at+jwt", "kid": key.kid, **(header or {})}
        fields = {name: value for name, value in fields.items() if value is not None}
        return jwt.encode(fields, self.claims(**changed), key, algorithms=[fields["alg"]])

    def rotate(self, key: Key | None = None, *, keep: bool = True) -> Key:
        """Sign with a new key from now on, and with *keep* go on publishing the old ones."""
        key = key or new_key()
        self.keys = [*self.keys, key] if keep else [key]
        return key

    # ----- Serving

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[AuthorizationServer, None]:
        """Serve on a free port of this machine."""
        config = Config()
        config.bind = ["127.0.0.1:0"]
        config.accesslog = config.errorlog = None
        async with trio.open_nursery() as nursery:
            [url] = await nursery.start(partial(serve, self, config, mode="asgi"))
            self.origin = url
            yield self
            nursery.cancel_scope.cancel()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        try:
            raise await self._answer(scope, body)
        except Reply as reply:
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(reply.body))]
            headers += [(name.encode(), value.encode()) for name, value in reply.headers.items()]
            await send({"type": "http.response.start", "status": reply.status, "headers": headers})
            await send({"type": "http.response.body", "body": reply.body})

    async def _answer(self, scope: Any, body: bytes) -> Reply:
        path = scope["path"]
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.requests[path] += 1
        if self.hanging:
            await trio.sleep_forever()
        if self.failing is not None:
            return Reply(self.failing)
        form = dict(parse_qsl(scope["query_string"].decode()))
        if headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            form |= dict(parse_qsl(body.decode()))
        self.seen.append((path, form))
        if path == "/.well-known/oauth-authorization-server" + self.path:
            return Reply(200, self._metadata())
        if path == self.path + "/jwks":
            return Reply(200, {"keys": [key.as_dict(private=False) for key in self.keys]})
        if path == self.path + "/register" and scope["method"] == "POST":
            return self._register(json.loads(body))
        if path == self.path + "/authorize":
            return self._authorize(form)
        if path == self.path + "/token" and scope["method"] == "POST":
            return self._token(form)
        if path == self.path + "/introspect" and scope["method"] == "POST":
            return self._introspect(form, headers)
        return Reply(404)

    def _metadata(self) -> dict[str, Any]:
        issuer = self.issuer
        told = {
            "issuer": issuer,
            "authorization_endpoint": issuer + "/authorize",
            "token_endpoint": issuer + "/token",
            "registration_endpoint": issuer + "/register",
            "jwks_uri": issuer + "/jwks",
            "introspection_endpoint": issuer + "/introspect",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
        } | self.metadata
        return {name: value for name, value in told.items() if value is not None}

    def _register(self, asked: dict[str, Any]) -> Reply:
        client_id = secrets.token_urlsafe(9)
        self._clients[client_id] = asked
        return Reply(201, asked | {"client_id": client_id, "token_endpoint_auth_method": "none"})

    def _authorize(self, query: dict[str, str]) -> Reply:
        client = self._clients.get(query.get("client_id", ""))
        redirect = query.get("redirect_uri", "")
        if client is None or redirect not in client["redirect_uris"]:
            return Reply(400, {"error": "invalid_request"})
        if query.get("response_type") != "code" or query.get("code_challenge_method") != "S256":
            return Reply(400, {"error": "invalid_request"})
        code = secrets.token_urlsafe(24)
        self._codes[code] = query
        told = {"code": code, "iss": self.issuer} | ({"state": query["state"]} if "state" in query else {})
        return Reply(302, None, location=f"{redirect}?{urlencode(told)}")

    def _token(self, form: dict[str, str]) -> Reply:
        if form.get("grant_type") == "authorization_code":
            asked = self._codes.pop(form.get("code", ""), None)
            digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
            if (
                asked is None
                or base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != asked["code_challenge"]
                or form.get("redirect_uri") != asked["redirect_uri"]
                or form.get("client_id") != asked["client_id"]
                or form.get("resource") != asked.get("resource")
            ):
                return Reply(400, {"error": "invalid_grant"})
        elif form.get("grant_type") == "refresh_token":
            asked = self._refresh.pop(form.get("refresh_token", ""), None)
            if asked is None:
                return Reply(400, {"error": "invalid_grant"})
        else:
            return Reply(400, {"error": "unsupported_grant_type"})
        refresh = secrets.token_urlsafe(24)
        self._refresh[refresh] = asked
        scope = asked.get("scope", "")
        # "aud": what the client asked for, and nothing that it did not (RFC 8707).
        token = self.token(aud=asked.get("resource"), scope=scope or None, client_id=asked["client_id"])
        answer = {"access_token": token, "token_type": "Bearer", "refresh_token": refresh, "scope": scope}
        return Reply(200, answer | {"expires_in": int(self.lifetime)})

    def _introspect(self, form: dict[str, str], headers: Mapping[str, str]) -> Reply:
        kind, _, credentials = headers.get("authorization", "").partition(" ")
        name, _, password = base64.b64decode(credentials).decode().partition(":")
        if kind != "Basic" or (unquote_plus(name), unquote_plus(password)) != self.resource_server:
            return Reply(401, {"error": "invalid_client"})
        return Reply(200, self.introspected.get(form["token"], {"active": False}))


def query_of(url: str) -> dict[str, str]:
    """The query of a URL, each name once."""
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
