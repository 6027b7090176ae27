"""When an exchange is over, no object of it is alive: on real sockets, and without a garbage collector."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from msgspec import Struct

import mcpd
from mcpd import Context
from mcpd.listening import Listening
from tests.harness import Client, Connection, living
from tests.harness.ends import WINDOW, SocketEnd
from tests.reports.rig import PER_REQUEST, Rig
from tests.stores.redis_server import until

KINDS = (*PER_REQUEST, Listening)
ELICITATION = {"elicitation": {}}
ANSWER = {"action": "accept", "content": {"name": "Ada"}}


class Name(Struct):
    name: str


class Served(Client):
    """A server in this process, on a port."""

    def __init__(self, url: str) -> None:
        super().__init__()
        host, _, port = url.split("/")[2].rpartition(":")
        self._address = (host, int(port))

    def connect(self, *, window: int = WINDOW) -> Connection:
        return Connection(SocketEnd.connect(self._address))


@asynccontextmanager
async def served(rig: Rig, front: str) -> AsyncGenerator[Served]:
    @rig.server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Who are you?", Name, key="name")
        return answer.action

    @rig.server.tool
    async def fail() -> str:
        raise LookupError("a fault")

    async with trio.open_nursery() as nursery:
        serve = partial(mcpd.serve, rig.server, front=front, port=0, stream_after=0.02, metrics=True)
        yield Served(await nursery.start(serve))
        nursery.cancel_scope.cancel()


# ----- What can become of an exchange


async def json_modern(http: Served, rig: Rig) -> None:
    assert (await http.call("echo", {"text": "x"})).text == "x"


async def json_legacy(http: Served, rig: Rig) -> None:
    session = await http.initialize()
    assert (await session.call("echo", {"text": "x"})).text == "x"
    assert (await session.delete()).status == 204


async def sse_modern(http: Served, rig: Rig) -> None:
    params = {"name": "steps", "arguments": {"count": 2, "pause": 0.05}, "_meta": {"progressToken": 1}}
    answered = await http.modern("tools/call", params)
    assert len(answered.messages) == 3


async def sse_legacy(http: Served, rig: Rig) -> None:
    session = await http.initialize()
    answered = await session.call("steps", {"count": 2, "pause": 0.05}, progress=1)
    assert len(answered.messages) == 3


async def quiet_modern(http: Served, rig: Rig) -> None:
    assert (await http.call("wait", {"seconds": 0.5})).text == "waited 0.5"


async def quiet_legacy(http: Served, rig: Rig) -> None:
    session = await http.initialize()
    assert (await session.call("wait", {"seconds": 0.5})).text == "waited 0.5"


async def error_modern(http: Served, rig: Rig) -> None:
    assert (await http.call("unknown")).error["code"] == -32602
    assert (await http.call("fail")).result["isError"]
    assert (await http.modern("no/such")).error["code"] == -32601


async def error_legacy(http: Served, rig: Rig) -> None:
    session = await http.initialize()
    assert (await session.call("unknown")).error["code"] == -32602
    assert (await session.call("fail")).result["isError"]
    assert (await session.post("no/such")).error["code"] == -32601
    assert (await http.request("POST", body=b"{", headers={"Content-Type": "application/json"})).status == 400


async def asked_modern(http: Served, rig: Rig) -> None:
    params = {"name": "ask", "arguments": {}}
    told = (await http.modern("tools/call", params, capabilities=ELICITATION)).result
    params |= {"inputResponses": dict.fromkeys(told["inputRequests"], ANSWER)}
    if "requestState" in told:
        params["requestState"] = told["requestState"]
    assert (await http.modern("tools/call", params, capabilities=ELICITATION)).text == "accept"


async def asked_legacy(http: Served, rig: Rig) -> None:
    session = await http.initialize(capabilities=ELICITATION)
    async with session.open_call("ask") as stream:
        question = await stream.message()
        await session.send({"jsonrpc": "2.0", "id": question["id"], "result": ANSWER})
        assert (await stream.message())["result"]["content"][0]["text"] == "accept"


async def cancelled_legacy(http: Served, rig: Rig) -> None:
    session = await http.initialize()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(session.call, "hold", id=7))
        await rig.held()
        await session.notify("notifications/cancelled", {"requestId": 7})
    await rig.ended("cancelled")


async def lost_modern(http: Served, rig: Rig) -> None:
    for number, leave in enumerate((Connection.cut, Connection.aclose), 1):
        async with http.open_modern("tools/call", {"name": "hold", "arguments": {}}) as stream:
            await rig.held()
            left = leave(stream.connection)
            if left is not None:
                await left
            await rig.ended("cancelled", number)


async def lost_legacy(http: Served, rig: Rig) -> None:
    session = await http.initialize()
    async with session.open_call("hold") as stream:
        await rig.held()
        stream.cut()
    assert (await session.post("ping")).status == 200
    rig.release.set()
    await rig.ended("done")


async def listen_modern(http: Served, rig: Rig) -> None:
    async with http.open_modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}) as stream:
        await stream.message()
        rig.server.notify_tools_changed()
        await stream.message()
        stream.cut()


async def listen_legacy(http: Served, rig: Rig) -> None:
    session = await http.initialize()
    async with session.get() as stream:
        await stream.event()
        stream.cut()
    async with session.get() as stream:
        await stream.event()
        assert (await session.delete()).status == 204
        assert await stream.rest() == []


async def resumed_legacy(http: Served, rig: Rig) -> None:
    session = await http.initialize()
    async with session.open_call("steps", {"count": 3, "pause": 0.1}, progress=1) as stream:
        await stream.message()
        last = stream.last_id
        stream.cut()
    async with session.get(last) as stream:
        assert (await stream.rest())[-1]["result"]["content"][0]["text"] == "3 steps"


EXCHANGES: list[Callable[[Served, Rig], Awaitable[None]]] = [
    json_modern,
    json_legacy,
    sse_modern,
    sse_legacy,
    quiet_modern,
    quiet_legacy,
    error_modern,
    error_legacy,
    asked_modern,
    asked_legacy,
    cancelled_legacy,
    lost_modern,
    lost_legacy,
    listen_modern,
    listen_legacy,
    resumed_legacy,
]


@pytest.mark.usefixtures("no_gc")
@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda each: each.__name__.replace("_", ", "))
async def test_nothing_of_an_exchange_is_left(
    front: str, exchange: Callable[[Served, Rig], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = living(*KINDS)
    rig = Rig()
    async with served(rig, front) as http:
        # What is logged of a tool that fails holds its traceback, for as long as pytest keeps the record.
        monkeypatch.setattr(logging.getLogger("mcpd.handlers"), "disabled", True)
        await exchange(http, rig)
        await until(lambda: living(*KINDS) == before)
