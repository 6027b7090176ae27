"""mcpd as a part of a larger Trio program, and as an ASGI application in somebody else's server."""

import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal

import httpx
import pytest
import trio
from hypercorn.config import Config
from hypercorn.trio import serve as hypercorn_serve
from hypercorn.utils import LifespanFailureError

import mcpd
from mcpd import Context, Server, SettingError, StoreError
from mcpd.fronts.asgi import AsgiExchange
from mcpd_stores.memory import MemoryStore
from tests.stores.flaky import FlakyStore, Outage

FRONTS: list[Literal["direct", "hypercorn"]] = ["direct", "hypercorn"]
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
WITHIN = 20.0  # seconds; a slow machine under load needs a few
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Life:
    """A server with a lifespan, and what became of it."""

    def __init__(self, *, fails: str = "") -> None:
        self.seen: list[str] = []

        @asynccontextmanager
        async def lifespan(server: Server) -> AsyncGenerator[dict[str, int], None]:
            if fails == "start":
                raise RuntimeError("no database")
            self.seen.append("in")
            yield {"connections": len(self.seen)}
            await trio.lowlevel.checkpoint()  # it may wait: nothing is cancelled here
            self.seen.append("out")
            if fails == "end":
                raise RuntimeError("the database would not close")

        self.server = server = Server("embedded", version="1", lifespan=lifespan)

        @server.tool
        async def look(ctx: Context) -> int:
            value: int = ctx.lifespan["connections"]
            return value

        @server.tool
        async def wait(seconds: float) -> str:
            self.seen.append("began")
            try:
                await trio.sleep(seconds)
            except trio.Cancelled:
                self.seen.append("cancelled")
                raise
            return "waited"


async def call(url: str, tool: str, **arguments: Any) -> Any:
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    params = {"name": tool, "arguments": arguments, "_meta": ENVELOPE}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with httpx.AsyncClient(timeout=WITHIN) as client:
        response = await client.post(url, json=message, headers=headers)
    if response.headers["content-type"] == "text/event-stream":
        data = [line for line in response.text.splitlines() if line.startswith("data: ")][-1]
        return json.loads(data.removeprefix("data: "))
    return response.json()


def only(exc: BaseException) -> BaseException:
    while isinstance(exc, BaseExceptionGroup):
        assert len(exc.exceptions) == 1
        exc = exc.exceptions[0]
    return exc


# ----- mcpd.serve in a nursery


@pytest.mark.parametrize("front", FRONTS)
async def test_a_server_is_one_task_of_a_program(front: Literal["direct", "hypercorn"]) -> None:
    life = Life()
    stop = trio.Event()
    with trio.fail_after(WITHIN):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(partial(mcpd.serve, life.server, port=0, front=front, stop=stop.wait))
            assert url.startswith("http://127.0.0.1:")
            assert url.endswith("/mcp")
            assert life.seen == ["in"]
            for _ in range(3):
                assert (await call(url, "look"))["result"]["structuredContent"] == 1
            assert life.seen == ["in"]
            stop.set()
        # The nursery has ended by itself: the task is over, its lifespan left and its port free.
        assert life.seen == ["in", "out"]
        with pytest.raises(httpx.ConnectError):
            await call(url, "look")


@pytest.mark.parametrize("front", FRONTS)
async def test_calls_may_finish_when_it_is_to_stop(front: Literal["direct", "hypercorn"]) -> None:
    life = Life()
    stop = trio.Event()
    with trio.fail_after(WITHIN):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(
                partial(mcpd.serve, life.server, port=0, front=front, stop=stop.wait, drain_timeout=10.0)
            )
            answers: list[Any] = []

            async def wait() -> None:
                answers.append(await call(url, "wait", seconds=1.5))

            nursery.start_soon(wait)
            while "began" not in life.seen:  # noqa: ASYNC110 - the other side of a socket
                await trio.sleep(0.01)
            stop.set()
        assert answers[0]["result"]["content"][0]["text"] == "waited"
        assert life.seen == ["in", "began", "out"]


@pytest.mark.parametrize("front", FRONTS)
async def test_cancelling_stops_at_once(front: Literal["direct", "hypercorn"]) -> None:
    life = Life()
    with trio.fail_after(WITHIN):
        async with trio.open_nursery() as program:

            async def client() -> None:
                with pytest.raises((httpx.HTTPError, KeyError)):
                    await call(url, "wait", seconds=600)

            async with trio.open_nursery() as nursery:
                url = await nursery.start(partial(mcpd.serve, life.server, port=0, front=front))
                program.start_soon(client)
                while "began" not in life.seen:  # noqa: ASYNC110 - the other side of a socket
                    await trio.sleep(0.01)
                began = trio.current_time()
                nursery.cancel_scope.cancel()
            assert trio.current_time() - began < 5
            assert life.seen[:3] == ["in", "began", "cancelled"]


