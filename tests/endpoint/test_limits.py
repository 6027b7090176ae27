"""What one client may take of what all share: its own bound is 429, everybody's is 503, and others notice nothing."""

from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio

from mcpd import Context, Server, Settings
from mcpd.endpoint.proxies import owner_of
from mcpd.endpoint.rate import Rate
from mcpd.errors import SettingError
from tests.harness import modern_request, rpc, serving
from tests.operations.pages import read

BEHIND_A_PROXY = {"trusted_proxy": ("unix", "127.0.0.0/8")}
"""The other end of a connection in memory is believed, so that a test can have many clients."""
WAIT = {"name": "wait", "arguments": {}}


def from_address(address: str) -> dict[str, str]:
    return {"X-Forwarded-For": address}


ADA, BOB = from_address("192.0.2.1"), from_address("192.0.2.2")


def new_server() -> Server:
    server = Server("limited")

    @server.tool
    async def wait() -> str:
        await trio.sleep(30)
        return "done"

    return server


def modern(method: str, params: dict[str, Any] | None = None, *, by: dict[str, str]) -> dict[str, Any]:
    request = modern_request(method, params)
    return request | {"headers": dict(request["headers"]) | by}


def refused(response: Any, status: int, limit: str) -> None:
    assert response.status == status, response.body
    assert int(response.headers["retry-after"]) > 0
    error = response.json["error"]
    assert error["data"] == {"limit": limit}
    assert limit in error["message"]


async def test_one_client_cannot_take_all_calls(front, autojump_clock):
    async with serving(new_server(), front=front, max_calls=3, max_calls_per_principal=2, **BEHIND_A_PROXY) as http:
        call = modern("tools/call", WAIT, by=ADA)
        async with AsyncExitStack() as stack:
            for _ in range(2):
                await stack.enter_async_context(http.open("POST", **call))
            await trio.sleep(5)
            refused(await http.request("POST", **call), 429, "max_calls_per_principal")
            await stack.enter_async_context(http.open("POST", **modern("tools/call", WAIT, by=BOB)))
            await trio.sleep(3)
            refused(await http.request("POST", **modern("tools/list", by=BOB)), 503, "max_calls")
        await trio.sleep(60)
        assert (await http.request("POST", **call)).status == 200
        page = await read(http.endpoint)
        assert page("mcpd_calls_rejected_total", reason="principal") == 1
        assert page("mcpd_calls_rejected_total", reason="full") == 1
        await http.settle()
        assert http.endpoint.call_places._owners == {}, "who has nothing is not known"


async def test_a_batch_is_taken_whole_or_not_at_all(front, autojump_clock):
    async with serving(new_server(), front=front, max_calls_per_principal=2) as http:
        session = await http.initialize("2025-03-26")
        batch = [rpc("ping", id=number) for number in range(3)]
        refused(await session.send(batch), 429, "max_calls_per_principal")
        assert len((await session.send(batch[:2])).json) == 2
        await http.settle()
        assert http.endpoint.call_places._owners == {}


async def test_a_batch_without_requests_takes_no_place_and_leaves_none(front, autojump_clock):
    async with serving(new_server(), front=front) as http:
        session = await http.initialize("2025-03-26")
        statuses: list[int] = []

        async def send(message: Any) -> None:
            statuses.append((await session.send(message)).status)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(send, [rpc("notifications/cancelled", {"requestId": "none"})] * (number + 1))
                nursery.start_soon(send, rpc("ping", id=number))
        assert sorted(statuses) == [200] * 20 + [202] * 20
        assert http.endpoint.call_places._owners == {}


@pytest.mark.parametrize("kind", ["get", "listen"])
async def test_one_client_cannot_take_all_streams(front, autojump_clock, kind):
    listen = {"notifications": {"toolsListChanged": True}}
    options = {"max_streams": 3, "max_streams_per_principal": 2} | BEHIND_A_PROXY
    async with serving(new_server(), front=front, **options) as http, AsyncExitStack() as stack:
        sessions = [await http.initialize() for _ in range(5)]

        def stream(number: int, by: dict[str, str]) -> tuple[str, dict[str, Any]]:
            if kind == "listen":
                return "POST", modern("subscriptions/listen", listen, by=by)
            session = {"Mcp-Session-Id": sessions[number].id, "Accept": "text/event-stream"}
            return "GET", {"headers": session | by}

        def opened(number: int, by: dict[str, str]) -> Any:
            method, request = stream(number, by)
            return http.open(method, **request)

        for number in range(2):
            assert (await stack.enter_async_context(opened(number, ADA))).status == 200
        method, request = stream(2, ADA)
        refused(await http.request(method, **request), 429, "max_streams_per_principal")
        if kind == "get":
            # The newest stream of a session takes over, and so it needs no place of its own.
            assert (await stack.enter_async_context(opened(1, ADA))).status == 200
        assert (await stack.enter_async_context(opened(3, BOB))).status == 200
        method, request = stream(4, BOB)
        refused(await http.request(method, **request), 503, "max_streams")
        await stack.aclose()
        await http.settle()
        await trio.sleep(60)
        await http.settle()
        assert http.endpoint.stream_places._owners == {}
        async with opened(2, ADA) as again:
            assert again.status == 200
        page = await read(http.endpoint)
        assert page("mcpd_streams_rejected_total", reason="principal") == 1
        assert page("mcpd_streams_rejected_total", reason="full") == 1


async def test_what_a_stranger_writes_makes_it_nobody_else(front, autojump_clock):
    async with (
        serving(new_server(), front=front, max_calls_per_principal=1) as http,
        http.open("POST", **modern("tools/call", WAIT, by=ADA)),
    ):
        await trio.sleep(5)
        # Who is not trusted is itself, whatever X-Forwarded-For says; without an address all are one.
        again = await http.request("POST", **modern("tools/call", WAIT, by=BOB))
        refused(again, 429, "max_calls_per_principal")


