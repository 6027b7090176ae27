"""Health and readiness: GET and HEAD, on both ports, without authorization and without a session."""

import json
import urllib.error
import urllib.request

import pytest
import trio

from mcpd import Server
from mcpd.errors import StoreError
from mcpd_stores.memory import MemoryStore
from tests.harness import serving
from tests.harness.process import process
from tests.processes import free_port
from tests.stores.flaky import FlakyStore


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens"
    path.write_text("ada " + "t" * 40 + "\n")
    path.chmod(0o600)
    return str(path)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_needs_neither_authorization_nor_a_session(autojump_clock, front, tokens, method, path):
    async with serving(Server("s"), front=front, auth_tokens=tokens) as http:
        assert (await http.request("POST", json={})).status == 401
        response = await http.request(method, path, headers={"Host": "10.1.2.3:8000"})
        assert response.status == 200
        assert response.headers["content-type"] == "application/json"
        assert response.body == (b"" if method == "HEAD" else b'{"status":"ok"}')
        assert (await http.request("POST", path)).status == 405
        assert await http.count() == 0


async def test_is_alive_but_not_ready_while_the_store_is_down(autojump_clock, front):
    down = False

    async def fail(verb: str) -> None:
        if down:
            raise StoreError("down")

    async with serving(Server("s"), front=front, store=FlakyStore(MemoryStore(), fail)) as http:
        assert (await http.request("GET", "/ready")).status == 200
        down = True
        response = await http.request("GET", "/ready")
        assert (response.status, response.json) == (503, {"status": "store"})
        assert (await http.request("HEAD", "/ready")).status == 503
        assert (await http.request("GET", "/health")).status == 200
        down = False
        assert (await http.request("GET", "/ready")).status == 200


async def test_a_store_that_does_not_answer_is_not_waited_for(autojump_clock, front):
    """A probe has a second or so: one that hangs would say nothing."""
    hanging = False

    async def hang(verb: str) -> None:
        if hanging and verb == "ping":
            await trio.sleep_forever()

    async with serving(Server("s"), front=front, store=FlakyStore(MemoryStore(), hang)) as http:
        hanging = True
        began = trio.current_time()
        assert (await http.request("GET", "/ready")).json == {"status": "store"}
        assert trio.current_time() - began <= 1.0


def test_is_the_same_on_both_ports(front, tokens):
    port = free_port()
    options = ["--front", front, "--metrics-port", str(port), "--auth-tokens", tokens]
    with process(None, *options) as served:
        for origin in (served.url.removesuffix("/mcp"), f"http://127.0.0.1:{port}"):
            for path in ("/health", "/ready"):
                for method in ("GET", "HEAD"):
                    request = urllib.request.Request(origin + path, method=method)
                    with urllib.request.urlopen(request, timeout=10) as response:
                        assert response.status == 200
                        body = response.read()
                    assert body == b"" if method == "HEAD" else json.loads(body) == {"status": "ok"}
        # The metrics are on their own port, and only there; the MCP endpoint is on the other.
        assert b"mcpd_sessions_active" in urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read()
        for url in (served.url.removesuffix("/mcp") + "/metrics", f"http://127.0.0.1:{port}/mcp"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(url, timeout=10)
            assert refused.value.code == 404
            refused.value.close()
