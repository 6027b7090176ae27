"""When a token expires, the streams that it has opened end, and their clients come with another one."""

import time
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpd import Server
from mcpd.auth.claims import LEEWAY, Rules
from mcpd.server.principal import Principal
from tests.auth.users import bearer, log_in
from tests.harness import rpc, serving


class Expiring:
    """A verifier whose tokens say for how many seconds they are good; ``0`` is for ever."""

    async def verify(self, token: str) -> Principal | None:
        await trio.lowlevel.checkpoint()
        left = float(token)
        return Principal("https://as.example", "ada", expires_at=time.time() + left if left else None)


def tools() -> Server:
    server = Server("s")

    @server.tool
    async def tool() -> None: ...

    return server


async def rest(stream: Any) -> tuple[list[Any], float]:
    """What comes on a stream until the server ends it in good order, and how many seconds that takes."""
    began = trio.current_time()
    messages: list[Any] = []
    while (event := await stream.event(within=1_000)) is not None:
        messages += [event.json] if event.data else []
    return messages, trio.current_time() - began


async def test_a_get_stream_ends_with_the_token_that_opened_it(autojump_clock, front):
    async with serving(tools(), verifier=Expiring(), front=front) as http:
        session = await log_in(http, "1000")
        async with session.by("100").get() as stream:
            http.endpoint.core.server.notify_tools_changed()
            messages, seconds = await rest(stream)
        assert [message["method"] for message in messages] == ["notifications/tools/list_changed"]
        assert 99 < seconds < 101
        async with session.by("50").get(stream.last_id) as resumed:
            assert 49 < (await rest(resumed))[1] < 51
        await wait_all_tasks_blocked()
        assert http.endpoint.streams == set()


@pytest.mark.usefixtures("no_gc")
async def test_a_subscription_ends_with_its_result_when_its_token_expires(autojump_clock, front):
    async with serving(tools(), verifier=Expiring(), front=front) as http:
        params = {"notifications": {"toolsListChanged": True}}
        async with http.open_modern("subscriptions/listen", params, id="x", headers=bearer("100")) as stream:
            await trio.sleep(99)
            http.endpoint.core.server.notify_tools_changed()
            messages, seconds = await rest(stream)
        assert [message.get("method") for message in messages] == [
            "notifications/subscriptions/acknowledged",
            "notifications/tools/list_changed",
            None,
        ]
        assert messages[-1]["result"]["resultType"] == "complete"
        assert 0 < seconds < 2
        await wait_all_tasks_blocked()
        assert http.endpoint.streams == set()


async def test_a_stream_whose_token_has_no_known_end_stays_open(autojump_clock, front):
    async with serving(tools(), verifier=Expiring(), front=front) as http:
        session = await log_in(http, "1000")
        async with session.by("0").get() as stream:
            with trio.move_on_after(900) as patience:
                await rest(stream)
            assert patience.cancelled_caught


@pytest.mark.usefixtures("no_gc")
async def test_an_sse_stream_of_2024_ends_with_its_token_once_its_calls_are_answered(autojump_clock, front):
    server = tools()

    @server.tool
    async def slow(seconds: float) -> str:
        await trio.sleep(seconds)
        return "done"

    async with serving(server, verifier=Expiring(), front=front, legacy_sse=True) as http:

        async def post(address: str, message: Any) -> int:
            return (await http.request("POST", address, headers=bearer("1000"), json=message)).status

        headers = bearer("100") | {"Accept": "text/event-stream"}
        async with http.open("GET", "/sse", headers=headers) as idle, http.open("GET", "/sse", headers=headers) as busy:
            addresses = []
            for stream in (idle, busy):
                addresses.append("/" + (await stream.event()).data)
                params = {
                    "protocolVersion": "2024-11-05",
                    "capabilities": {},
                    "clientInfo": {"name": "c", "version": "1"},
                }
                assert await post(addresses[-1], rpc("initialize", params, id=0)) == 202
                assert (await stream.message())["id"] == 0
                assert await post(addresses[-1], rpc("notifications/initialized")) == 202
            call = {"name": "slow", "arguments": {"seconds": 150}}
            assert await post(addresses[1], rpc("tools/call", call, id=1)) == 202
            messages, seconds = await rest(idle)
            assert messages == []
            assert 99 < seconds < 101
            (answer,), seconds = await rest(busy)
            assert answer["result"]["content"][0]["text"] == "done"
            assert 49 < seconds < 51
        for address in addresses:
            assert await post(address, rpc("ping", id=2)) == 404
        await wait_all_tasks_blocked()
        assert http.endpoint.streams == set()


@pytest.mark.parametrize(("said", "known"), [({"exp": 1_000}, 1_000 + LEEWAY), ({}, None)])
def test_a_token_is_accepted_until_its_end_and_the_leeway_of_clocks(said, known):
    rules = Rules("https://as.example", ["https://me.example"])
    claims = {"iss": "https://as.example", "aud": "https://me.example", "sub": "ada", **said}
    assert rules.principal(claims, 900.0, introspected=True).expires_at == known