async def test_several_servers_in_one_program() -> None:
    one, two = Life(), Life()
    store = MemoryStore()
    with trio.fail_after(WITHIN):
        async with trio.open_nursery() as nursery:
            first = await nursery.start(partial(mcpd.serve, one.server, port=0, path="/one", store=store))
            second = await nursery.start(partial(mcpd.serve, two.server, port=0, path="/two", store=store))
            # The same server may be served twice as well; its lifespan is entered for each.
            third = await nursery.start(partial(mcpd.serve, two.server, port=0))
            for url, count in ((first, 1), (second, 1), (third, 2)):
                assert (await call(url, "look"))["result"]["structuredContent"] == count
            nursery.cancel_scope.cancel()


async def test_mistakes_are_raised_where_it_is_started() -> None:
    server = Life().server
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port: int = taken.getsockname()[1]
        for options, says in (
            ({"port": port}, f"Cannot listen on 127.0.0.1:{port}"),
            ({"port": 99999}, "port must be"),
            ({"store": "etcd://x"}, "There is no store 'etcd'"),
            ({"session_idle": 0.0}, "session_idle"),
            ({"path": "mcp"}, "path"),
        ):
            settings: dict[str, Any] = {"port": 0, **options}
            with pytest.raises(BaseException) as caught:  # noqa: PT011 - alone, or in the nursery's group
                async with trio.open_nursery() as nursery:
                    await nursery.start(partial(mcpd.serve, server, **settings))
            error = only(caught.value)
            assert isinstance(error, SettingError)
            assert says in str(error)


@pytest.mark.parametrize("front", FRONTS)
async def test_what_cannot_start_is_not_started(front: Literal["direct", "hypercorn"]) -> None:
    broken = Life(fails="start")
    for server, store, kind in (
        (broken.server, MemoryStore(), RuntimeError),
        (Life().server, FlakyStore(MemoryStore(), Outage("run")), StoreError),
    ):
        with pytest.raises(BaseException) as caught:  # noqa: PT011 - alone, or in the nursery's group
            async with trio.open_nursery() as nursery:
                await nursery.start(partial(mcpd.serve, server, port=0, store=store, front=front))
        assert isinstance(only(caught.value), kind)


async def test_the_port_is_free_again_at_once() -> None:
    life = Life()
    with trio.fail_after(WITHIN):
        port = 0
        for _ in range(3):
            stop = trio.Event()
            async with trio.open_nursery() as nursery:
                url = await nursery.start(partial(mcpd.serve, life.server, port=port, stop=stop.wait))
                port = int(url.split(":")[2].partition("/")[0])
                await call(url, "look")
                stop.set()


async def test_a_unix_socket(tmp_path: Any) -> None:
    path = tmp_path / "mcpd.sock"
    life = Life()
    with trio.fail_after(WITHIN):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(mcpd.serve, life.server, host=f"unix:{path}", front="direct"))
            transport = httpx.AsyncHTTPTransport(uds=str(path))
            async with httpx.AsyncClient(transport=transport, timeout=WITHIN) as client:
                assert (await client.get("http://localhost/health")).json() == {"status": "ok"}
            nursery.cancel_scope.cancel()


# ----- asgi_app in a server that is not ours


@asynccontextmanager
async def hypercorn(app: App) -> AsyncGenerator[str, None]:
    """Hypercorn as its users run it, with its own lifespan handling; its URL."""
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.accesslog = config.errorlog = None
    stop = trio.Event()
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        served: Any = partial(hypercorn_serve, app, config, shutdown_trigger=stop.wait)  # type: ignore[arg-type]
        [url] = await nursery.start(served)
        try:
            yield str(url)
        except AssertionError as exc:
            failure = exc
        stop.set()
    if failure is not None:
        raise failure


async def test_under_hypercorn_with_its_lifespan() -> None:
    life = Life()
    with trio.fail_after(WITHIN):
        async with hypercorn(mcpd.asgi_app(life.server)) as url:  # type: ignore[arg-type]
            assert life.seen == ["in"]
            for _ in range(3):
                assert (await call(url + "/mcp", "look"))["result"]["structuredContent"] == 1
            async with httpx.AsyncClient() as client:
                assert (await client.get(url + "/ready")).status_code == 200
        assert life.seen == ["in", "out"]


async def test_a_slow_call_becomes_a_stream_under_hypercorn_too() -> None:
    life = Life()
    with trio.fail_after(WITHIN):
        async with hypercorn(mcpd.asgi_app(life.server, stream_after=0.1)) as url:  # type: ignore[arg-type]
            answer = await call(url + "/mcp", "wait", seconds=1)
            assert answer["result"]["content"][0]["text"] == "waited"


async def test_a_client_that_goes_away_cancels_its_modern_call() -> None:
    life = Life()
    with trio.fail_after(WITHIN):
        async with hypercorn(mcpd.asgi_app(life.server)) as url:  # type: ignore[arg-type]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(call, url + "/mcp", "wait", seconds=600))
                while "began" not in life.seen:  # noqa: ASYNC110 - the other side of a socket
                    await trio.sleep(0.01)
                nursery.cancel_scope.cancel()
            while "cancelled" not in life.seen:  # noqa: ASYNC110
                await trio.sleep(0.01)


