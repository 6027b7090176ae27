"""Forwarded and X-Forwarded-*: believed of trusted proxies, and of nobody else."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from mcpd import Server, SettingError
from mcpd.endpoint.proxies import Proxies, Seen
from mcpd.protocol.headers import Headers
from tests.auth.users import ADA, bearer, guarded
from tests.harness import serving

PEER = ("127.0.0.0/8", "unix")
"""The other end of a connection in memory, which has an address or none."""
PROXY, STRANGER = "10.0.0.1", "203.0.113.7"


class Request:
    """What of an exchange matters here."""

    def __init__(self, client: str | None, fields: dict[str, str] | list[tuple[str, str]]) -> None:
        pairs = fields.items() if isinstance(fields, dict) else fields
        self.client = client
        self.headers = Headers((name.lower().encode(), value.encode()) for name, value in pairs)


def seen(client: str | None, fields: Any, *networks: str) -> Seen:
    return Proxies(networks or ("10.0.0.0/8", "fd00::/8")).seen(Request(client, fields))  # type: ignore[arg-type]


PLAIN = {"X-Forwarded-For": "198.51.100.1", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "mcp.example.com"}
STANDARD = {"Forwarded": "for=198.51.100.1;proto=https;host=mcp.example.com"}
BOTH = Seen("198.51.100.1", "mcp.example.com", "https")


@pytest.mark.parametrize("fields", [PLAIN, STANDARD, PLAIN | STANDARD], ids=["plain", "standard", "both"])
def test_a_trusted_proxy_is_believed(fields: dict[str, str]):
    assert seen(PROXY, fields) == BOTH
    assert seen("::ffff:10.0.0.1", fields) == BOTH
    assert seen("fd00::1", fields) == BOTH
    assert seen(PROXY, fields, PROXY) == BOTH
    assert seen(None, fields, "unix") == BOTH
    assert seen("", fields, "unix") == BOTH


@pytest.mark.parametrize("fields", [PLAIN, STANDARD, PLAIN | STANDARD], ids=["plain", "standard", "both"])
def test_nobody_else_is(fields: dict[str, str]):
    assert seen(STRANGER, fields) == Seen(STRANGER)
    assert seen("11.0.0.1", fields) == Seen("11.0.0.1")
    assert seen(None, fields) == Seen(None)
    assert seen("testclient", fields) == Seen("testclient")
    assert Proxies(()).seen(Request(PROXY, fields)) == Seen(PROXY)  # type: ignore[arg-type]
    assert Proxies(()).seen(Request(None, fields)) == Seen(None)  # type: ignore[arg-type]
    assert seen(PROXY, fields, "unix") == Seen(PROXY)


@pytest.mark.parametrize(
    ("chain", "client"),
    [
        ("198.51.100.1", "198.51.100.1"),
        ("1.2.3.4, 198.51.100.1", "198.51.100.1"),  # the client has made up what stands before
        ("1.2.3.4, 198.51.100.1, 10.0.0.9", "198.51.100.1"),
        ("10.0.0.8, 10.0.0.9", "10.0.0.8"),
        ("198.51.100.1:4711", "198.51.100.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("unknown", PROXY),
        ("198.51.100.1, unknown, 10.0.0.9", "10.0.0.9"),
        ("", PROXY),
        (",,", PROXY),
        ("'; drop table", PROXY),
        ("1.2.3.4, 999.1.1.1", PROXY),
        (", ".join(["1.2.3.4"] * 10_000 + ["198.51.100.1"]), "198.51.100.1"),
        (", ".join(["10.0.0.2"] * 10_000), "10.0.0.2"),
    ],
    ids=range(15),
)
def test_the_client_is_the_nearest_stranger(chain: str, client: str):
    assert seen(PROXY, {"X-Forwarded-For": chain}).client == client


def test_several_fields_are_one():
    fields = [("X-Forwarded-For", "1.2.3.4"), ("X-Forwarded-For", "198.51.100.1"), ("X-Forwarded-Host", "a.example")]
    assert seen(PROXY, fields) == Seen("198.51.100.1", "a.example")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("for=198.51.100.1", Seen("198.51.100.1")),
        ("For=198.51.100.1;Proto=HTTPS", Seen("198.51.100.1", None, "https")),
        ('for="198.51.100.1:80"', Seen("198.51.100.1")),
        ('for="[2001:db8::1]:4711"', Seen("2001:db8::1")),
        ("for=1.2.3.4, for=198.51.100.1;host=a.example", Seen("198.51.100.1", "a.example")),
        ("host=evil.example;for=1.2.3.4, for=198.51.100.1", Seen("198.51.100.1")),
        ("for=198.51.100.1, for=10.0.0.9;by=10.0.0.1", Seen("198.51.100.1")),
        ("for=_hidden, for=10.0.0.9", Seen("10.0.0.9")),
        ("for=unknown", Seen(PROXY)),
        (r'host="a\.example"', Seen(PROXY, "a.example")),
        ("proto=gopher", Seen(PROXY)),
        ("by=203.0.113.60", Seen(PROXY)),
        # Malformed: nothing of it is believed.
        ("", Seen(PROXY)),
        ("for", Seen(PROXY)),
        ("for=1.2.3.4;;", Seen(PROXY)),
        ('for="1.2.3.4', Seen(PROXY)),
        ('for=1.2.3.4"', Seen(PROXY)),
        ("for=1.2.3.4 host=a", Seen(PROXY)),
        ("=;=,=", Seen(PROXY)),
    ],
    ids=range(19),
)
def test_forwarded(value: str, expected: Seen):
    assert seen(PROXY, {"Forwarded": value}) == expected


def test_fields_that_contradict_each_other_are_not_believed(caplog: pytest.LogCaptureFixture):
    # A proxy that writes one kind and passes the other on: then it is the client that speaks.
    for fields in (
        PLAIN | {"Forwarded": "for=6.6.6.6"},
        {"X-Forwarded-For": "198.51.100.1", "Forwarded": "host=evil.example"},
        {"X-Forwarded-Host": "mcp.example.com", "Forwarded": "for=6.6.6.6"},
        PLAIN | {"Forwarded": "nonsense"},
    ):
        assert seen(PROXY, fields) == Seen(PROXY)
    assert "contradict" in caplog.text


@pytest.mark.parametrize("network", ["proxy.example", "10.0.0.0/99", "", "*", "10.0.0.0/8/8"])
def test_what_is_no_network(network: str):
    with pytest.raises(SettingError, match="trusted_proxy"):
        Proxies([network])


# ----- Served


@pytest.fixture
def server() -> Server:
    return Server("behind")


async def test_metadata_of_a_server_behind_a_proxy(
    autojump_clock: MockClock, server: Server, front: str, tmp_path: Path
):
    path = "/.well-known/oauth-protected-resource/mcp"
    forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "localhost:8443"}
    for trusted, resource in (((), "http://127.0.0.1:8000/mcp"), (PEER, "https://localhost:8443/mcp")):
        async with guarded(server, tmp_path, front=front, trusted_proxy=trusted) as http:
            told = await http.request("GET", path, headers=forwarded)
            assert told.json["resource"] == resource
            refused = await http.request("POST", headers=forwarded, json={})
            assert f'"{resource.replace("/mcp", path)}"' in refused.headers["www-authenticate"]


async def test_a_forwarded_host_must_be_ours_as_well(
    autojump_clock: MockClock, server: Server, front: str, caplog: pytest.LogCaptureFixture
):
    # By itself it proves nothing: a page that has our address under its own name can write it, but not Host.
    evil, ours = {"X-Forwarded-Host": "evil.example"}, {"X-Forwarded-Host": "mcp.example.com"}
    settings: Any = {"front": front, "trusted_proxy": PEER, "allowed_host": ("mcp.example.com",)}
    async with serving(server, **settings) as http:
        assert (await http.modern("server/discover", headers=ours)).status == 200
        with caplog.at_level(logging.WARNING):
            assert (await http.modern("server/discover", headers=evil)).status == 421
        assert "evil.example" in caplog.text
        assert (await http.modern("server/discover", headers=ours | {"Host": "evil.example"})).status == 421
    async with serving(server, **(settings | {"trusted_proxy": ()})) as http:
        assert (await http.modern("server/discover", headers=evil)).status == 200  # nobody listens to it


async def test_a_forwarded_host_changes_no_audience(
    autojump_clock: MockClock, server: Server, front: str, tmp_path: Path
):
    async with guarded(server, tmp_path, front=front, trusted_proxy=PEER) as http:
        forwarded = {"X-Forwarded-Host": "localhost:9999", "X-Forwarded-Proto": "https"}
        assert (await http.modern("server/discover", headers=forwarded | bearer(ADA))).status == 200
        from mcpd.auth.resource import Resource

        assert Resource(http.endpoint.settings).identifiers == {
            "http://127.0.0.1:8000/mcp",
            "http://localhost:8000/mcp",
            "http://[::1]:8000/mcp",
        }


async def test_the_public_url_is_a_name_of_ours(autojump_clock: MockClock, server: Server, front: str):
    host, origin = {"Host": "mcp.example.com"}, {"Origin": "https://mcp.example.com"}
    async with serving(server, front=front, public_url="https://MCP.example.com/mcp") as http:
        assert (await http.modern("server/discover", headers=host)).status == 200
        assert (await http.modern("server/discover", headers=host | origin)).status == 200
        assert (await http.modern("server/discover", headers={"Host": "evil.example"})).status == 421
        assert (await http.modern("server/discover", headers={"Origin": "https://evil.example"})).status == 403
