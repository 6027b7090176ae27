"""Tasks of 2025-11-25 (basic/utilities/tasks), rule by rule, over HTTP."""

import json
import re
from datetime import datetime
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpd import Server
from mcpd.errors import StoreError
from tests import wire
from tests.harness import rpc
from tests.requirements import requirement
from tests.tasks.jobs import RELATED, jobs, served

REVISION = "2025-11-25"
OLDER = ["2024-11-05", "2025-03-26", "2025-06-18"]
YES: dict[str, Any] = {"action": "accept", "content": {"sure": True}}
ELICITATION = {"elicitation": {}}
ALL = {"elicitation": {}, "sampling": {}}


def call(tool: str, arguments: dict[str, Any] | None = None, *, task: Any = None, token: Any = None) -> dict[str, Any]:
    params: dict[str, Any] = {"name": tool, "arguments": arguments or {}, "task": {} if task is None else task}
    return params if token is None else params | {"_meta": {"progressToken": token}}


async def begin(session: Any, tool: str, arguments: dict[str, Any] | None = None, **kwargs: Any) -> dict[str, Any]:
    """The task that a call has become."""
    response = await session.post("tools/call", call(tool, arguments, **kwargs))
    assert response.status == 200, response.body
    _check_schema("CreateTaskResult", response.result)
    task: dict[str, Any] = response.result["task"]
    return _checked(task)


async def get(session: Any, task_id: str) -> dict[str, Any]:
    result: dict[str, Any] = (await session.post("tasks/get", {"taskId": task_id})).result
    _check_schema("GetTaskResult", result)
    return _checked(result)


async def until(session: Any, task_id: str, *statuses: str) -> dict[str, Any]:
    with trio.fail_after(60):
        while True:
            found = await get(session, task_id)
            if found["status"] in statuses:
                return found
            await trio.sleep(found["pollInterval"] / 1000)


def _checked(task: dict[str, Any]) -> dict[str, Any]:
    expected = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}
    assert task.keys() - {"statusMessage"} == expected, task
    for name in ("createdAt", "lastUpdatedAt"):
        assert datetime.fromisoformat(task[name]).tzinfo is not None
    assert type(task["ttl"]) is int
    assert type(task["pollInterval"]) is int
    return task


def _check_schema(name: str, value: Any) -> None:
    if (wire.SPEC / "schema").exists():
        wire.check_schema(REVISION, name, value)


def related(message: dict[str, Any]) -> str:
    task_id: str = message["params"]["_meta"][RELATED]["taskId"]
    return task_id


# ----- What is offered


@requirement("W280", "M190", "C40")
async def test_tasks_are_declared_where_there_are_any():
    async with served(jobs()) as http:
        session = await http.initialize()
        assert session.init["capabilities"]["tasks"] == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        tools = {tool["name"]: tool for tool in (await session.post("tools/list")).result["tools"]}
        assert tools["work"]["execution"] == {"taskSupport": "optional"}
        assert tools["must"]["execution"] == {"taskSupport": "required"}
        assert tools["never"].get("execution", {"taskSupport": "forbidden"}) == {"taskSupport": "forbidden"}
        for revision in OLDER:
            session = await http.initialize(revision)
            assert "tasks" not in session.init["capabilities"]
            tools = (await session.post("tools/list")).result["tools"]
            assert all("execution" not in tool for tool in tools)
    async with served(Server("none")) as http:
        assert "tasks" not in (await http.initialize()).init["capabilities"]


@requirement("W281", "C40")
async def test_where_there_are_no_tasks_the_parameter_means_nothing(autojump_clock):
    server = Server("s")

    @server.tool
    async def plain() -> str:
        return "plain"

    async with served(server) as http:
        session = await http.initialize()
        for task in ({}, {"ttl": 5}, None, 7):
            assert (await session.post("tools/call", {"name": "plain", "task": task})).text == "plain"
    async with served(jobs()) as http:
        for revision in OLDER:
            session = await http.initialize(revision)
            for tool, text in (("never", "not as a task"), ("must", "as a task")):
                assert (await session.post("tools/call", call(tool))).text == text


