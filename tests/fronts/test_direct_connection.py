"""The direct front on a connection in memory, with the clock in the test's hand."""

import json

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpd import Context, Server
from tests.fronts.client import INITIALIZE, Client, ClosedError, call, direct, post, request

HEALTH = request("GET", "/health")
JSON = "Content-Type: application/json"
ONLY_JSON = "Accept: application/json"


class Tools:
    """A server whose tools say what became of them."""

    def __init__(self) -> None:
        self.server = Server("direct", version="1")
        self.log: list[str] = []
        self.began = trio.Event()
        self.server.tool(self.echo)
        self.server.tool(self.wait)
        self.server.tool(self.report)

    async def echo(self, text: str) -> str:
        return text

    async def wait(self, seconds: float) -> str:
        self.began.set()
        try:
            await trio.sleep(seconds)
        except trio.Cancelled:
            self.log.append(f"cancelled at {trio.current_time():g}")
            raise
        self.log.append(f"done at {trio.current_time():g}")
        return "done"

    async def report(self, ctx: Context, size: int, times: int = 1) -> str:
        for index in range(times):
            await ctx.progress(index, message="x" * size)
        return "reported"


def echo(text: str, *fields: str, id: int = 1) -> bytes:
    return call("echo", {"text": text}, *fields, id=id)


def wait(seconds: float, *fields: str, id: int = 1) -> bytes:
    return call("wait", {"seconds": seconds}, *fields, id=id)


def report(size: int, times: int) -> bytes:
    return call("report", {"size": size, "times": times}, token=1)


def in_chunks(data: bytes, *sizes: int) -> bytes:
    """A POST with its body in chunks of those sizes and one with the rest."""
    head, body = data.split(b"\r\n\r\n", 1)
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    chunks = b""
    for size in [*sizes, len(body)]:
        chunks += b"%x\r\n%b\r\n" % (len(body[:size]), body[:size])
        body = body[size:]
    return b"\r\n".join([*lines, b"Transfer-Encoding: chunked", b"", chunks + b"0\r\nTrailer: x\r\n\r\n"])


async def messages(client: Client) -> list[dict]:
    """The messages of a stream whose head has been read."""
    data = b""
    while piece := await client.piece():
        data += piece
    return [json.loads(line[6:]) for line in data.split(b"\n") if line.startswith(b"data: ") and line[6:]]


def refusal(data: bytes, status: int) -> str:
    """Why it is refused, in the one response that *data* is, and that is the last of its connection."""
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), data
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    assert (fields["content-type"], fields["connection"]) == ("application/json", "close")
    assert fields["content-length"] == str(len(body))
    message = json.loads(body)
    assert (message["id"], message["error"]["code"]) == (None, -32600)
    reason: str = message["error"]["message"]
    return reason


# ----- Requests and responses


async def test_serves_one_request_after_the_other(autojump_clock):
    async with direct(Tools().server) as served:
        client = served.connect()
        for number in range(3):
            response = await client.ask(echo(f"hello {number}", id=number + 1))
            assert (response.status, response.text, response.json["id"]) == (200, f"hello {number}", number + 1)
            assert "connection" not in response.headers
            assert response.headers["date"].endswith(" GMT")
        assert served.front.connections == 1


async def test_a_connection_goes_on_after_a_call_that_was_cancelled(autojump_clock):
    tools = Tools()

    @tools.server.tool
    async def crowd(late: bool) -> str:
        """Waits in two tasks, one of which fails when the call is cancelled."""

        async def fail() -> None:
            try:
                await trio.sleep(60)
            finally:
                if late:
                    raise ValueError("too late")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            tools.began.set()
            await trio.sleep(60)
        raise AssertionError

    async with direct(tools.server) as served:
        client, other = served.connect(), served.connect()
        session = (await other.ask(post(INITIALIZE))).headers["mcp-session-id"]
        of_session = (f"Mcp-Session-Id: {session}", "MCP-Protocol-Version: 2025-11-25")

        def legacy(method: str, params: object, **more: object) -> bytes:
            return post({"jsonrpc": "2.0", "method": method, "params": params, **more}, *of_session, ONLY_JSON)

        await other.ask(legacy("notifications/initialized", {}))
        calls = [("wait", {"seconds": 60}), ("crowd", {"late": False}), ("crowd", {"late": True})] * 2
        for number, (name, arguments) in enumerate(calls):
            tools.began = trio.Event()
            await client.send(legacy("tools/call", {"name": name, "arguments": arguments}, id=number))
            await tools.began.wait()
            await other.ask(legacy("notifications/cancelled", {"requestId": number}))
            ended = await client.response()
            if arguments.get("late"):
                assert ended.json["error"]["message"] == "Internal error"
            else:
                assert (ended.status, ended.body) == (202, b"")
            response = await client.ask(legacy("tools/call", {"name": "echo", "arguments": {"text": "on"}}, id=-number))
            assert response.text == "on"
            assert trio.current_time() < 60


