"""JWTs: which are accepted, and how keys are found, kept and found anew."""

from __future__ import annotations

import base64
import json
import logging
import time

import pytest
import trio
from joserfc.jwk import OctKey
from trio.testing import MockClock

from mcpd import VerifierError
from mcpd.auth.signed import JwtVerifier
from mcpd.server.principal import Principal
from tests.auth.authorization_server import RESOURCE, AuthorizationServer, new_key
from tests.requirements import requirement


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.fixture
async def verifier(issuer: AuthorizationServer):
    async with JwtVerifier(issuer.issuer, [RESOURCE]) as verifier:
        yield verifier


@requirement("Y322")
async def test_a_good_token_says_who_is_asking(issuer: AuthorizationServer, verifier: JwtVerifier):
    token = issuer.token(scope="mcp files:read")
    principal = await verifier.verify(token)
    assert principal is not None
    assert principal.identity == (issuer.issuer, "ada")
    assert principal.client_id == "test-client"
    assert principal.scopes == {"mcp", "files:read"}
    assert principal.claims["jti"]
    for text in (repr(principal), str(principal)):
        assert token not in text
        assert "jti" not in text


KEYS = {
    "RS256": ("RSA", None),
    "PS512": ("RSA", None),
    "ES256": ("EC", None),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", None),
    "Ed25519": ("OKP", None),
}


@pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")  # EdDSA is an old name
@pytest.mark.parametrize("alg", KEYS)
async def test_algorithms(issuer: AuthorizationServer, verifier: JwtVerifier, alg: str):
    kind, size = KEYS[alg]
    issuer.rotate(new_key(kind, alg=alg, size=size))
    token = issuer.token()
    assert await verifier.verify(token) is not None
    head, payload, signature = token.split(".")
    other = issuer.token(sub="eve").split(".")
    assert await verifier.verify(f"{head}.{other[1]}.{signature}") is None
    assert await verifier.verify(f"{head}.{payload}.{other[2]}") is None
    assert await verifier.verify(f"{head}.{payload}.") is None


NOW = time.time()
BAD_CLAIMS = {
    "expired": {"exp": NOW - 61},
    "no expiry": {"exp": None},
    "an expiry that is no number": {"exp": "2099-01-01"},
    "an expiry that is true": {"exp": True},
    "an expiry that no float can hold": {"exp": 10**400},
    "not yet valid": {"nbf": NOW + 3600},
    "a beginning that is no number": {"nbf": []},
    "of another issuer": {"iss": "https://evil.example"},
    "of an issuer with a slash more": {"iss": lambda issuer: issuer + "/"},
    "of no issuer": {"iss": None},
    "for another server": {"aud": "https://other.example/mcp"},
    "for a client": {"aud": "test-client"},
    "for another path": {"aud": RESOURCE + "/more"},
    "for the whole host": {"aud": "http://127.0.0.1:8000"},
    "for another port": {"aud": "http://127.0.0.1:9000/mcp"},
    "for us, with a line end": {"aud": "http://127.0.0.1:8000/m\ncp"},
    "for us, behind a space": {"aud": " " + RESOURCE},
    "for nobody": {"aud": None},
    "for an empty list": {"aud": []},
    "for a list of others": {"aud": ["https://other.example/mcp", 1, None]},
    "of nobody": {"sub": None},
    "of the empty name": {"sub": ""},
    "of a number": {"sub": 7},
}


@pytest.mark.parametrize("what", BAD_CLAIMS)
@requirement("Y316", "Y322", "Y323")
async def test_tokens_that_are_signed_but_do_not_hold(issuer: AuthorizationServer, verifier: JwtVerifier, what: str):
    changed = {name: value(issuer.issuer) if callable(value) else value for name, value in BAD_CLAIMS[what].items()}
    assert await verifier.verify(issuer.token(**changed)) is None
    assert await verifier.verify(issuer.token()) is not None