@requirement("W281", "C40", "C53")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/list", "tasks/cancel", "tasks/result"])
async def test_where_there_are_no_tasks_their_methods_are_unknown(method):
    async with served(Server("none")) as http:
        session = await http.initialize()
        assert (await session.post(method, {"taskId": "x"})).error["code"] == -32601
    async with served(jobs()) as http:
        session = await http.initialize()
        assert (await session.post("tasks/update", {"taskId": "x"})).error["code"] == -32601
        for revision in OLDER:
            session = await http.initialize(revision)
            assert (await session.post(method, {"taskId": "x"})).error["code"] == -32601


@requirement("M190")
async def test_how_a_tool_may_be_called_is_for_it_to_say(autojump_clock):
    async with served(jobs()) as http:
        session = await http.initialize()
        for response in (await session.call("must"), await session.post("tools/call", call("never"))):
            assert response.error["code"] == -32601
            assert re.search("as a task", response.error["message"])
        assert (await session.call("never")).text == "not as a task"
        assert (await begin(session, "must"))["status"] == "working"
        assert (await session.call("work", {"seconds": 0})).text == "worked 0 s"
        assert (await begin(session, "work", {"seconds": 0}))["status"] == "working"


# ----- Creating


@requirement("W282", "W283", "W284", "W285")
async def test_a_task_is_there_at_once(autojump_clock):
    async with served(jobs(), task_ttl=600.0) as http:
        session = await http.initialize()
        began = trio.current_time()
        response = await session.post("tools/call", call("work", {"seconds": 100}))
        assert trio.current_time() == began
        assert response.result.keys() == {"task"}
        task = response.result["task"]
        assert (task["status"], task["ttl"]) == ("working", 600_000)
        assert await get(session, task["taskId"]) == task
        ids = [(await begin(session, "work", {"seconds": 0}))["taskId"] for _ in range(30)]
        assert len({task_id[-24:] for task_id in ids}) == 30


@requirement("W285", "W294")
@pytest.mark.parametrize(
    ("asked", "given"),
    [(5_000, 5_000), (600_000, 600_000), (600_001, 600_000), (10**15, 600_000), (None, 600_000)],
)
async def test_the_ttl_is_the_clients_up_to_the_servers(asked, given):
    async with served(jobs(), task_ttl=600.0) as http:
        session = await http.initialize()
        task = await begin(session, "work", {"seconds": 0}, task={"ttl": asked})
        assert task["ttl"] == given
        assert (await get(session, task["taskId"]))["ttl"] == given


@requirement("W294")
@pytest.mark.parametrize("ttl", [0, -5, "60000", 0.5, True, [], {}], ids=json.dumps)
async def test_a_ttl_that_is_none_gives_no_task_that_lives_no_time(ttl):
    async with served(jobs(), task_ttl=600.0) as http:
        session = await http.initialize()
        response = await session.post("tools/call", call("work", {"seconds": 0}, task={"ttl": ttl}))
        answer = response.answer
        assert answer["error"]["code"] == -32602 if "error" in answer else answer["result"]["task"]["ttl"] == 600_000


# ----- Its end


@requirement("W284", "W286", "W287")
async def test_the_result_comes_when_it_is_there_and_is_the_calls_own(autojump_clock):
    async with served(jobs()) as http:
        session = await http.initialize()
        plain = (await session.call("work", {"seconds": 0})).result
        task = await begin(session, "work", {"seconds": 30})
        began = trio.current_time()
        response = await session.post("tasks/result", {"taskId": task["taskId"]})
        assert trio.current_time() - began >= 30
        result = response.result
        assert result["_meta"] == {RELATED: {"taskId": task["taskId"]}}
        assert result["content"][0]["text"] == "worked 30 s"
        assert result.keys() - {"_meta"} == plain.keys() - {"_meta"}
        told = await get(session, task["taskId"])
        assert told["status"] == "completed"
        assert told["lastUpdatedAt"] > told["createdAt"] == task["createdAt"]
        # It can be had as often as one likes, now at once.
        again = await session.post("tasks/result", {"taskId": task["taskId"]})
        assert again.result == result


@requirement("W286", "W290")
async def test_a_tools_failure_is_a_failed_task_with_its_result(autojump_clock):
    async with served(jobs()) as http:
        session = await http.initialize()
        task = await begin(session, "fail", {"how": "tool"})
        told = await until(session, task["taskId"], "failed", "completed")
        assert told["status"] == "failed"
        assert told["statusMessage"]
        result = (await session.post("tasks/result", {"taskId": task["taskId"]})).result
        assert result["isError"] is True
        assert result["content"][0]["text"] == "the disk is full"
        assert result["_meta"] == {RELATED: {"taskId": task["taskId"]}}