async def test_answers_pipelined_requests_in_their_order(autojump_clock):
    tools = Tools()
    async with direct(tools.server) as served:
        client = served.connect()
        await client.send(wait(0.5, id=1), *(echo(str(number), id=number) for number in range(2, 6)))
        for number in range(1, 6):
            assert (await client.response()).json["id"] == number
        assert tools.log == ["done at 0.5"]


@pytest.mark.parametrize("sizes", [[], [7] * 5000, [1000] * 50], ids=["one chunk", "tiny chunks", "chunks"])
@pytest.mark.parametrize("packet", [1000, 30_000, 1_000_000])
async def test_reads_bodies_in_chunks_and_packets(autojump_clock, sizes, packet):
    async with direct(Tools().server) as served:
        client = served.connect()
        for data in in_chunks(echo("x" * 100_000), *sizes), echo("x" * 100_000):
            await client.send(data[:packet])
            for start in range(packet, len(data), packet):
                await client.stream.send_all(data[start : start + packet])
            assert (await client.response()).text == "x" * 100_000


async def test_gives_leave_to_send_a_body_only_when_it_is_wanted(autojump_clock):
    head, body = echo("hello", "Expect: 100-continue").split(b"\r\n\r\n", 1)
    async with direct(Tools().server) as served:
        client = served.connect()
        await client.send(head + b"\r\n\r\n")
        assert await client.stream.receive_some(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.stream.send_all(body)
        assert (await client.response()).text == "hello"
        # A client that does not wait needs no leave.
        assert (await client.ask(head + b"\r\n\r\n" + body)).text == "hello"
        # Who is refused is told so at once, and whether the body comes or not, nothing is taken for a request.
        await client.send(head.replace(b"application/json\r\n", b"text/plain\r\n", 1) + b"\r\n\r\n")
        await client.half_close()
        assert "Content-Type" in refusal(await client.rest(), 415)


async def test_answers_head_without_a_body(autojump_clock):
    async with direct(Tools().server) as served:
        client = served.connect()
        for _ in range(2):
            assert (await client.ask(request("HEAD", "/health")))[::2] == (200, b"")
            assert (await client.ask(HEALTH))[::2] == (200, b'{"status":"ok"}')
        assert (await client.ask(request("HEAD", "/nothing")))[::2] == (404, b"")


@pytest.mark.parametrize(
    "data",
    [request("GET", "/health", "Connection: close"), request("GET", "/health", version="1.0")],
    ids=["Connection: close", "HTTP/1.0"],
)
async def test_closes_when_the_client_wants_no_more(autojump_clock, data):
    async with direct(Tools().server) as served:
        client = served.connect()
        await client.send(data, HEALTH)
        await client.half_close()
        answer = await client.rest()
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"connection: close\r\n" in answer
        assert answer.endswith(b'\r\n\r\n{"status":"ok"}')
        assert answer.count(b"HTTP/1.1") == 1


async def test_streams_in_chunks_and_goes_on(autojump_clock):
    async with direct(Tools().server) as served:
        client = served.connect()
        for _ in range(2):
            await client.send(report(5, 3))
            status, headers = await client.head()
            assert (status, headers["transfer-encoding"]) == (200, "chunked")
            assert "content-length" not in headers
            methods = [message.get("method") for message in await messages(client)]
            assert methods == [*["notifications/progress"] * 3, None]


async def test_streams_without_chunks_to_a_client_that_knows_none(autojump_clock):
    async with direct(Tools().server) as served:
        client = served.connect()
        await client.send(report(5, 3).replace(b"HTTP/1.1", b"HTTP/1.0"))
        head, _, body = (await client.rest()).partition(b"\r\n\r\n")
        assert b"transfer-encoding" not in head
        assert b"content-length" not in head
        assert b"connection: close" in head
        assert body.count(b"data: {") == 4
        assert body.endswith(b"\n\n")


async def test_a_stream_begins_with_its_head_and_first_piece_in_one_write(autojump_clock):
    async with direct(Tools().server) as served:
        client = served.connect()
        await client.send(report(5, 1))
        answer = await client.stream.receive_some(65536)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream")
        assert answer.partition(b"\r\n\r\n")[2]


# ----- Limits


async def test_refuses_a_body_that_says_it_is_too_long_before_it_comes(autojump_clock):
    async with direct(Tools().server, max_body=1000) as served:
        client = served.connect()
        await client.send(request("POST", "/mcp", JSON, "Content-Length: 100000000"))
        # The client is in the middle of its body, and gets to read the answer all the same.
        for _ in range(10):
            await client.stream.send_all(b"x" * 100_000)
        await client.half_close()
        assert "1000 bytes" in refusal(await client.rest(), 413)


async def test_refuses_chunks_that_become_too_long(autojump_clock):
    async with direct(Tools().server, max_body=1000) as served:
        client = served.connect()
        await client.send(request("POST", "/mcp", JSON, "Transfer-Encoding: chunked"))
        for _ in range(30):
            await client.stream.send_all(b"64\r\n%b\r\n" % (b"x" * 100))
        await client.half_close()
        refusal(await client.rest(), 413)


async def test_a_client_that_goes_on_sending_is_left_after_a_while(autojump_clock):
    async with direct(Tools().server, max_body=1000) as served:
        client = served.connect()
        await client.send(request("POST", "/mcp", JSON, "Content-Length: 100000000"))
        with pytest.raises(trio.BrokenResourceError):
            while True:
                await client.stream.send_all(b"x")
                await trio.sleep(0.1)
        assert 5.0 <= trio.current_time() <= 6.0


async def test_a_small_body_that_nobody_wants_does_not_cost_the_connection(autojump_clock):
    unwanted = request("POST", "/nothing", "Content-Length: 1000", body=b"x" * 1000)
    async with direct(Tools().server) as served:
        client = served.connect()
        assert (await client.ask(unwanted)).status == 404
        # Also when the answer is sent before the body has come.
        await client.send(unwanted[:-500])
        assert (await client.response()).status == 404
        await client.stream.send_all(unwanted[-500:])
        assert (await client.ask(HEALTH)).status == 200


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01", 400),
        (request("GET", "/health", "Bad : x"), 400),
        (request("GET", "/health", "X: " + "x" * 70_000), 431),
        (request("GET", "/" + "x" * 9000), 414),
        (request("BREW", "/"), 501),
        (request("GET", "/", version="3.0"), 505),
    ],
)
async def test_what_is_no_http_gets_an_answer_and_the_end(autojump_clock, data, status):
    async with direct(Tools().server) as served:
        client = served.connect()
        # What came before is answered, what comes behind is not.
        await client.send(HEALTH, data, HEALTH)
        await client.half_close()
        first, _, rest = (await client.rest()).partition(b'{"status":"ok"}')
        assert first.startswith(b"HTTP/1.1 200 OK")
        refusal(rest, status)


