"""Settings of authorization: what can never work is said at the start, with the way out."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner
from trio.testing import MockClock

import mcpd
from mcpd import Principal, Server, SettingError, Settings
from mcpd.auth.introspection import IntrospectionVerifier
from mcpd.auth.resource import canonical
from mcpd.auth.setup import new_authorization
from mcpd.auth.signed import JwtVerifier
from tests.auth.authorization_server import AuthorizationServer
from tests.auth.users import ADA, ISSUER, bearer
from tests.requirements import requirement


def test_without_settings_everybody_may_come_in():
    assert new_authorization(Settings()) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"auth_issuer": "http://as.example"}, "auth_issuer must be an https URL"),
        ({"auth_issuer": "as.example"}, "auth_issuer must be an https URL"),
        ({"auth_issuer": "https://user:secret@as.example"}, "auth_issuer must be an https URL"),
        ({"auth_issuer": "https://as.example/#x"}, "auth_issuer must be an https URL"),
        ({"auth_issuer": "https://["}, "auth_issuer must be an https URL"),
        ({"auth_issuer": ISSUER, "auth_introspection_url": "http://as.example/i"}, "auth_introspection_url must be"),
        ({"auth_issuer": ISSUER, "host": "0.0.0.0"}, "--public-url https://mcp.example.com/mcp"),
        ({"auth_issuer": ISSUER, "host": "unix:/run/mcpd.sock"}, "--public-url"),
        ({"auth_issuer": ISSUER, "host": "127.evil.example"}, "--public-url"),
        ({"auth_issuer": ISSUER, "public_url": "mcp.example.com"}, "public_url is an http"),
        ({"auth_issuer": ISSUER, "public_url": "https://a.example/mcp#x"}, "public_url is an http"),
        ({"auth_issuer": ISSUER, "public_url": "https://a.example/mcp?x=1"}, "public_url is an http"),
        ({"auth_issuer": ISSUER, "public_url": "https://u:p@a.example/mcp"}, "must not carry credentials"),
        ({"auth_issuer": ISSUER, "public_url": "https://a.example:x/mcp"}, "public_url is an http"),
        ({"auth_issuer": ISSUER, "auth_scope": ("a b",)}, "auth_scope: 'a b' is no scope"),
        ({"auth_issuer": ISSUER, "auth_scope": ("offline_access",)}, "auth_scope: offline_access"),
        ({"auth_issuer": ISSUER, "auth_implies": ("admin",)}, "auth_implies: write 'broad=narrow'"),
        ({"auth_issuer": ISSUER, "auth_implies": ("=a",)}, "auth_implies: write 'broad=narrow'"),
        ({"auth_issuer": ISSUER, "auth_implies": ("a b=c",)}, "auth_implies: write 'broad=narrow'"),
        ({"auth_audience": ("x",)}, "auth_audience needs auth_issuer"),
        ({"auth_scope": ("x",)}, "auth_scope needs auth_issuer"),
        ({"auth_implies": ("a=b",)}, "auth_implies needs auth_issuer"),
        ({"auth_introspection_url": "https://as.example/i"}, "auth_introspection_url needs auth_issuer"),
        ({"auth_tokens": "/nowhere/tokens"}, "auth_tokens: /nowhere/tokens cannot be read"),
    ],
    ids=str,
)
@requirement("Y321")
def test_mistakes(settings: dict[str, Any], message: str):
    with pytest.raises(SettingError) as mistake:
        new_authorization(Settings(**settings))
    assert message in str(mistake.value)
    assert "secret" not in str(mistake.value) or "user:secret" in str(settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"auth_introspection_client_secret": "x"}, "needs auth_introspection_client_id"),
        ({"auth_introspection_client_id": "x"}, "needs auth_introspection_url"),
    ],
)
def test_halves(settings: dict[str, Any], message: str):
    with pytest.raises(SettingError, match=message):
        Settings(**settings)


def test_the_verifier_follows_the_settings():
    for settings, kind in (
        ({}, JwtVerifier),
        ({"auth_introspection_url": ISSUER + "/introspect"}, IntrospectionVerifier),
    ):
        made = new_authorization(Settings(auth_issuer=ISSUER, **settings))
        assert made is not None
        assert [type(each) for each in made._verifiers] == [kind]


@requirement("Y323", "Y328")
@pytest.mark.parametrize(
    ("uri", "form"),
    [
        ("https://mcp.example.com/mcp", "https://mcp.example.com/mcp"),
        ("HTTPS://MCP.example.COM/mcp", "https://mcp.example.com/mcp"),
        ("https://mcp.example.com:443/mcp/", "https://mcp.example.com/mcp"),
        ("http://mcp.example.com:80", "http://mcp.example.com"),
        ("https://mcp.example.com/", "https://mcp.example.com"),
        ("https://mcp.example.com:8443/MCP", "https://mcp.example.com:8443/MCP"),
        ("https://[2001:DB8::1]:8443/mcp", "https://[2001:db8::1]:8443/mcp"),
        ("https://mcp.example.com/mcp?a=B", "https://mcp.example.com/mcp?a=B"),
        ("https://mcp.example.com/mcp#x", "https://mcp.example.com/mcp#x"),
        ("https://user@mcp.example.com/mcp", "https://user@mcp.example.com/mcp"),
        ("api://Default", "api://Default"),
        ("mcp.example.com", "mcp.example.com"),
        ("https://[", "https://["),
        ("https://a:b/", "https://a:b/"),
        ("", ""),
    ],
)
def test_canonical_identifiers(uri: str, form: str):
    assert canonical(uri) == form
    assert canonical(form) == form


@requirement("Y323")
async def test_the_audience_is_the_port_that_was_found(issuer: AuthorizationServer):
    # Not what Host says, which whoever has a token for another server of this machine could choose.
    import httpx

    server = Server("s")
    async with trio.open_nursery() as nursery, httpx.AsyncClient() as client:
        url = await nursery.start(partial(mcpd.serve, server, port=0, auth_issuer=issuer.issuer))
        port = url.rpartition(":")[2].partition("/")[0]

        async def status(aud: str, host: str | None = None) -> int:
            headers = bearer(issuer.token(aud=aud)) | ({"Host": host} if host is not None else {})
            return (await client.request("GET", url, headers=headers)).status_code

        assert await status(url) == 405  # come in, and found no stream
        assert await status(url.replace("127.0.0.1", "localhost")) == 405
        assert await status(url.replace("127.0.0.1", "LOCALHOST")) == 405
        for other in ("http://127.0.0.1:9000/mcp", "http://localhost:9000/mcp"):
            assert await status(other) == 401
            assert await status(other, host="127.0.0.1:9000") == 401
        assert await status(f"https://127.0.0.1:{port}/mcp") == 401
        nursery.cancel_scope.cancel()


async def test_an_audience_of_ones_own(issuer: AuthorizationServer):
    made = new_authorization(Settings(auth_issuer=issuer.issuer, auth_audience=("api://default", "other")))
    assert made is not None
    from mcpd.auth.challenge import AccessError
    from mcpd.protocol.headers import Headers

    async def comes_in(aud: str) -> bool:
        fields = Headers([(b"authorization", f"Bearer {issuer.token(aud=aud)}".encode()), (b"host", b"localhost")])
        try:
            await made.check(fields)
        except AccessError as exc:
            assert exc.http_status == 401  # noqa: PT017
            return False
        return True

    async with made.running():
        assert await comes_in("api://default")
        assert await comes_in("other")
        assert not await comes_in("http://127.0.0.1:8000/mcp")


class Own:
    """A verifier of somebody else's."""

    async def verify(self, token: str) -> Principal | None:
        await trio.lowlevel.checkpoint()
        return Principal("own", token, scopes=frozenset({"mcp"})) if token != "bad" else None