@requirement("W286", "W290")
async def test_an_error_is_a_failed_task_with_that_error(autojump_clock):
    async with served(jobs()) as http:
        session = await http.initialize()
        task = await begin(session, "fail", {"how": "protocol"})
        response = await session.post("tasks/result", {"taskId": task["taskId"]})
        assert response.error == {"code": -1234, "message": "no such job", "data": {"job": 7}}
        told = await get(session, task["taskId"])
        assert (told["status"], told["statusMessage"]) == ("failed", "no such job")


# ----- Questions and reports, on the stream of tasks/result


@requirement("W284", "W286", "W287", "U270", "U261")
async def test_a_task_asks_on_the_stream_that_waits_for_its_result(autojump_clock):
    async with served(jobs()) as http:
        session = await http.initialize(capabilities=ELICITATION)
        async with session.get() as standalone:
            task = await begin(session, "ask")
            assert (await until(session, task["taskId"], "input_required"))["status"] == "input_required"
            async with session.open("tasks/result", {"taskId": task["taskId"]}) as stream:
                for message in ("Sure?", "Really?"):
                    question = await stream.message()
                    assert question["method"] == "elicitation/create"
                    assert question["params"]["message"] == message
                    assert related(question) == task["taskId"]
                    wire.check(REVISION, None, question)
                    assert (await get(session, task["taskId"]))["status"] == "input_required"
                    await session.send({"jsonrpc": "2.0", "id": question["id"], "result": YES})
                (answer,) = await stream.rest()
            assert answer["result"]["content"][0]["text"] == "accept Sure(sure=True) accept Sure(sure=True)"
            assert answer["result"]["_meta"] == {RELATED: {"taskId": task["taskId"]}}
            await wait_all_tasks_blocked()
            standalone.cut()
        assert (await get(session, task["taskId"]))["status"] == "completed"


@requirement("W286")
async def test_a_task_that_asks_waits_for_who_wants_its_result(autojump_clock):
    async with served(jobs()) as http:
        session = await http.initialize(capabilities=ELICITATION)
        task = await begin(session, "ask_twice")
        await until(session, task["taskId"], "input_required")
        # One client asks for the result and leaves without a word; the questions come again to the next.
        async with session.open("tasks/result", {"taskId": task["taskId"]}) as stream:
            await stream.message()
            stream.cut()
        async with session.open("tasks/result", {"taskId": task["taskId"]}) as stream:
            for _ in range(2):
                question = await stream.message()
                await session.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
            (answer,) = await stream.rest()
        assert answer["result"]["content"][0]["text"] == "decline decline"


@requirement("U261")
@pytest.mark.parametrize("tool", ["ask", "sample"])
async def test_a_client_that_answers_with_an_error_is_asked_once(tool, autojump_clock):
    async with served(jobs()) as http:
        session = await http.initialize(capabilities=ALL)
        task = await begin(session, tool)
        async with session.open("tasks/result", {"taskId": task["taskId"]}) as stream:
            question = await stream.message()
            error = {"code": -1, "message": "the user is out"}
            await session.send({"jsonrpc": "2.0", "id": question["id"], "error": error})
            (answer,) = await stream.rest()
        assert answer["result"]["isError"] is True
        assert "the user is out" in answer["result"]["content"][0]["text"]


@requirement("D70", "W286")
async def test_a_client_that_takes_no_stream_is_not_asked_and_answers_for_nobody(autojump_clock):
    async with served(jobs()) as http:
        session = await http.initialize(capabilities=ELICITATION)
        task = await begin(session, "ask_twice")
        await until(session, task["taskId"], "input_required")
        async with trio.open_nursery() as nursery:

            async def json_only() -> None:
                response = await session.post(
                    "tasks/result", {"taskId": task["taskId"]}, headers={"Accept": "application/json"}
                )
                assert response.text == "accept accept"

            nursery.start_soon(json_only)
            await wait_all_tasks_blocked()
            assert (await get(session, task["taskId"]))["status"] == "input_required"
            async with session.open("tasks/result", {"taskId": task["taskId"]}) as stream:
                for _ in range(2):
                    question = await stream.message()
                    await session.send({"jsonrpc": "2.0", "id": question["id"], "result": YES})
                (answer,) = await stream.rest()
        assert answer["result"]["content"][0]["text"] == "accept accept"