async def test_malformed_chunks_are_answered(autojump_clock):
    async with direct(Tools().server) as served:
        client = served.connect()
        await client.send(request("POST", "/mcp", JSON, "Transfer-Encoding: chunked", body=b"1\r\nx\r\nnonsense\r\n"))
        await client.half_close()
        assert "chunk" in refusal(await client.rest(), 400)


async def test_a_new_connection_must_say_something_in_time(autojump_clock):
    async with direct(Tools().server, header_timeout=10.0) as served:
        assert await served.connect().rest() == b""
        assert 10.0 <= trio.current_time() <= 11.0
        await wait_all_tasks_blocked()
        assert served.front.connections == 0


@pytest.mark.parametrize("before", [0, 1])
async def test_a_header_must_come_in_time(autojump_clock, before):
    async with direct(Tools().server, header_timeout=10.0) as served:
        client = served.connect()
        for _ in range(before):
            await client.ask(HEALTH)
            await trio.sleep(30.0)
        began = trio.current_time()
        for byte in b"GET /health HT":
            await client.stream.send_all(bytes([byte]))
            await trio.sleep(0.5)
        refusal(await client.rest(), 408)
        assert 10.0 <= trio.current_time() - began <= 11.0


async def test_a_header_behind_another_request_must_come_in_time(autojump_clock):
    async with direct(Tools().server, header_timeout=10.0) as served:
        client = served.connect()
        await client.send(HEALTH + HEALTH[:10])
        assert (await client.response()).status == 200
        refusal(await client.rest(), 408)
        assert 10.0 <= trio.current_time() <= 11.0