async def test_a_lifespan_that_fails_is_told_to_the_asgi_server(caplog: pytest.LogCaptureFixture) -> None:
    life = Life(fails="start")
    with pytest.raises(BaseException) as caught, trio.fail_after(WITHIN):  # noqa: PT011
        async with hypercorn(mcpd.asgi_app(life.server)):  # type: ignore[arg-type]
            await trio.sleep_forever()  # Hypercorn may have begun to serve before it looks
    assert isinstance(only(caught.value), LifespanFailureError)
    assert "no database" in caplog.text


@pytest.mark.parametrize("fails", ["start", "end"])
async def test_the_lifespan_protocol_is_told_what_failed(fails: str) -> None:
    app = mcpd.asgi_app(Life(fails=fails).server)
    sent: list[dict[str, Any]] = []
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return next(messages)

    async def send(message: Any) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(dict(message))

    with pytest.raises(BaseException) as caught:  # noqa: PT011 - alone, or in a group
        await app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)
    error = only(caught.value)
    assert isinstance(error, RuntimeError)
    assert sent[-1]["type"] == ("lifespan.startup.failed" if fails == "start" else "lifespan.shutdown.failed")
    # An operator reads this line in the log of the ASGI server: it must say what it was.
    assert "database" in sent[-1]["message"]


async def test_without_its_lifespan_nothing_is_served_half() -> None:
    app = mcpd.asgi_app(Life().server)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)  # type: ignore[arg-type]
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "look"}
    params = {"name": "look", "arguments": {}, "_meta": ENVELOPE}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        response = await client.post("/mcp", json=message, headers=headers)
        # Its handlers would find no ctx.lifespan; who forgot to run the lifespan has to hear of it.
        assert response.status_code in {500, 503}
        assert "error" in response.json()
        assert (await client.get("/ready")).status_code == 503


async def test_a_response_that_has_begun_is_not_begun_again() -> None:
    sent: list[str] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    exchange = AsgiExchange({"method": "GET", "path": "/mcp", "headers": []}, receive, send)
    await exchange.start(200, [])
    await exchange.write(b"one")
    await exchange.respond(500, [], b"Internal error")
    await exchange.start(200, [])
    await exchange.finish()
    await exchange.respond(500, [], b"Internal error")
    assert sent == ["http.response.start", "http.response.body", "http.response.body"]


# ----- mounted in a larger application


def mounted(app: App, prefix: str, *, strip: bool) -> App:
    """A larger application that has *app* under *prefix*, as frameworks mount; they differ in `path`."""

    async def outer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await app(scope, receive, send)
        elif scope["path"].startswith(prefix + "/"):
            inner = {**scope, "root_path": scope.get("root_path", "") + prefix}
            if strip:
                inner["path"] = scope["path"][len(prefix) :]
            await app(inner, receive, send)
        else:
            await receive()
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"the larger application"})

    return outer


@pytest.mark.parametrize(
    ("prefix", "strip"),
    # ASGI has the whole path in `path`; some frameworks have only what is below the mount.
    [("/tools", False), ("/a/b", False), ("/mcp", False), ("/tools", True), ("/a/b", True)],
)
async def test_under_a_root_path(prefix: str, strip: bool) -> None:
    life = Life()
    app: Any = mcpd.asgi_app(life.server)
    with trio.fail_after(WITHIN):
        async with hypercorn(mounted(app, prefix, strip=strip)) as url, httpx.AsyncClient() as client:
            assert (await call(f"{url}{prefix}/mcp", "look"))["result"]["structuredContent"] == 1
            assert (await client.get(f"{url}{prefix}/health")).status_code == 200
            assert (await client.get(f"{url}{prefix}/elsewhere")).status_code == 404
            assert (await client.get(f"{url}{prefix}x/mcp")).text == "the larger application"
            assert (await client.get(f"{url}/")).text == "the larger application"
        assert life.seen == ["in", "out"]


async def test_a_session_under_a_root_path() -> None:
    life = Life()
    app: Any = mcpd.asgi_app(life.server)
    initialize = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"},
        },
    }
    with trio.fail_after(WITHIN):
        async with hypercorn(mounted(app, "/tools", strip=False)) as url, httpx.AsyncClient() as client:
            endpoint = url + "/tools/mcp"
            opened = await client.post(endpoint, json=initialize)
            headers = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
            ping = await client.post(endpoint, json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=headers)
            assert ping.json() == {"jsonrpc": "2.0", "id": 1, "result": {}}
            assert (await client.delete(endpoint, headers=headers)).status_code == 204


async def test_a_websocket_is_refused() -> None:
    app = mcpd.asgi_app(Life().server)
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(dict(message))

    await app({"type": "websocket", "path": "/mcp", "headers": []}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]