@requirement("J152", "J153", "J156", "W287", "B32", "D70")
@pytest.mark.parametrize("token", ["t", 7], ids=ascii)
async def test_progress_and_logs_of_a_task_go_to_one_who_waits_and_end_with_it(token, autojump_clock):
    async with served(jobs()) as http:
        session = await http.initialize()
        task = await begin(session, "work", {"seconds": 5}, token=token)
        params = {"taskId": task["taskId"]}
        # The first report came before anybody waited for one.
        async with session.open("tasks/result", params) as one, session.open("tasks/result", params) as two:
            await wait_all_tasks_blocked()
            messages = [await one.rest(), await two.rest()]
        reports = [message for stream in messages for message in stream if "method" in message]
        assert [message["params"]["progress"] for message in reports] == [2]  # on one of the two streams only
        assert type(reports[0]["params"]["progressToken"]) is type(token)
        assert reports[0]["params"]["progressToken"] == token
        assert related(reports[0]) == task["taskId"]
        wire.check(REVISION, None, reports[0])
        for stream in messages:
            assert stream[-1]["result"]["content"][0]["text"] == "worked 5 s"


# ----- Cancelling


@requirement("W284", "W288", "W287")
async def test_a_task_is_cancelled_before_the_answer_and_stays_so(autojump_clock):
    did: list[str] = []
    async with served(jobs(did)) as http:
        session = await http.initialize()
        task = await begin(session, "work", {"seconds": 1_000, "label": "a"})
        await wait_all_tasks_blocked()
        response = await session.post("tasks/cancel", {"taskId": task["taskId"]})
        _check_schema("CancelTaskResult", response.result)
        assert _checked(response.result)["status"] == "cancelled"
        assert "_meta" not in response.result
        await wait_all_tasks_blocked()
        assert did == ["a began", "a cancelled"]
        assert (await get(session, task["taskId"])) == response.result
        again = await session.post("tasks/cancel", {"taskId": task["taskId"]})
        assert again.error["code"] == -32602
        assert "cancelled" in again.error["message"]
        result = await session.post("tasks/result", {"taskId": task["taskId"]})
        assert result.error["message"] == "The task was cancelled"


@requirement("W288")
@pytest.mark.parametrize(("arguments", "status"), [("tool", "failed"), ("protocol", "failed")])
async def test_a_task_that_is_over_cannot_be_cancelled(arguments, status, autojump_clock):
    async with served(jobs()) as http:
        session = await http.initialize()
        tasks = [await begin(session, "fail", {"how": arguments}), await begin(session, "work", {"seconds": 0})]
        for task, expected in zip(tasks, (status, "completed"), strict=True):
            told = await until(session, task["taskId"], expected)
            response = await session.post("tasks/cancel", {"taskId": task["taskId"]})
            assert response.error["code"] == -32602
            assert expected in response.error["message"]
            assert await get(session, task["taskId"]) == told


@requirement("W288", "W286")
async def test_who_waits_for_the_result_of_a_cancelled_task_is_told(autojump_clock):
    async with served(jobs()) as http:
        session = await http.initialize(capabilities=ELICITATION)
        for tool, arguments in (("work", {"seconds": 1_000}), ("ask", {})):
            task = await begin(session, tool, arguments)
            async with session.open("tasks/result", {"taskId": task["taskId"]}) as stream:
                await session.post("tasks/cancel", {"taskId": task["taskId"]})
                assert (await stream.rest())[-1]["error"] == {"code": -32602, "message": "The task was cancelled"}
        assert http.endpoint.core.tasks.running == {}


@requirement("I145", "E81")
async def test_a_task_is_not_cancelled_by_notification_nor_by_leaving(autojump_clock):
    did: list[str] = []
    async with served(jobs(did)) as http:
        session = await http.initialize()
        response = await session.post("tools/call", call("work", {"seconds": 5, "label": "a"}), id=77)
        task_id = response.result["task"]["taskId"]
        await session.notify("notifications/cancelled", {"requestId": 77})
        async with session.open("tasks/result", {"taskId": task_id}, id=78) as stream:
            await wait_all_tasks_blocked()
            stream.cut()
        await session.notify("notifications/cancelled", {"requestId": 78})
        await until(session, task_id, "completed")
        assert did == ["a began", "a done"]