def test_who_has_a_network_is_one_client():
    assert owner_of("2001:db8:0:1::1") == owner_of("2001:db8:0:1:ffff::2") == "2001:db8:0:1::/64"
    assert owner_of("2001:db8:0:2::1") != owner_of("2001:db8:0:1::1")
    assert owner_of("::ffff:192.0.2.1") == owner_of("192.0.2.1") == "192.0.2.1"
    assert owner_of(None) == "unix"
    assert owner_of("not:an:address") == "not:an:address"


def test_the_bounds_of_one_are_part_of_those_of_all():
    settings = Settings(max_calls=20, max_sessions=1, max_tasks=5, max_tasks_per_principal=9)
    assert settings.per_principal("calls") == 18
    assert settings.per_principal("sessions") is None
    assert settings.per_principal("tasks") is None
    assert Settings(max_calls_per_principal=7).per_principal("calls") == 7
    with pytest.raises(SettingError, match="max_calls_per_principal must not be negative, but is -1"):
        Settings(max_calls_per_principal=-1)
    with pytest.raises(SettingError, match="max_streams"):
        Settings(max_streams=0)


INITIALIZE = rpc(
    "initialize",
    {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}},
    id=1,
)


async def test_one_client_cannot_take_all_sessions(front, autojump_clock):
    options = {"max_sessions": 4, "max_sessions_per_principal": 2} | BEHIND_A_PROXY
    async with serving(new_server(), front=front, **options) as http, AsyncExitStack() as stack:

        async def opened(by: dict[str, str]) -> str:
            response = await http.request("POST", json=INITIALIZE, headers=by)
            assert response.status == 200, response.body
            return str(response.headers["mcp-session-id"])

        async def there(*ids: str) -> list[bool]:
            pings = [await http.request("POST", json=rpc("ping", id=1), headers={"Mcp-Session-Id": id_}) for id_ in ids]
            return [ping.status == 200 for ping in pings]

        bobs = await opened(BOB)
        first, second = await opened(ADA), await opened(ADA)
        assert await there(second, first) == [True, True]
        third = await opened(ADA)
        # Her own least recently used one gave way, not his, which was idle for longer.
        assert await there(bobs, second, first, third) == [True, False, True, True]
        for id_ in (first, third):
            listening = {"Mcp-Session-Id": id_, "Accept": "text/event-stream"}
            await stack.enter_async_context(http.open("GET", headers=listening))
        refused(
            await http.request("POST", json=INITIALIZE, headers=ADA),
            429,
            "max_sessions_per_principal",
        )
        assert await there(bobs, first, third) == [True, True, True]
        assert await http.count() == 3
        await opened(BOB)
        page = await read(http.endpoint)
        assert page("mcpd_sessions_rejected_total", reason="principal") == 1
        assert page("mcpd_sessions_ended_total", reason="evicted") == 1


async def test_one_client_cannot_take_all_handles(front, autojump_clock):
    server = Server("handles")

    @server.tool
    async def keep(ctx: Context) -> str:
        return await ctx.handles.create("x")

    async with serving(server, front=front, max_handles=3, max_handles_per_principal=2, **BEHIND_A_PROXY) as http:
        call = {"name": "keep", "arguments": {}}

        async def kept(by: dict[str, str]) -> dict[str, Any]:
            result: dict[str, Any] = (await http.request("POST", **modern("tools/call", call, by=by))).json["result"]
            return result

        assert not any([(await kept(ADA)).get("isError") for _ in range(2)])
        told = await kept(ADA)
        assert told["isError"]
        assert "max_handles_per_principal" in told["content"][0]["text"]
        assert not (await kept(BOB)).get("isError")
        assert "There are too many handles" in (await kept(BOB))["content"][0]["text"]
        page = await read(http.endpoint)
        assert page("mcpd_handles_rejected_total", reason="principal") == 1
        assert page("mcpd_handles_rejected_total", reason="full") == 1


async def test_one_client_cannot_open_sessions_without_end(front, autojump_clock):
    async with serving(new_server(), front=front, initialize_rate=60, **BEHIND_A_PROXY) as http:

        async def initialize(by: dict[str, str]) -> Any:
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
            return await http.request("POST", json=rpc("initialize", params, id=1), headers=by)

        for _ in range(10):
            assert (await initialize(ADA)).status == 200
        refused(await initialize(ADA), 429, "initialize_rate")
        assert (await initialize(BOB)).status == 200
        assert await http.endpoint.sessions.records.count() == 11
        assert http.endpoint.core.meter.rejected["sessions"]["rate"] == 1
        await trio.sleep(1)
        assert (await initialize(ADA)).status == 200
        refused(await initialize(ADA), 429, "initialize_rate")
        await trio.sleep(60)
        for _ in range(10):
            assert (await initialize(ADA)).status == 200


def test_a_bucket_is_forgotten_once_it_is_full():
    rate = Rate(10.0)
    now = 0.0
    for number in range(100_000):
        now += 0.01
        assert rate.take(f"client {number}", now) == 0
        assert len(rate) <= 11, "no more than came within a tenth of a second"
    assert [rate.take("often", now) for _ in range(100)] == [0] * 100
    wait = rate.take("often", now)
    assert wait == pytest.approx(0.1)
    assert rate.take("often", now + wait) == 0
    rare = Rate(1 / 60)
    assert rare.take("a", now) == 0
    assert rare.take("a", now) == pytest.approx(60)
    assert rare.take("a", now + 60) == 0