async def test_a_body_must_come_in_time(autojump_clock):
    async with direct(Tools().server, body_timeout=20.0) as served:
        client = served.connect()
        await client.send(request("POST", "/mcp", JSON, "Content-Length: 100"))
        for _ in range(19):
            await client.stream.send_all(b" ")
            await trio.sleep(1.0)
        refusal(await client.rest(), 408)
        assert 20.0 <= trio.current_time() <= 21.0


async def test_a_body_that_nobody_wants_must_come_in_time(autojump_clock):
    async with direct(Tools().server, body_timeout=20.0) as served:
        client = served.connect()
        assert (await client.ask(request("POST", "/nothing", "Content-Length: 100"))).status == 404
        assert await client.rest() == b""
        assert 20.0 <= trio.current_time() <= 21.0


async def test_an_idle_connection_is_closed_in_time(autojump_clock):
    async with direct(Tools().server, keep_alive=75.0) as served:
        client = served.connect()
        for _ in range(3):
            await client.ask(HEALTH)
            await trio.sleep(70.0)
        assert await client.rest() == b""
        assert 215.0 <= trio.current_time() <= 216.0


async def test_a_call_may_take_longer_than_any_limit_of_the_connection(autojump_clock):
    async with direct(
        Tools().server, header_timeout=1.0, body_timeout=1.0, keep_alive=1.0, write_timeout=1.0
    ) as served:
        assert (await served.connect().ask(wait(50.0, ONLY_JSON))).text == "done"


async def test_a_client_that_does_not_read_its_answer_is_cut_off(autojump_clock):
    async with direct(Tools().server, write_timeout=30.0) as served:
        client = served.connect(buffered=False)
        await client.send(echo("hello"))
        await trio.sleep(29.0)
        assert served.front.connections == 1
        await trio.sleep(2.5)
        assert served.front.connections == 0


async def test_a_client_that_does_not_read_its_stream_is_cut_off(autojump_clock):
    async with direct(Tools().server, write_timeout=30.0) as served:
        client = served.connect(buffered=False)
        await client.send(report(10, 2))
        # It reads a part of the first chunk, so nothing can follow that.
        assert len(await client.stream.receive_some(50)) == 50
        await trio.sleep(29.0)
        assert served.front.connections == 1
        await trio.sleep(2.5)
        assert served.front.connections == 0


async def test_a_slow_reader_gets_it_all(autojump_clock):
    async with direct(Tools().server, write_timeout=30.0) as served:
        client = served.connect(buffered=False)
        await client.send(report(10, 3))
        data = b""
        while not data.endswith(b"\r\n0\r\n\r\n"):
            await trio.sleep(0.1)
            data += await client.stream.receive_some(10)
        assert data.count(b"data: {") == 4
        assert trio.current_time() > 5.0


# ----- The client's end


@pytest.mark.parametrize("how", ["closes", "closes behind another request", "only half-closes"])
async def test_a_modern_call_is_cancelled_at_once_when_the_client(autojump_clock, how):
    tools = Tools()
    async with direct(tools.server) as served:
        client = served.connect()
        await client.send(wait(100.0))
        await tools.began.wait()
        await trio.sleep(0.5)
        if "behind" in how:
            await client.send(echo("later"))
        await (client.half_close() if "half" in how else client.stream.aclose())
        await wait_all_tasks_blocked()
        assert tools.log == ["cancelled at 0.5"]
        assert served.front.connections == 0


