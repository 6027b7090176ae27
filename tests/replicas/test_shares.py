"""What one client may have, it may have on all replicas together (report R22)."""

from contextlib import AsyncExitStack

from mcpd import Server
from mcpd_stores.redis import RedisStore
from tests.harness import Session, rpc, serving
from tests.stores.redis_server import RedisServer, keys_without_ttl, shift

IDLE = 100.0
INITIALIZE = rpc(
    "initialize",
    {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}},
    id=1,
)


async def test_r22_what_counts_a_clients_sessions_outlives_them(redis_server: RedisServer, front: str):
    """The set that counted an owner's sessions expired before them; then the owner could open as many again."""
    url = redis_server.url()
    stores = [RedisStore(url), RedisStore(url)]
    bounds = {"session_idle": IDLE, "max_sessions_per_principal": 2}
    with redis_server.client() as client:
        client.flushall()
        async with (
            serving(Server("shared"), front=front, store=stores[0], **bounds) as here,
            serving(Server("shared"), front=front, store=stores[1], **bounds) as there,
            AsyncExitStack() as stack,
        ):
            sessions = [await here.initialize(), await there.initialize()]
            elsewhere = [Session(there, each.id, each.version, each.init) for each in sessions]
            for _ in range(10):
                for session in elsewhere:
                    assert (await session.post("ping")).status == 200
                for store in stores:
                    await store.refresh()  # as they do every second
                shift(client, IDLE * 0.4)
            # Two are in use, so there is no third one on either replica.
            for session in elsewhere:
                await stack.enter_async_context(session.get())
            for each in stores:
                await each.refresh()
            refused = await there.request("POST", json=INITIALIZE)
            assert refused.status == 429
            assert refused.json["error"]["data"] == {"limit": "max_sessions_per_principal"}
            assert await here.count() == 2
            await stack.aclose()
            # Nor is there one when they are idle: for each that comes one of them goes.
            await here.initialize()
            assert await there.count() == 2
            assert not keys_without_ttl(client)
            names = b" ".join(client.scan_iter(count=1000))
            assert b"127.0.0.1" not in names
            assert b"unix" not in names
            # What is known of a client goes with its last session.
            assert any(b":session:of:" in key for key in client.scan_iter(count=1000))
            shift(client, IDLE * 2)
            assert await here.count() == 0
            assert not any(b":session:of:" in key for key in client.scan_iter(count=1000))