GOOD_CLAIMS = {
    "expired, but clocks differ": {"exp": lambda now: now},
    "valid in a moment": {"nbf": lambda now: now + 30},
    "an expiry with a fraction": {"exp": lambda now: now + 100.5},
    "for several": {"aud": ["https://other.example/mcp", RESOURCE]},
    "for us in upper case": {"aud": "HTTP://127.0.0.1:8000/mcp"},
    "for us with a slash": {"aud": RESOURCE + "/"},
    "without scopes": {"scope": None},
    "with a list of scopes": {"scope": None, "scp": ["a", "b"]},
}


@pytest.mark.parametrize("what", GOOD_CLAIMS)
@requirement("Y328")
async def test_tokens_that_hold(issuer: AuthorizationServer, verifier: JwtVerifier, what: str):
    now = int(time.time())
    claims = {name: value(now) if callable(value) else value for name, value in GOOD_CLAIMS[what].items()}
    principal = await verifier.verify(issuer.token(**claims))
    assert principal is not None
    if "scp" in GOOD_CLAIMS[what]:
        assert principal.scopes == {"a", "b"}


async def test_a_letter_that_looks_like_another_is_another(issuer: AuthorizationServer):
    kelvin = "https://\N{KELVIN SIGN}eep.example/mcp"
    async with JwtVerifier(issuer.issuer, ["https://keep.example/mcp"]) as verifier:
        assert await verifier.verify(issuer.token(aud="https://Keep.example/mcp")) is not None
        assert await verifier.verify(issuer.token(aud=kelvin)) is None


@pytest.mark.parametrize("space", ["\t", "\n", "\xa0", "\u2003", "\u2028", "\x1f"], ids=ascii)
async def test_only_a_space_ends_a_scope(issuer: AuthorizationServer, verifier: JwtVerifier, space: str):
    principal = await verifier.verify(issuer.token(scope=f" mcp  read{space}admin "))
    assert principal is not None
    assert principal.scopes == {"mcp", f"read{space}admin"}


async def test_signatures_of_others(issuer: AuthorizationServer, verifier: JwtVerifier):
    mine = issuer.keys[-1]
    stranger = new_key(kid=mine.kid)
    assert await verifier.verify(issuer.token(key=stranger)) is None
    # A symmetric key made of the public one, the classic confusion.
    public = json.dumps(mine.as_dict(private=False)).encode()
    confused = OctKey.import_key(public)
    assert await verifier.verify(issuer.token(key=confused, header={"alg": "HS256", "kid": mine.kid})) is None
    # No signature at all, in all spellings.
    for alg in ("none", "None", "NONE", "nOnE", "", None):
        header = {"alg": alg, "typ": "at+jwt", "kid": mine.kid} if alg is not None else {"typ": "at+jwt"}
        assert await verifier.verify(f"{part(header)}.{part(issuer.claims())}.") is None
        signature = issuer.token().rpartition(".")[2]
        assert await verifier.verify(f"{part(header)}.{part(issuer.claims())}.{signature}") is None
    # A key that the token brings along, or says where to find.
    for brought in (
        {"jwk": stranger.as_dict(private=False)},
        {"jku": "https://evil.example/jwks"},
        {"x5u": "https://x"},
    ):
        header = {"alg": "ES256", "typ": "at+jwt", "kid": mine.kid} | brought
        signed = issuer.token(key=stranger, header={"kid": mine.kid}).split(".")
        assert await verifier.verify(f"{part(header)}.{signed[1]}.{signed[2]}") is None
    assert await verifier.verify(issuer.token()) is not None


@pytest.mark.parametrize(
    "header",
    [
        {"typ": "logout+jwt"},
        {"typ": "dpop+jwt"},
        {"typ": 1},
        {"crit": ["exp"]},
        {"crit": ["b64"], "b64": True},
        {"kid": 1},
        {"kid": {"a": 1}},
        {"alg": ["ES256"]},
        {"alg": "ES384"},
        {"alg": "RS256"},
    ],
    ids=str,
)
async def test_headers_that_are_refused(issuer: AuthorizationServer, verifier: JwtVerifier, header: dict[str, object]):
    good = {"alg": "ES256", "typ": "at+jwt", "kid": issuer.keys[-1].kid}
    _, payload, signature = issuer.token().split(".")
    assert await verifier.verify(f"{part(good | header)}.{payload}.{signature}") is None


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "a.b.c",
        "...",
        "..",
        "a" * 20_000,
        "a" * 9_000 + "." + "b" * 9_000 + ".c",
        part({"alg": "ES256"}) + ".e30",
        part({"alg": "ES256"}) + ".e30.AA.AA.AA",
        part([1]) + ".e30.AA",
        part("ES256") + ".e30.AA",
    ],
    ids=range(10),
)
async def test_what_is_no_jwt_costs_nothing(issuer: AuthorizationServer, verifier: JwtVerifier, token: str):
    assert await verifier.verify(token) is None
    assert not issuer.requests, "the issuer was asked about a token that is none"


