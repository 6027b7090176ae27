"""What outlives a request is its user's: to anybody else it is byte for byte what does not exist."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from trio.testing import MockClock

from mcpd import Context, Principal, Server
from mcpd.server.principal import identity_of
from tests.auth.users import ADA, ADA_AGAIN, BOB, Owned, bearer, guarded, log_in, seen
from tests.harness import Http, Response, rpc
from tests.requirements import requirement

TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
ASKS = {"elicitation": {"form": {}}}
NOBODYS = "u" * 24
"""A session id of the right form that was never given out."""


class Name(msgspec.Struct):
    name: str


@pytest.fixture
def server() -> Server:
    server = Server("bound")

    @server.tool
    async def keep(value: str, ctx: Context) -> str:
        return await ctx.handles.create(value)

    @server.tool
    async def kept(handle: str, ctx: Context) -> str:
        return str(await ctx.handles.get(handle))

    @server.tool
    async def forget(handle: str, ctx: Context) -> bool:
        return await ctx.handles.delete(handle)

    @server.tool
    async def greet(ctx: Context) -> str:
        first = await ctx.elicit("Your name?", Name, key="first")
        last = await ctx.elicit("And the rest?", Name, key="last")
        assert isinstance(first.content, Name)
        assert isinstance(last.content, Name)
        return f"Hello {first.content.name} {last.content.name}"

    @server.tool(task="optional")
    async def work(ctx: Context) -> str:
        answer = await ctx.elicit("Go on?", Name, key="go")
        assert isinstance(answer.content, Name)
        return f"done for {answer.content.name}"

    return server


REQUESTS: dict[str, Callable[[Owned], Awaitable[Response]]] = {
    "a request": lambda session: session.post("tools/list", id=5),
    "a call": lambda session: session.call("keep", {"value": "x"}, id=5),
    "a notification": lambda session: session.notify("notifications/initialized"),
    "a cancellation": lambda session: session.notify("notifications/cancelled", {"requestId": 7}),
    "an answer": lambda session: session.send({"jsonrpc": "2.0", "id": "x", "result": {}}),
    "the end": lambda session: session.delete(),
    "a stream": lambda session: session.http.request(
        "GET", headers=[*session.headers(), ("Accept", "text/event-stream")]
    ),
    "a stream resumed": lambda session: session.http.request(
        "GET", headers=[*session.headers(), ("Accept", "text/event-stream"), ("Last-Event-ID", "0.1")]
    ),
    "a batch": lambda session: session.send([rpc("ping", id=1)]),
}


@pytest.mark.parametrize("what", REQUESTS)
@requirement("F101", "F102")
async def test_r67_a_session_id_alone_gives_nothing(
    autojump_clock: MockClock, server: Server, front: str, tmp_path: Path, what: str
):
    ask = REQUESTS[what]
    async with guarded(server, tmp_path, front=front) as http:
        session = await log_in(http, version="2025-03-26" if what == "a batch" else "2025-11-25")
        async with session.get() as stream:
            assert stream.status == 200
            stranger = await ask(session.by(BOB))
            assert stranger.status == 404
            assert seen(stranger) == seen(await ask(session.by(BOB, NOBODYS)))
            # Nothing has happened to it.
            server.notify_tools_changed()
            assert (await stream.message())["method"] == "notifications/tools/list_changed"
        assert (await session.post("tools/list")).status == 200
        # A new token of the same user is the same user.
        assert (await session.by(ADA_AGAIN).post("tools/list")).status == 200
        assert (await session.by(ADA_AGAIN).delete()).status == 204
        assert (await session.post("tools/list")).status == 404


@requirement("F102", "F103")
async def test_r67_a_question_is_answered_by_its_user_alone(
    autojump_clock: MockClock, server: Server, front: str, tmp_path: Path
):
    async with guarded(server, tmp_path, front=front) as http:
        session = await log_in(http, capabilities=ASKS)
        async with session.open_call("greet") as stream:
            for name in ("Ada", "Lovelace"):
                question = await stream.message()
                assert question["method"] == "elicitation/create"

                def answer(name: str, question: Any = question) -> dict[str, Any]:
                    result = {"action": "accept", "content": {"name": name}}
                    return {"jsonrpc": "2.0", "id": question["id"], "result": result}

                stranger = await session.by(BOB).send(answer("Eve"))
                assert seen(stranger) == seen(await session.by(BOB, NOBODYS).send(answer("Eve")))
                assert stranger.status == 404
                # Not from a session of his own either.
                assert (await (await log_in(http, BOB)).send(answer("Eve"))).status == 202
                assert (await session.send(answer(name))).status == 202
            assert (await stream.message())["result"]["content"][0]["text"] == "Hello Ada Lovelace"


@requirement("F102")
async def test_r67_a_stream_is_resumed_by_its_user_alone(
    autojump_clock: MockClock, server: Server, front: str, tmp_path: Path
):
    async with guarded(server, tmp_path, front=front) as http:
        session = await log_in(http, capabilities=ASKS)
        async with session.open_call("greet") as stream:
            await stream.message()
            last = stream.last_id
            assert last is not None
            stream.cut()
        for token, id_ in ((BOB, session.id), (BOB, NOBODYS), (ADA, NOBODYS), (BOB, (await log_in(http, BOB)).id)):
            async with session.by(token, id_).get(f"{last.rpartition('.')[0]}.0") as resumed:
                assert resumed.status == (400 if id_ not in {session.id, NOBODYS} else 404)
        async with session.by(ADA_AGAIN).get(last) as resumed:
            assert resumed.status == 200


async def modern(http: Http, token: str, method: str, params: dict[str, Any]) -> Response:
    name = params.get("taskId")
    return await http.modern(method, params, name=name, headers=bearer(token), capabilities=TASKS | ASKS)


async def call(http: Http, token: str, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> Response:
    return await modern(http, token, "tools/call", {"name": tool, "arguments": arguments or {}, **more})


@requirement("T249")
async def test_handles(autojump_clock: MockClock, server: Server, front: str, tmp_path: Path):
    async with guarded(server, tmp_path, front=front) as http:
        handle = (await call(http, ADA, "keep", {"value": "mine"})).text
        unknown = handle[:-24] + NOBODYS
        for tool in ("kept", "forget"):
            stranger = await call(http, BOB, tool, {"handle": handle})
            assert seen(stranger) == seen(await call(http, BOB, tool, {"handle": unknown}))
        assert (await call(http, ADA_AGAIN, "kept", {"handle": handle})).text == "mine"
        # One that a session of the user's made is the user's as well, and the other way round.
        assert (await (await log_in(http, ADA)).call("kept", {"handle": handle})).text == "mine"
        legacy = await log_in(http, BOB)
        stranger = await legacy.call("kept", {"handle": handle}, id=3)
        assert seen(stranger) == seen(await legacy.call("kept", {"handle": unknown}, id=3))


@requirement("T249")
async def test_request_states(autojump_clock: MockClock, server: Server, front: str, tmp_path: Path):
    async with guarded(server, tmp_path, front=front) as http:

        def answers(key: str, name: str) -> dict[str, Any]:
            return {key: {"action": "accept", "content": {"name": name}}}

        first = (await call(http, ADA, "greet")).result
        assert first["resultType"] == "input_required"
        second = (await call(http, ADA, "greet", inputResponses=answers("first", "Ada"))).result
        state = second["requestState"]
        garbage = state[:-8] + "AAAAAAAA"
        stranger = await call(http, BOB, "greet", inputResponses=answers("last", "Eve"), requestState=state)
        nobody = await call(http, BOB, "greet", inputResponses=answers("last", "Eve"), requestState=garbage)
        assert stranger.error["code"] == -32602
        assert seen(stranger) == seen(nobody)
        done = await call(http, ADA_AGAIN, "greet", inputResponses=answers("last", "L."), requestState=state)
        assert done.text == "Hello Ada L."


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_tasks(autojump_clock: MockClock, server: Server, front: str, tmp_path: Path, method: str):
    async with guarded(server, tmp_path, front=front) as http:
        task = (await call(http, ADA, "work")).result["taskId"]
        unknown = task[:-24] + NOBODYS
        more = {"inputResponses": {"go": {"action": "accept", "content": {"name": "Eve"}}}}
        params = more if method == "tasks/update" else {}
        stranger = await modern(http, BOB, method, {"taskId": task, **params})
        assert stranger.error["code"] == -32602
        assert seen(stranger) == seen(await modern(http, BOB, method, {"taskId": unknown, **params}))
        # He does not hear of it either.
        wanted = {"notifications": {"taskIds": [task]}}
        listening = http.open_modern("subscriptions/listen", wanted, headers=bearer(BOB), capabilities=TASKS)
        mine = http.open_modern("subscriptions/listen", wanted, headers=bearer(ADA_AGAIN), capabilities=TASKS)
        async with listening as his, mine as hers:
            assert (await his.message())["method"] == "notifications/subscriptions/acknowledged"
            assert (await hers.message())["method"] == "notifications/subscriptions/acknowledged"
            more["inputResponses"]["go"]["content"]["name"] = "Ada"
            answered = await modern(http, ADA_AGAIN, "tasks/update", {"taskId": task, **more})
            assert "result" in answered.answer
            while (await hers.message())["params"]["status"] != "completed":
                pass
            assert b"notifications/tasks" not in his.raw
        told = (await modern(http, ADA, "tasks/get", {"taskId": task})).result
        assert told["result"]["content"][0]["text"] == "done for Ada"


async def test_legacy_tasks(autojump_clock: MockClock, server: Server, front: str, tmp_path: Path):
    async with guarded(server, tmp_path, front=front) as http:
        session, other = await log_in(http, capabilities=ASKS), await log_in(http, BOB, capabilities=ASKS)
        params = {"name": "work", "arguments": {}, "task": {}}
        task = (await session.post("tools/call", params)).result["task"]["taskId"]
        unknown = task[:-24] + NOBODYS
        for method in ("tasks/get", "tasks/cancel", "tasks/result"):
            stranger = await other.post(method, {"taskId": task}, id=9)
            assert seen(stranger) == seen(await other.post(method, {"taskId": unknown}, id=9))
        assert (await other.post("tasks/list")).result["tasks"] == []
        assert [each["taskId"] for each in (await session.post("tasks/list")).result["tasks"]] == [task]


async def test_http_sse_belongs_to_who_opened_it(autojump_clock: MockClock, server: Server, front: str, tmp_path: Path):
    async with guarded(server, tmp_path, front=front, legacy_sse=True) as http:
        message = rpc("tools/call", {"name": "keep", "arguments": {"value": "x"}}, id=1)
        assert (await http.request("GET", "/sse")).status == 401
        assert (await http.request("POST", "/messages/" + NOBODYS, json=message)).status == 401
        async with http.open("GET", "/sse", headers=bearer(ADA)) as stream:
            event = await stream.event()
            assert event is not None
            path = "/" + event.data
            stranger = await http.request("POST", path, headers=bearer(BOB), json=message)
            assert stranger.status == 404
            nobody = await http.request("POST", "/messages/" + NOBODYS, headers=bearer(BOB), json=message)
            assert seen(stranger) == seen(nobody)
            assert (await http.request("POST", path, headers=bearer(ADA_AGAIN), json=message)).status == 202


async def test_the_same_name_at_another_issuer_is_another_user():
    ada, other = Principal("https://a.example", "ada"), Principal("https://b.example", "ada")
    assert identity_of(ada) != identity_of(other)
    # Neither can be mistaken for the other by how the two are put together.
    assert identity_of(Principal("a", "b,c")) != identity_of(Principal("a,b", "c"))
    assert identity_of(Principal("a", "b", scopes=frozenset({"x"}), client_id="c")) == identity_of(Principal("a", "b"))
    assert identity_of(None) is None