async def test_a_verifier_of_ones_own(autojump_clock: MockClock, tmp_path: Path):
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ada {ADA} mcp\n")
    made = new_authorization(Settings(auth_scope=("mcp",), auth_tokens=str(tokens)), Own())
    assert made is not None
    from mcpd.protocol.headers import Headers

    for token, identity in ((ADA, ("static", "ada")), ("x", ("own", "x"))):
        principal = await made.check(Headers([(b"authorization", f"Bearer {token}".encode())]))
        assert principal.identity == identity
    assert not made.metadata_paths  # nobody to send clients to
    told = new_authorization(Settings(auth_issuer=ISSUER), Own())
    assert told is not None
    assert told.metadata_paths


def test_flags_and_environment(tmp_path: Path):
    from mcpd.cli import cli

    found = CliRunner().invoke(cli, ["serve", "--help"])
    for flag in (
        "--auth-issuer",
        "--auth-audience",
        "--auth-scope",
        "--auth-implies",
        "--auth-tokens",
        "--auth-introspection-url",
        "--auth-introspection-client-id",
        "--public-url",
        "--trusted-proxy",
    ):
        assert flag in found.output
    # Who can list processes can read arguments.
    assert "--auth-introspection-client-secret" not in found.output


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (["--auth-issuer", "http://as.example"], {}, "auth_issuer must be an https URL"),
        ([], {"MCPD_AUTH_ISSUER": "http://as.example"}, "auth_issuer must be an https URL"),
        ([], {"MCPD_AUTH_INTROSPECTION_CLIENT_SECRET": "s3cret"}, "needs auth_introspection_client_id"),
        (["--trusted-proxy", "x"], {}, "trusted_proxy is an address"),
        ([], {"MCPD_TRUSTED_PROXY": "10.0.0.0/8,x"}, "trusted_proxy is an address"),
        (["--auth-issuer", "https://as.example", "--host", "0.0.0.0"], {}, "--public-url"),
        (["--auth-scope", "a", "--auth-scope", "b"], {}, "auth_scope needs auth_issuer"),
    ],
    ids=range(7),
)
def test_mistakes_are_one_line(arguments: list[str], environment: dict[str, str], message: str):
    import os

    found = subprocess.run(
        [sys.executable, "-m", "mcpd", "serve", "--port", "0", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert found.returncode == 2
    assert message in found.stderr
    assert found.stderr.startswith("mcpd: ")
    assert found.stderr.count("\n") == 1
    assert "s3cret" not in found.stderr


def test_without_the_extra_it_says_so(monkeypatch: pytest.MonkeyPatch):
    for name in ("mcpd.auth.signed", "mcpd.auth.fetch", "mcpd.auth.introspection", "mcpd.auth.keys"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(SettingError, match=r"trio-mcpd\[auth\]"):
        new_authorization(Settings(auth_issuer=ISSUER))


def test_the_libraries_are_not_loaded_without_need():
    program = "import sys, mcpd; assert not {'jwt', 'httpx', 'cryptography'} & set(sys.modules), sys.modules.keys()"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