async def test_claims_that_are_no_object(issuer: AuthorizationServer, verifier: JwtVerifier):
    from joserfc import jws

    header = {"alg": "ES256", "typ": "at+jwt", "kid": issuer.keys[-1].kid}
    for payload in (b"[]", b"null", b'"x"', b"\xff", b"[" * 50_00, b'{"iss": 1e999}', b""):
        token = jws.serialize_compact(header, payload, issuer.keys[-1])
        assert await verifier.verify(token) is None


async def test_a_token_without_a_key_id(issuer: AuthorizationServer, verifier: JwtVerifier):
    issuer.rotate()
    assert await verifier.verify(issuer.token(header={"kid": None})) is not None
    assert await verifier.verify(issuer.token(key=issuer.keys[0], header={"kid": None})) is not None
    assert await verifier.verify(issuer.token(key=new_key(), header={"kid": None})) is None


@pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")  # on purpose
async def test_keys_that_are_not_used(caplog: pytest.LogCaptureFixture, issuer: AuthorizationServer):
    from mcpd.auth.keys import read_keys

    good = issuer.keys[0].as_dict(private=False)
    weak = new_key("RSA", alg="RS256", size=1024).as_dict(private=False)
    odd = [
        None,
        1,
        {},
        {"kty": "EC"},
        {"kty": ["EC"]},
        {"kty": "oct", "k": "AA"},
        good | {"use": "enc"},
        good | {"use": ["sig"]},
        good | {"key_ops": ["sign"]},
        good | {"key_ops": 1},
        good | {"alg": "HS256"},
        good | {"alg": ["ES256"]},
        good | {"crv": "P-384"},
        good | {"x": "AA"},
        good | {"x": 1},
        issuer.keys[0].as_dict(private=True),
        weak,
    ]
    found = read_keys([*odd, good])
    # An unreadable `alg` is none; everything else is left out.
    assert [key.id for key in found if key.algorithm == "ES256"] == [good["kid"]]
    assert len(found) == 2
    assert "private part is public" in caplog.text
    assert "1024 bits" in caplog.text


# ----- Keys over time. The clock stands still until a test moves it; the sockets are real.


async def test_keys_are_fetched_once(mock_clock: MockClock, issuer: AuthorizationServer, verifier: JwtVerifier):
    results: list[Principal | None] = []

    async def one() -> None:
        results.append(await verifier.verify(issuer.token()))

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(one)
    assert len([each for each in results if each is not None]) == 50
    assert issuer.requests == {"/.well-known/oauth-authorization-server": 1, "/jwks": 1}


async def test_a_new_key_is_found(mock_clock: MockClock, issuer: AuthorizationServer, verifier: JwtVerifier):
    old = issuer.token()
    assert await verifier.verify(old) is not None
    issuer.rotate()
    mock_clock.jump(11)
    assert await verifier.verify(issuer.token()) is not None
    assert await verifier.verify(old) is not None
    assert issuer.requests["/jwks"] == 2
    # A key that is withdrawn counts until the keys are fetched for being old.
    issuer.rotate(keep=False)
    assert await verifier.verify(old) is not None
    mock_clock.jump(3601)
    assert await verifier.verify(issuer.token()) is not None
    assert await verifier.verify(old) is None
    assert issuer.requests["/jwks"] in {3, 4}