# ----- Which there are, and whose


@requirement("W289")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
async def test_what_is_no_task_is_unknown(method):
    async with served(jobs()) as http:
        session = await http.initialize()
        task = await begin(session, "work", {"seconds": 0})
        for task_id in ("", "x", task["taskId"] + "x", task["taskId"].upper(), "t1_" + "A" * 24):
            response = await session.post(method, {"taskId": task_id})
            assert response.error == {"code": -32602, "message": "Unknown or expired task"}
        for params in ({}, {"taskId": None}, {"taskId": 7}):
            assert (await session.post(method, params)).error["code"] == -32602


@requirement("W289", "W291")
async def test_the_list_has_all_tasks_of_the_session(autojump_clock):
    async with served(jobs()) as http:
        session, other = await http.initialize(), await http.initialize()
        tasks = [await begin(session, "work", {"seconds": n}) for n in range(5)]
        foreign = await begin(other, "work", {"seconds": 100})
        await session.post("tasks/cancel", {"taskId": tasks[4]["taskId"]})
        listed = (await session.post("tasks/list")).result
        _check_schema("ListTasksResult", listed)
        assert [task["taskId"] for task in listed["tasks"]] == [task["taskId"] for task in tasks]
        assert listed["tasks"] == [await get(session, task["taskId"]) for task in tasks]
        assert "_meta" not in listed
        assert foreign["taskId"] not in json.dumps(listed)
        for cursor in ("x", "", "1", 5):
            assert (await session.post("tasks/list", {"cursor": cursor})).error["code"] == -32602


@requirement("W291", "W294")
async def test_the_list_has_as_many_tasks_as_there_are(autojump_clock):
    async with served(jobs()) as http:
        session = await http.initialize()
        made: list[str] = []
        for _ in range(130):
            response = await session.post("tools/call", call("work", {"seconds": 0}))
            if "error" in response.answer:
                assert "too many tasks" in response.error["message"]
                break
            made.append(response.result["task"]["taskId"])
        listed: list[str] = []
        params: dict[str, Any] = {}
        while True:
            page = (await session.post("tasks/list", params)).result
            listed += [task["taskId"] for task in page["tasks"]]
            if "nextCursor" not in page:
                break
            params = {"cursor": page["nextCursor"]}
        assert listed == made[-len(listed) :]
        assert len(listed) == 100  # the oldest of those that are over have given way


@requirement("W292", "F104")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
async def test_another_sessions_task_is_unknown(method, autojump_clock):
    async with served(jobs()) as http:
        session, other = await http.initialize(), await http.initialize()
        task = await begin(session, "work", {"seconds": 100})
        response = await other.post(method, {"taskId": task["taskId"]})
        assert response.error == {"code": -32602, "message": "Unknown or expired task"}
        assert (await get(session, task["taskId"]))["status"] == "working"


@requirement("W293")
async def test_where_clients_cannot_be_told_apart_their_tasks_are_not_listed():
    async with served(jobs(), sessions=False) as http:
        headers = {"MCP-Protocol-Version": REVISION}
        client = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        response = await http.request("POST", json=rpc("initialize", client, id=0))
        assert "list" not in response.result["capabilities"].get("tasks", {})
        response = await http.request("POST", json=rpc("tasks/list", id=1), headers=headers)
        assert response.error["code"] == -32601


@requirement("W286")
async def test_who_waits_for_a_result_while_the_store_is_away_is_told_to_try_again(autojump_clock, caplog):
    async with served(jobs()) as http:
        session = await http.initialize(capabilities={"elicitation": {}})
        task = await begin(session, "work", {"seconds": 100})
        tasks = http.endpoint.core.tasks

        async def away(key: str) -> Any:
            raise StoreError("it is away")

        async def cut() -> None:
            await trio.sleep(0.5)
            tasks.read = away

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cut)
            response = await session.post("tasks/result", {"taskId": task["taskId"]})
        assert response.error["message"] == "The session store cannot be reached; try again"
        assert not [record for record in caplog.records if record.levelname == "ERROR"]
