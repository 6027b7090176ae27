"""Spans, as the semantic conventions for MCP want them, and as the SDK's own exporter sees them."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
import trio
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from mcpd import Server, ToolError
from mcpd.server.call import hashed
from tests.harness import serving

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="session")
def provider() -> Iterator[InMemorySpanExporter]:
    """The global provider can be set once in a process."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    yield exporter
    provider.shutdown()


@pytest.fixture
def spans(provider: InMemorySpanExporter) -> InMemorySpanExporter:
    provider.clear()
    return provider


@pytest.fixture
def server() -> Server:
    server = Server("traced", version="1")

    @server.tool
    async def echo(text: str) -> str:
        with trace.get_tracer("app").start_as_current_span("inside"):
            return text

    @server.tool
    def threaded(text: str) -> str:
        with trace.get_tracer("app").start_as_current_span("in a thread"):
            return text

    @server.tool
    async def fail() -> str:
        raise ToolError("no")

    @server.tool
    async def wait(seconds: float) -> str:
        await trio.sleep(seconds)
        return "waited"

    @server.prompt
    async def ask(topic: str) -> str:
        return topic

    @server.resource("note://{name}")
    async def note(name: str) -> str:
        return name

    return server


def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    found = [span for span in spans.get_finished_spans() if span.name == name]
    assert len(found) == 1, [span.name for span in spans.get_finished_spans()]
    return found[0]


async def test_each_request_has_a_server_span(autojump_clock, front, server, spans):
    async with serving(server, front=front, tracing=True) as http:
        session = await http.initialize()
        await session.call("echo", {"text": "a secret"}, id="seven")
        await session.post("prompts/get", {"name": "ask", "arguments": {"topic": "a secret"}})
        await session.post("resources/read", {"uri": "note://x"})
        await http.modern("server/discover")
    span = named(spans, "tools/call echo")
    assert span.kind is SpanKind.SERVER
    assert dict(span.attributes) == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2025-11-25",
        "mcp.session.id": hashed(session.id),
        "jsonrpc.request.id": "seven",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "network.transport": "tcp",
        "network.protocol.name": "http",
    }
    assert span.status.status_code is StatusCode.UNSET
    assert span.parent is None
    assert named(spans, "initialize").attributes["mcp.protocol.version"] == "2025-11-25"
    assert named(spans, "prompts/get ask").attributes["gen_ai.prompt.name"] == "ask"
    assert named(spans, "resources/read").attributes["mcp.resource.uri"] == "note://x"
    modern = named(spans, "server/discover").attributes
    assert modern["mcp.protocol.version"] == "2026-07-28"
    assert "mcp.session.id" not in modern
    exported = " ".join(span.to_json() for span in spans.get_finished_spans())
    assert "a secret" not in exported
    assert session.id not in exported


async def test_what_a_handler_traces_is_below_its_request(front, server, spans):
    # In real time: a mock clock would not wait for a thread.
    async with serving(server, front=front, tracing=True) as http:
        await http.call("echo", {"text": "hello"})
        await http.call("threaded", {"text": "hello"})
    for inner, outer in {"inside": "tools/call echo", "in a thread": "tools/call threaded"}.items():
        assert named(spans, inner).parent.span_id == named(spans, outer).context.span_id


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_the_parent_comes_from_meta_else_from_the_header(autojump_clock, front, server, spans, era):
    async with serving(server, front=front, tracing=True) as http:
        session = await http.initialize()

        async def call(meta, headers):
            spans.clear()
            params = {"name": "echo", "arguments": {"text": "x"}, "_meta": meta}
            if era == "modern":
                await http.modern("tools/call", params, headers=headers)
            else:
                await session.post("tools/call", params, headers=headers)
            return named(spans, "tools/call echo")

        span = await call({"traceparent": PARENT, "tracestate": "a=b"}, {"traceparent": OTHER})
        assert f"{span.context.trace_id:032x}-{span.parent.span_id:016x}" == PARENT[3:52]
        assert span.context.trace_state.get("a") == "b"
        assert [f"{link.context.trace_id:032x}" for link in span.links] == [OTHER[3:35]]
        span = await call({}, {"traceparent": OTHER})
        assert f"{span.context.trace_id:032x}-{span.parent.span_id:016x}" == OTHER[3:52]
        assert not span.links
        for nonsense in ("nonsense", 7, None, {"a": 1}):
            span = await call({"traceparent": nonsense}, {"traceparent": "nonsense"})
            assert span.parent is None
            assert not span.links


async def test_errors_are_told(autojump_clock, front, server, spans):
    async with serving(server, front=front, tracing=True) as http:
        session = await http.initialize()
        await session.call("fail")
        await session.call("made-up")
        await session.post("made/up")
        async with session.open_call("wait", {"seconds": 100}) as calling:
            await session.notify("notifications/cancelled", {"requestId": next(http.ids) - 1})
            await calling.rest()
    failed = named(spans, "tools/call fail")
    assert failed.attributes["error.type"] == "tool_error"
    assert failed.status.status_code is StatusCode.ERROR
    unknown = named(spans, "tools/call _OTHER")
    assert unknown.attributes["error.type"] == unknown.attributes["rpc.response.status_code"] == "-32602"
    assert unknown.status.description == "Unknown tool: made-up"
    assert named(spans, "_OTHER").attributes["error.type"] == "-32601"
    assert named(spans, "tools/call wait").attributes["error.type"] == "cancelled"


async def test_a_refused_initialize_is_told(autojump_clock, front, server, spans):
    async with serving(server, front=front, tracing=True) as http:
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 7}}
        assert (await http.request("POST", json=message)).status == 400
    span = named(spans, "initialize")
    assert span.attributes["error.type"] == "-32602"


async def test_a_span_ends_with_its_request_on_a_kept_connection(autojump_clock, front, server, spans):
    async with serving(server, front=front, tracing=True) as http, http.connect() as connection:
        session = await http.initialize(on=connection)
        await session.call("echo", {"text": "1"}, on=connection)
        await session.call("fail", on=connection)
    assert named(spans, "tools/call fail").parent is None
    assert named(spans, "inside").parent.span_id == named(spans, "tools/call echo").context.span_id


async def test_without_the_setting_nothing_is_traced(autojump_clock, front, server, spans):
    async with serving(server, front=front) as http:
        session = await http.initialize()
        await session.call("echo", {"text": "hello"}, headers={"traceparent": PARENT})
    assert [span.name for span in spans.get_finished_spans()] == ["inside"]


def test_nothing_of_it_is_imported_when_it_is_off():
    code = (
        "import sys, mcpd, mcpd.cli\n"
        "from mcpd.fronts.http import new_endpoint\n"
        "new_endpoint(mcpd.Server('s'), 'memory', mcpd.Settings())\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry') or name == 'mcpd.tracing'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_without_opentelemetry_it_says_what_to_install():
    code = (
        "import sys\n"
        "sys.modules['opentelemetry'] = None\n"
        "sys.argv = ['mcpd', 'serve', '--port', '0', '--tracing']\n"
        "from mcpd.cli import main\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "mcpd: tracing needs OpenTelemetry: install trio-mcpd[tracing]\n"