async def test_a_flood_of_unknown_keys_does_not_reach_the_issuer(
    mock_clock: MockClock, issuer: AuthorizationServer, verifier: JwtVerifier
):
    good = issuer.token()
    assert await verifier.verify(good) is not None
    results: list[Principal | None] = []

    async def one() -> None:
        results.append(await verifier.verify(issuer.token(key=new_key())))

    for _ in range(3):
        mock_clock.jump(10.5)
        async with trio.open_nursery() as nursery:
            for _ in range(40):
                nursery.start_soon(one)
        assert await verifier.verify(good) is not None
    assert results == [None] * 120
    assert issuer.requests["/jwks"] == 4  # once at first, then at most once in ten seconds


@pytest.mark.parametrize("status", [500, 503, 404, 302])
async def test_an_outage_is_no_refusal(
    mock_clock: MockClock, issuer: AuthorizationServer, verifier: JwtVerifier, status: int
):
    token = issuer.token()
    issuer.failing = status
    for _ in range(20):
        with pytest.raises(VerifierError):
            await verifier.verify(token)
    asked = sum(issuer.requests.values())
    assert asked <= 3, "every request asked the issuer again"
    issuer.failing = None
    with pytest.raises(VerifierError):
        await verifier.verify(token)
    mock_clock.jump(11)
    assert await verifier.verify(token) is not None


async def test_known_keys_outlast_an_outage_for_a_while(
    mock_clock: MockClock, issuer: AuthorizationServer, verifier: JwtVerifier
):
    token = issuer.token(exp=NOW + 90_000)
    assert await verifier.verify(token) is not None
    issuer.failing = 503
    mock_clock.jump(2 * 3600)
    assert await verifier.verify(token) is not None
    # What they do not know cannot be refused now.
    with pytest.raises(VerifierError):
        await verifier.verify(issuer.token(key=new_key()))
    mock_clock.jump(5 * 3600)
    with pytest.raises(VerifierError):
        await verifier.verify(token)


async def test_an_issuer_that_hangs(mock_clock: MockClock, issuer: AuthorizationServer, verifier: JwtVerifier):
    issuer.hanging = True
    async with trio.open_nursery() as nursery:

        async def patient() -> None:
            with pytest.raises(VerifierError):
                await verifier.verify(issuer.token())

        nursery.start_soon(patient)
        while not issuer.requests:
            await trio.lowlevel.checkpoint()
        mock_clock.jump(10.1)


async def test_an_issuer_that_is_not_there(mock_clock: MockClock):
    async with JwtVerifier("http://127.0.0.1:1/realm", [RESOURCE]) as verifier:
        with pytest.raises(VerifierError, match="cannot be reached"):
            await verifier.verify(f"{part({'alg': 'ES256'})}.e30.AAAA")


async def test_what_it_fetches_is_checked(
    mock_clock: MockClock, issuer: AuthorizationServer, caplog: pytest.LogCaptureFixture
):
    wrong = {
        "of issuer 'https://evil.example'": {"issuer": "https://evil.example"},
        "no jwks_uri": {"jwks_uri": None},
        "no https URL": {"jwks_uri": "http://keys.example/jwks"},
        "is no JWK set": {"jwks_uri": issuer.issuer + "/.well-known/oauth-authorization-server"},
    }
    for message, metadata in wrong.items():
        issuer.metadata = metadata
        async with JwtVerifier(issuer.issuer, [RESOURCE]) as verifier:
            with pytest.raises(VerifierError, match=message):
                await verifier.verify(issuer.token())
    assert all(record.levelno == logging.WARNING for record in caplog.records if record.name == "mcpd.auth")


@pytest.mark.parametrize("path", ["", "/realms/one", "/realms/one/"])
async def test_discovery(path: str):
    from mcpd.auth.discovery import metadata_urls

    origin = "https://as.example"
    urls = metadata_urls(origin + path)
    below = path.rstrip("/")
    assert urls[:2] == [
        f"{origin}/.well-known/oauth-authorization-server{below}",
        f"{origin}/.well-known/openid-configuration{below}",
    ]
    assert urls[2:] == ([f"{origin}{below}/.well-known/openid-configuration"] if below else [])


async def test_an_issuer_with_a_path():
    issuer = AuthorizationServer("/realms/one")
    async with issuer.running(), JwtVerifier(issuer.issuer, [RESOURCE]) as verifier:
        assert await verifier.verify(issuer.token()) is not None
