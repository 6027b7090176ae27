"""Opaque tokens: the authorization server is asked, and its good answers are kept for a moment."""

from __future__ import annotations

import secrets
import time

import pytest
import trio
from trio.testing import MockClock

from mcpd import VerifierError
from mcpd.auth import introspection
from mcpd.auth.introspection import IntrospectionVerifier
from tests.auth.authorization_server import RESOURCE, AuthorizationServer
from tests.requirements import requirement


def new(issuer: AuthorizationServer, **options: object) -> IntrospectionVerifier:
    name, password = issuer.resource_server
    given = {"client_id": name, "client_secret": password} | options
    return IntrospectionVerifier(issuer.issuer + "/introspect", issuer.issuer, [RESOURCE], **given)  # type: ignore[arg-type]


@pytest.fixture
async def verifier(issuer: AuthorizationServer):
    async with new(issuer) as verifier:
        yield verifier


def opaque(issuer: AuthorizationServer, **changed: object) -> str:
    token = secrets.token_urlsafe(24)
    issuer.introspected[token] = issuer.claims(**changed) | {"active": changed.get("active", True)}
    return token


@requirement("Y322")
async def test_a_good_token_says_who_is_asking(issuer: AuthorizationServer, verifier: IntrospectionVerifier):
    token = opaque(issuer, scope="mcp files:read")
    principal = await verifier.verify(token)
    assert principal is not None
    assert principal.identity == (issuer.issuer, "ada")
    assert principal.scopes == {"mcp", "files:read"}
    assert token not in repr(principal)
    assert issuer.seen == [("/introspect", {"token": token, "token_type_hint": "access_token"})]


# "exp", "iss" and the like are OPTIONAL in the answer (RFC 7662); what it says must hold.
@pytest.mark.parametrize("missing", ["exp", "iss", "client_id", "scope"])
async def test_what_an_answer_may_leave_out(issuer: AuthorizationServer, verifier: IntrospectionVerifier, missing: str):
    principal = await verifier.verify(opaque(issuer, **{missing: None}))
    assert principal is not None
    assert principal.identity == (issuer.issuer, "ada")


@pytest.mark.parametrize(
    "changed",
    [
        {"active": False},
        {"active": "true"},
        {"active": 1},
        {"active": None},
        {"aud": None},
        {"aud": "https://other.example"},
        {"iss": "https://evil.example"},
        {"sub": None},
        {"exp": time.time() - 100},
        {"nbf": time.time() + 3600},
    ],
    ids=range(10),
)
@requirement("Y316", "Y323")
async def test_bad_answers(issuer: AuthorizationServer, verifier: IntrospectionVerifier, changed: dict[str, object]):
    token = opaque(issuer, **changed)
    assert await verifier.verify(token) is None
    assert await verifier.verify(token) is None
    assert issuer.requests["/introspect"] == 2, "a bad answer was kept"


async def test_a_good_answer_counts_for_a_moment(
    mock_clock: MockClock, issuer: AuthorizationServer, verifier: IntrospectionVerifier
):
    token = opaque(issuer)
    for _ in range(5):
        assert await verifier.verify(token) is not None
    assert issuer.requests["/introspect"] == 1
    issuer.introspected.clear()  # revoked
    mock_clock.jump(29)
    assert await verifier.verify(token) is not None
    mock_clock.jump(2)
    assert await verifier.verify(token) is None
    # Nothing of the token is kept but its hash.
    assert token.encode() not in repr(vars(verifier)).encode()


async def test_an_answer_never_outlasts_its_token(mock_clock: MockClock, issuer: AuthorizationServer):
    now = time.time()
    async with new(issuer, now=lambda: now) as verifier:
        token = opaque(issuer, exp=now + 5)
        assert await verifier.verify(token) is not None
        mock_clock.jump(6)
        assert await verifier.verify(token) is not None  # clocks may differ by a minute
        assert issuer.requests["/introspect"] == 2


async def test_what_is_kept_is_bounded(
    monkeypatch: pytest.MonkeyPatch, issuer: AuthorizationServer, verifier: IntrospectionVerifier
):
    monkeypatch.setattr(introspection, "MAX_REMEMBERED", 3)
    tokens = [opaque(issuer) for _ in range(5)]
    for token in tokens:
        assert await verifier.verify(token) is not None
    assert len(verifier._known) == 3
    for token in reversed(tokens):  # the oldest ones gave way
        assert await verifier.verify(token) is not None
    assert issuer.requests["/introspect"] == 7


@pytest.mark.parametrize("status", [500, 503, 404, 302])
async def test_an_outage_is_no_refusal(issuer: AuthorizationServer, verifier: IntrospectionVerifier, status: int):
    token = opaque(issuer)
    issuer.failing = status
    with pytest.raises(VerifierError):
        await verifier.verify(token)
    issuer.failing = None
    assert await verifier.verify(token) is not None


async def test_wrong_credentials_of_ours_are_an_outage(issuer: AuthorizationServer):
    async with new(issuer, client_secret="wrong") as verifier:
        with pytest.raises(VerifierError, match="401") as failure:
            await verifier.verify(opaque(issuer))
    assert "wrong" not in str(failure.value)


async def test_it_does_not_wait_for_ever(
    mock_clock: MockClock, issuer: AuthorizationServer, verifier: IntrospectionVerifier
):
    issuer.hanging = True
    failures: list[VerifierError] = []

    async def ask() -> None:
        with pytest.raises(VerifierError) as failure:
            await verifier.verify(opaque(issuer))
        failures.append(failure.value)

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(ask)
        while issuer.requests["/introspect"] < 20:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert issuer.requests["/introspect"] == 20, "there is no limit to the questions under way"
        mock_clock.jump(10.1)
    assert len(failures) == 50


@pytest.mark.parametrize("token", ["x" * 20_000])
async def test_what_is_too_long_is_not_asked_about(
    issuer: AuthorizationServer, verifier: IntrospectionVerifier, token: str
):
    assert await verifier.verify(token) is None
    assert not issuer.requests
