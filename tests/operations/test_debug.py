"""The debug pages: where they are and are not, what they find, and that they tell nobody's secrets."""

import json
import re
import socket
from pathlib import Path

import httpx
import pytest

from tests.harness.process import process
from tests.processes import free_port

LEAKY = "tests.operations.leaky_app:server"
SECRET = "xyzzy-" * 20


def call(url: str, tool: str, text: str) -> None:
    """Call a tool as a modern client."""
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    params = {"name": tool, "arguments": {"text": text}, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    response = httpx.post(url, headers=headers, json=message)
    assert response.json()["result"]["structuredContent"] > 0, response.text


def test_the_heap_page_finds_a_leaking_tool_and_no_other(front):
    port = free_port()
    with process(LEAKY, "--front", front, "--metrics-port", str(port), "--debug-endpoints") as served:
        heap = f"http://127.0.0.1:{port}/debug/heap"
        assert "Tracing has started" in httpx.get(heap).text
        for tool in ("remember", "forget"):
            for _ in range(30):
                call(served.url, tool, SECRET)
        assert "Grown since" not in httpx.get(heap, timeout=60).text
        for tool in ("remember", "forget"):
            for _ in range(60):
                call(served.url, tool, SECRET * 50)
        page = httpx.get(heap, timeout=60).text
    _, _, grown = page.partition("Grown since the last call:\n")
    source = Path(__file__).with_name("leaky_app.py").read_text().splitlines()
    leak = next(number for number, line in enumerate(source, 1) if "# the leak" in line)
    # The largest difference of all is the one that leaks, with the line that keeps it.
    first, where = grown.splitlines()[:2]
    assert re.fullmatch(r" *\+\d+\.\d KiB in +\+60", first), grown
    assert where.strip().endswith(f"leaky_app.py:{leak}")
    assert grown.count("leaky_app.py") == grown.count(f"leaky_app.py:{leak}"), "the innocent tool is accused"
    assert "xyzzy" not in page.lower()


def test_the_other_pages_tell_counts_and_places(front):
    port = free_port()
    with process(LEAKY, "--front", front, "--metrics-port", str(port), "--debug-endpoints") as served:
        call(served.url, "remember", SECRET)
        tasks = httpx.get(f"http://127.0.0.1:{port}/debug/tasks").text
        sessions = httpx.get(f"http://127.0.0.1:{port}/debug/sessions").text
    assert "nursery of" in tasks
    assert re.search(r"Sessions\.run: .*sessions\.py:\d+\)", tasks), tasks
    told = json.loads(sessions)
    assert told["sessions"] == told["calls"] == told["created"] == 0
    assert told["gc"]["objects"] > 0
    assert "xyzzy" not in (tasks + sessions).lower()


def test_they_are_only_on_the_metrics_port_and_only_when_told(front):
    port = free_port()
    paths = ("/debug/heap", "/debug/tasks", "/debug/sessions")
    with process(LEAKY, "--front", front, "--metrics-port", str(port), "--debug-endpoints") as served:
        for path in paths:
            assert httpx.get(served.url.removesuffix("/mcp") + path).status_code == 404
            assert httpx.head(f"http://127.0.0.1:{port}{path}", timeout=60).status_code == 200
            assert httpx.post(f"http://127.0.0.1:{port}{path}").status_code == 405
    with process(LEAKY, "--front", front, "--metrics-port", str(port)) as served:
        for path in paths:
            for origin in (served.url.removesuffix("/mcp"), f"http://127.0.0.1:{port}"):
                assert httpx.get(origin + path).status_code == 404


@pytest.mark.parametrize(
    ("options", "everywhere"),
    [
        ([], True),
        (["--debug-endpoints"], False),
        (["--debug-endpoints", "--metrics-host", "0.0.0.0"], True),
        (["--metrics-host", "127.0.0.1"], False),
    ],
)
def test_the_port_is_on_loopback_alone_once_it_has_debug_pages(options, everywhere):
    port = free_port()
    with process(LEAKY, "--host", "0.0.0.0", "--metrics-port", str(port), *options) as served:
        # Who listens on any address refuses nobody to bind 127.0.0.2; loopback alone leaves it free.
        with socket.socket() as other:
            if everywhere:
                with pytest.raises(OSError, match="in use"):
                    other.bind(("127.0.0.2", port))
            else:
                other.bind(("127.0.0.2", port))
        assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
        assert served.popen.poll() is None


FOREIGN = {
    "a page that has rebound its name": {"Host": "evil.example"},
    "a script": {"Origin": "http://evil.example"},
    "an image": {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    "a page at another port": {"Sec-Fetch-Site": "same-site"},
}


def test_no_web_page_in_a_browser_beside_it_can_ask(front):
    port = free_port()
    with process(LEAKY, "--front", front, "--metrics-port", str(port), "--debug-endpoints") as served:
        for path in ("/debug/heap", "/debug/tasks", "/debug/sessions", "/metrics"):
            page = f"http://127.0.0.1:{port}{path}"
            for what, headers in FOREIGN.items():
                assert httpx.get(page, headers=headers).status_code in {403, 421}, (path, what)
            for headers in ({}, {"Host": "localhost"}, {"Sec-Fetch-Site": "none"}):
                assert httpx.get(page, headers=headers, timeout=60).status_code == 200, (path, headers)
        assert "Tracing has started" not in httpx.get(f"http://127.0.0.1:{port}/debug/heap", timeout=60).text
        assert served.popen.poll() is None


def test_who_scrapes_from_elsewhere_uses_any_name(front):
    port = free_port()
    options = ["--front", front, "--host", "0.0.0.0", "--metrics-port", str(port)]
    with process(LEAKY, *options, "--allowed-host", "mcp.example.com"):
        page = f"http://127.0.0.1:{port}/metrics"
        assert httpx.get(page, headers={"Host": "mcpd-metrics:9090"}).status_code == 200
        assert httpx.get(page, headers=FOREIGN["an image"]).status_code == 403
