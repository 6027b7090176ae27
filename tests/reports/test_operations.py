"""What load balancers and operators do to a server: keep connections, and ask how it is."""

import random

import pytest
import trio

from mcpd import Settings
from mcpd_stores.memory import MemoryStore
from tests.harness import modern_request, rpc, serving
from tests.reports.rig import Rig
from tests.reports.storage import in_memory


@in_memory
async def test_r74_a_busy_proxy_keeps_its_connection(clock, rig: Rig, front: str):
    """A keep-alive time of 5 s, below that of every load balancer, made for sporadic 502."""
    assert Settings().keep_alive > 60.0, "ALB has 60 s"
    choose = random.Random(74)
    async with rig.serving(front=front, keep_alive=75.0) as http, http.connect() as connection:
        session = await http.initialize(on=connection)
        for pause in [74.9] * 50 + [choose.uniform(0.0, 74.0) for _ in range(50)]:
            await trio.sleep(pause)
            assert (await session.post("ping", on=connection)).status == 200
        began = trio.current_time()
        assert 75.0 <= await connection.wait_closed(within=100) - began <= 100.0


@in_memory
@pytest.mark.parametrize("reset", [True, False])
async def test_r44_who_leaves_while_it_is_answered_leaves_nothing_behind(clock, rig: Rig, front: str, reset: bool):
    """With an unlucky moment the end was seen before the answer was made, and then waited for a next request."""
    async with rig.serving(front=front, keep_alive=75.0) as http:
        await http.settle()
        before = trio.lowlevel.current_statistics().tasks_living
        for moment in range(40):
            connection = http.connect()
            await connection.send("POST", **modern_request("tools/list"))
            for _ in range(moment):
                await trio.lowlevel.checkpoint()
            connection.leave(reset=reset)
            await http.settle()
            assert trio.lowlevel.current_statistics().tasks_living == before


@in_memory
async def test_r74_a_silent_call_is_not_idle(clock, rig: Rig, front: str):
    """A call that takes longer than the keep-alive time, without a byte sent, is not cut by it."""
    settings = {"keep_alive": 5.0, "stream_after": 1_000.0}
    async with rig.serving(front=front, **settings) as http, http.connect() as connection:
        request = modern_request("tools/call", {"name": "wait", "arguments": {"seconds": 30}})
        assert (await connection.request("POST", **request)).text == "waited 30"
        assert (await connection.request("GET", "/health")).status == 200


@in_memory
async def test_r74_the_time_between_two_requests_is_short(clock, rig: Rig, front: str):
    """Re-use was slow: a hundred requests on one connection take no time of their own."""
    async with rig.serving(front=front) as http, http.connect() as connection:
        began = trio.current_time()
        for _ in range(100):
            assert (await connection.request("POST", **modern_request("tools/list"))).status == 200
        assert trio.current_time() - began < 0.1


class SilentStore(MemoryStore):
    """A store that must not be asked for anything."""

    async def ping(self) -> None:
        raise AssertionError("the store was asked")


@in_memory
async def test_r75_health_asks_nobody(clock, rig: Rig, front: str):
    """Probes of the MCP path counted healthy servers as dead; HEAD was 404."""
    async with serving(rig.server, front=front, store=SilentStore()) as http, http.keep_alive() as client:
        for number in range(1_000):
            method = "HEAD" if number % 2 else "GET"
            response = await client.request(method, "/health", headers={"Host": f"10.0.0.{number % 256}:8000"})
            assert response.status == 200
            assert (response.body == b"") == (method == "HEAD")
            assert "mcp-session-id" not in response.headers
        assert await http.count() == 0


async def test_r75_ready_follows_the_drain(clock, rig: Rig, front: str):
    """Readiness says whether new work should come here, and the answer changes before anything is closed."""
    async with rig.serving(front=front, drain_timeout=60.0) as http:
        session = await http.initialize()
        assert (await http.request("GET", "/ready")).status == 200
        assert (await http.request("HEAD", "/ready")).status == 200
        async with session.open_call("hold") as calling, trio.open_nursery() as nursery:
            nursery.start_soon(http.endpoint.drain)
            await rig.storage.until(lambda: http.endpoint.draining)
            response = await http.request("GET", "/ready")
            assert response.status == 503
            assert response.json == {"status": "draining"}
            assert (await http.request("GET", "/health")).status == 200
            rig.release.set()
            assert (await calling.rest())[-1]["result"]["content"][0]["text"] == "held"


async def test_r75_probes_of_the_mcp_path_do_no_harm(clock, rig: Rig, front: str):
    """And whoever probes the MCP path all the same gets a clear answer, and opens nothing."""
    async with rig.serving(front=front) as http, http.keep_alive() as client:
        for _ in range(1_000):
            response = await client.request("HEAD", "/mcp")
            assert response.status == 405
            assert response.body == b""
            assert "POST" in response.headers["allow"]
        for path in ("/", "/mcp/health", "/healthz"):
            assert (await client.request("GET", path)).status == 404
        assert (await client.request("POST", "/health", json=rpc("ping", id=1))).status == 405
        assert await http.count() == 0