async def initialized(served) -> str:
    """The id of a new session, as a field."""
    session = (await served.connect().ask(post(INITIALIZE))).headers["mcp-session-id"]
    return f"Mcp-Session-Id: {session}"


def legacy_wait(seconds: float, session: str) -> bytes:
    params = {"name": "wait", "arguments": {"seconds": seconds}}
    return post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, session)


@pytest.mark.parametrize("seconds", [0.5, 3.0], ids=["before it streams", "after"])
async def test_a_legacy_call_goes_on_without_its_client(autojump_clock, seconds):
    tools = Tools()
    async with direct(tools.server) as served:
        session = await initialized(served)
        client = served.connect()
        await client.send(legacy_wait(seconds, session))
        await tools.began.wait()
        await client.stream.aclose()
        await trio.sleep(4.0)
        assert tools.log == [f"done at {seconds:g}"]


@pytest.mark.parametrize("seconds", [0.5, 3.0], ids=["before it streams", "after"])
async def test_a_request_that_came_whole_is_run_though_the_client_has_left(autojump_clock, seconds):
    tools = Tools()
    async with direct(tools.server) as served:
        session = await initialized(served)
        client = served.connect()
        await client.send(legacy_wait(seconds, session), request("DELETE", "/mcp", session))
        await client.stream.aclose()
        await trio.sleep(4.0)
        assert tools.log == [f"done at {seconds:g}"]
        assert (await served.connect().ask(request("DELETE", "/mcp", session))).status == 404


async def test_who_half_closes_gets_the_answers_to_what_came_before(autojump_clock):
    async with direct(Tools().server) as served:
        client = served.connect()
        await client.send(echo("one"), HEALTH)
        await client.half_close()
        answer = await client.rest()
        assert b'"one"' in answer
        assert answer.endswith(b'{"status":"ok"}')


@pytest.mark.parametrize("data", [b"", b"GET /he", request("POST", "/mcp", JSON, "Content-Length: 10", body=b"x")])
async def test_a_client_that_leaves_within_a_request_leaves_nothing(autojump_clock, data):
    async with direct(Tools().server) as served:
        client = served.connect()
        await client.send(data)
        await wait_all_tasks_blocked()
        assert served.front.connections == 1
        await client.stream.aclose()
        await wait_all_tasks_blocked()
        assert served.front.connections == 0


# ----- The server's end


async def test_stops_in_good_order(autojump_clock):
    tools = Tools()
    async with direct(tools.server) as served:
        new, idle, busy, beginning = (served.connect() for _ in range(4))
        await idle.ask(HEALTH)
        await busy.send(wait(5.0, ONLY_JSON))
        await beginning.stream.send_all(HEALTH[:10])
        await wait_all_tasks_blocked()
        await served.front.stop()
        assert await new.rest() == await idle.rest() == b""
        assert trio.current_time() == 0.0
        await beginning.stream.send_all(HEALTH[10:])
        for client in beginning, busy:
            response = await client.response()
            assert (response.status, response.headers["connection"]) == (200, "close")
            assert await client.rest() == b""
        assert tools.log == ["done at 5"]
        await wait_all_tasks_blocked()
        assert served.front.connections == 0


async def test_cancelled_it_closes_everything_at_once(autojump_clock):
    tools = Tools()
    async with direct(tools.server) as served:
        clients = [served.connect() for _ in range(3)]
        await clients[0].ask(HEALTH)
        await clients[1].send(wait(50.0))
        await clients[2].stream.send_all(b"GET")
        await tools.began.wait()
        served.nursery.cancel_scope.cancel()
    for client in clients:
        assert await client.rest() == b""
    assert tools.log == ["cancelled at 0"]


async def test_a_connection_that_fails_does_not_take_others_with_it(autojump_clock, caplog):
    async with direct(Tools().server) as served:
        failing, other = served.connect(), served.connect()
        await other.ask(HEALTH)
        failing_stream = failing.stream
        assert isinstance(failing_stream, trio.StapledStream)
        await wait_all_tasks_blocked()
        for connection in served.front._service.connections:
            if not connection.parser._target:  # it has had no request yet
                connection.parser = None
        await failing.send(HEALTH)
        with pytest.raises(ClosedError):
            await failing.response()
        assert "A connection failed" in caplog.text
        caplog.clear()
        assert (await other.ask(HEALTH)).status == 200
