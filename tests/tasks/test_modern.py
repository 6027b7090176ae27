"""Tasks as an extension (SEP-2663): its wire, rule by rule, over HTTP."""

import json
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpd import Context, Server
from mcpd.tasks.tasks import LOOK_AGAIN
from tests.harness import META, call_params
from tests.requirements import requirement
from tests.tasks.jobs import EXTENSION, RELATED, TASKS, Sure, begin, check, get, jobs, request, served, until

YES: dict[str, Any] = {"action": "accept", "content": {"sure": True}}
UNKNOWN = {"code": -32602, "message": "Unknown or expired task"}
METHODS = ["tasks/get", "tasks/update", "tasks/cancel"]
ELICITATION = {"elicitation": {}}


# ----- What is offered, and to whom


@requirement("X296", "C46", "C51", "C53")
async def test_the_extension_is_offered_where_a_tool_has_tasks():
    async with served(jobs()) as http:
        for capabilities in ({}, TASKS):
            offered = (await http.modern("server/discover", capabilities=capabilities)).result["capabilities"]
            assert offered["extensions"] == {EXTENSION: {}}
            assert "tasks" not in offered
        tools = (await http.modern("tools/list")).result["tools"]
        assert all("execution" not in tool for tool in tools)
        session = await http.initialize()
        assert "extensions" not in session.init["capabilities"]
    async with served(Server("none")) as http:
        assert "extensions" not in (await http.modern("server/discover")).result["capabilities"]


@requirement("X297", "C52", "X310")
async def test_without_the_extension_an_optional_task_is_a_plain_call(autojump_clock):
    async with served(jobs()) as http:
        for capabilities in ({}, {"extensions": {}}, {"extensions": {"com.example/tasks": {}}}, {"tasks": {}}):
            began = trio.current_time()
            result = (await http.call("work", {"seconds": 3}, capabilities=capabilities)).result
            assert trio.current_time() - began >= 3
            assert result["resultType"] == "complete"
            assert result["content"][0]["text"] == "worked 3 s"


@requirement("X298", "B29")
async def test_without_the_extension_a_required_task_names_it(autojump_clock):
    async with served(jobs()) as http:
        for tool in ("must", "later"):
            response = await http.call(tool, capabilities=ELICITATION)
            assert (response.status, response.error["code"]) == (400, -32021)
            assert response.error["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        assert (await begin(http, "must"))["status"] == "working"
        # What one request declares is nothing to the next.
        assert (await http.call("must")).error["code"] == -32021


@requirement("X297", "X299")
async def test_a_tool_without_tasks_is_a_plain_call_to_whoever_calls_it():
    async with served(jobs()) as http:
        for more in ({}, {"task": {}}, {"task": {"ttl": 60_000}}):
            response = await http.modern("tools/call", {"name": "never", "arguments": {}, **more}, capabilities=TASKS)
            assert response.result["resultType"] == "complete"
            assert response.result["content"][0]["text"] == "not as a task"
        for method in ("tools/list", "prompts/list", "resources/list", "server/discover"):
            assert (await http.modern(method, capabilities=TASKS)).result["resultType"] == "complete"


@requirement("X308")
@pytest.mark.parametrize("method", METHODS)
async def test_the_methods_are_for_those_who_declare_the_extension(method):
    async with served(jobs()) as http:
        created = await begin(http, "work", {"seconds": 0})
        for task_id in (created["taskId"], "unknown"):
            for capabilities in ({}, {"extensions": {}}, ELICITATION):
                response = await request(http, method, task_id, inputResponses={}, capabilities=capabilities)
                assert (response.status, response.error["code"]) == (400, -32021)
                assert response.error["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


@requirement("X309", "G122")
@pytest.mark.parametrize("method", ["tasks/result", "tasks/list", "tasks/create"])
async def test_other_methods_of_tasks_there_are_not(method):
    async with served(jobs()) as http:
        created = await begin(http, "work", {"seconds": 0})
        response = await request(http, method, created["taskId"])
        assert (response.status, response.error["code"]) == (404, -32601)


@requirement("X309")
@pytest.mark.parametrize("task", [None, {}, {"ttl": 1}, {"ttl": 10**9}, 7, "x"], ids=json.dumps)
async def test_the_task_parameter_of_2025_11_25_means_nothing(task, autojump_clock):
    async with served(jobs(), task_ttl=600.0) as http:
        created = await begin(http, "work", {"seconds": 1}, task=task)
        assert created["ttlMs"] == 600_000
        assert (await until(http, created["taskId"], "completed"))["ttlMs"] == 600_000
        response = await http.modern("tools/call", call_params("work", {"seconds": 0}) | {"task": task})
        assert response.result["resultType"] == "complete"


@requirement("G111", "G112")
@pytest.mark.parametrize("method", METHODS)
async def test_the_name_header_is_the_task(method):
    async with served(jobs()) as http:
        created = await begin(http, "work", {"seconds": 0})
        params = {"taskId": created["taskId"], "inputResponses": {}}
        for name in (None, "", created["taskId"].upper(), created["taskId"][:-1], "tasks"):
            response = await http.modern(method, params, name="x", capabilities=TASKS, headers={"Mcp-Name": name})
            assert (response.status, response.error["code"]) == (400, -32020)


# ----- Creating


@requirement("X299", "X300", "X302", "B26")
async def test_a_task_is_told_flat_and_can_be_asked_for_at_once(autojump_clock):
    async with served(jobs(), task_ttl=600.0) as http:
        began = trio.current_time()
        created = await begin(http, "work", {"seconds": 100})
        assert trio.current_time() == began  # not a second later
        check(created, "task")
        assert created["status"] == "working"
        assert created["createdAt"] == created["lastUpdatedAt"]
        assert created["ttlMs"] == 600_000
        assert not {"task", "ttl", "pollInterval", "requestState", "inputRequests", "result", "error"} & created.keys()
        assert created["_meta"] == {META + "serverInfo": {"name": "jobs", "version": "2"}}
        told = await get(http, created["taskId"])
        assert {**told, "resultType": "task"} == created


@requirement("X311")
async def test_ids_are_not_to_be_guessed():
    async with served(jobs()) as http:
        ids = [(await begin(http, "work", {"seconds": 0}))["taskId"] for _ in range(50)]
        assert len({task_id[-24:] for task_id in ids}) == 50
        assert all(len({task_id[-24:][i] for task_id in ids}) > 15 for i in range(24))


# ----- How it goes on


@requirement("X301", "X306", "A13")
async def test_a_task_that_succeeds_is_completed_with_the_calls_own_result(autojump_clock):
    async with served(jobs()) as http:
        created = await begin(http, "work", {"seconds": 5})
        for _ in range(2):
            working = await get(http, created["taskId"])
            assert working["status"] == "working"
        done = await until(http, created["taskId"], "completed")
        assert done["result"]["content"] == [{"type": "text", "text": "worked 5 s"}]
        assert RELATED not in json.dumps(done)
        plain = (await http.call("work", {"seconds": 5})).result
        assert {k: v for k, v in done["result"].items() if k != "_meta"} == {
            k: v for k, v in plain.items() if k != "_meta"
        }
        assert await get(http, created["taskId"]) == done
        assert done["createdAt"] == created["createdAt"]
        assert done["lastUpdatedAt"] > created["lastUpdatedAt"]


@requirement("X306")
async def test_a_tools_failure_is_a_completed_task(autojump_clock):
    async with served(jobs()) as http:
        done = await until(http, (await begin(http, "fail", {"how": "tool"}))["taskId"], "completed", "failed")
        assert done["status"] == "completed"
        assert done["result"]["isError"] is True
        assert done["result"]["content"][0]["text"] == "the disk is full"
    async with served(jobs(), allow_errors=True) as http:
        done = await until(http, (await begin(http, "fail", {"how": "crash"}))["taskId"], "completed", "failed")
        assert (done["status"], done["result"]["isError"]) == ("completed", True)
        assert "secret" not in json.dumps(done)
        # What does not fit the schema is a tool's failure as well.
        done = await until(http, (await begin(http, "fail", {"how": 5}))["taskId"], "completed", "failed")
        assert (done["status"], done["result"]["isError"]) == ("completed", True)


@requirement("X306")
async def test_an_error_response_is_a_failed_task_with_that_error(autojump_clock):
    async with served(jobs()) as http:
        done = await until(http, (await begin(http, "fail", {"how": "protocol"}))["taskId"], "completed", "failed")
        assert done["status"] == "failed"
        assert done["error"] == {"code": -1234, "message": "no such job", "data": {"job": 7}}
        assert done["statusMessage"] == "no such job"


@requirement("X310", "J159")
async def test_a_task_reports_nothing(autojump_clock):
    async with served(jobs()) as http:
        params = call_params("work", {"seconds": 2}, progress="t")
        meta = {META + "logLevel": "debug"}
        response = await http.modern("tools/call", params, capabilities=TASKS, meta=meta)
        assert [message.get("method") for message in response.messages] == [None]
        task_id = response.result["taskId"]
        listened = {"taskIds": [task_id]}
        async with http.open_modern("subscriptions/listen", {"notifications": listened}, capabilities=TASKS) as stream:
            await stream.message()
            await until(http, task_id, "completed")
            assert (await stream.message())["method"] == "notifications/tasks"


# ----- Questions


@requirement("X301", "X303", "X304")
async def test_a_task_asks_and_is_answered(autojump_clock):
    async with served(jobs()) as http:
        created = await http.modern("tools/call", call_params("ask"), capabilities=TASKS | ELICITATION)
        task_id = created.result["taskId"]
        told = await until(http, task_id, "input_required")
        assert list(told["inputRequests"]) == ["sure"]
        question = told["inputRequests"]["sure"]
        assert question["method"] == "elicitation/create"
        assert question["params"]["message"] == "Sure?"
        assert question["params"]["requestedSchema"]["properties"] == {"sure": {"type": "boolean"}}
        assert await get(http, task_id) == told  # asked as often as one polls
        updated = await request(http, "tasks/update", task_id, inputResponses={"sure": YES})
        assert updated.result.keys() == {"resultType", "_meta"}
        assert updated.result["resultType"] == "complete"
        second = await until(http, task_id, "input_required")
        assert len(second["inputRequests"]) == 1
        assert "sure" not in second["inputRequests"]
        key = next(iter(second["inputRequests"]))
        await request(http, "tasks/update", task_id, inputResponses={key: {"action": "decline"}})
        done = await until(http, task_id, "completed")
        assert done["result"]["content"][0]["text"] == "accept Sure(sure=True) decline None"


@requirement("X304")
async def test_several_questions_may_be_answered_one_by_one(autojump_clock):
    async with served(jobs()) as http:
        created = await http.modern("tools/call", call_params("ask_twice"), capabilities=TASKS | ELICITATION)
        task_id = created.result["taskId"]
        await wait_all_tasks_blocked()
        assert (await get(http, task_id))["inputRequests"].keys() == {"a", "b"}
        await request(http, "tasks/update", task_id, inputResponses={"b": {"action": "cancel"}, "nobody": {}})
        told = await get(http, task_id)  # at once, and the rest stays
        assert (told["status"], list(told["inputRequests"])) == ("input_required", ["a"])
        # Answered is answered: a second answer is ignored, and so is none.
        await request(http, "tasks/update", task_id, inputResponses={"b": YES})
        await request(http, "tasks/update", task_id, inputResponses={})
        assert await get(http, task_id) == told
        await request(http, "tasks/update", task_id, inputResponses={"a": YES, "b": YES})
        assert (await get(http, task_id))["status"] != "input_required"
        done = await until(http, task_id, "completed")
        assert done["result"]["content"][0]["text"] == "accept cancel"
        over = await request(http, "tasks/update", task_id, inputResponses={"a": YES})
        assert over.result["resultType"] == "complete"
        assert await get(http, task_id) == done


@requirement("X303", "U262", "T252")
async def test_an_answer_that_does_not_fit_is_asked_again_under_a_new_key(autojump_clock):
    async with served(jobs()) as http:
        created = await http.modern("tools/call", call_params("ask"), capabilities=TASKS | ELICITATION)
        task_id = created.result["taskId"]
        keys: list[str] = []
        for wrong in ({}, {"action": "perhaps"}, {"action": "accept"}, {"action": "accept", "content": {"sure": "no"}}):
            told = await until(http, task_id, "input_required")
            keys += told["inputRequests"]
            await request(http, "tasks/update", task_id, inputResponses={keys[-1]: wrong})
            await wait_all_tasks_blocked()
        told = await until(http, task_id, "input_required")
        keys += told["inputRequests"]
        assert len(set(keys)) == len(keys) == 5
        await request(http, "tasks/update", task_id, inputResponses={keys[-1]: {"action": "cancel"}})
        told = await until(http, task_id, "input_required")
        assert not {*keys} & told["inputRequests"].keys()


@requirement("T252")
@pytest.mark.parametrize("responses", [None, 7, [], "x", {"sure": 7}, {"sure": None}], ids=json.dumps)
async def test_an_update_that_is_malformed_changes_nothing(responses, autojump_clock):
    async with served(jobs()) as http:
        created = await http.modern("tools/call", call_params("ask"), capabilities=TASKS | ELICITATION)
        told = await until(http, created.result["taskId"], "input_required")
        response = await request(http, "tasks/update", told["taskId"], inputResponses=responses)
        assert response.error["code"] == -32602
        assert await get(http, told["taskId"]) == told
        for params in ({"taskId": told["taskId"]}, {"inputResponses": {}}, {"taskId": 7, "inputResponses": {}}):
            name = params.get("taskId")
            response = await http.modern("tasks/update", params, name=str(name), capabilities=TASKS)
            assert response.status == 400 or response.error["code"] == -32602


@requirement("T247", "B29")
async def test_a_task_asks_for_nothing_its_call_did_not_declare(autojump_clock):
    async with served(jobs()) as http:
        created = await begin(http, "ask")
        done = await until(http, created["taskId"], "failed", "completed", "input_required")
        assert done["status"] == "failed"
        assert done["error"]["code"] == -32021
        assert done["error"]["data"]["requiredCapabilities"].keys() == {"elicitation"}


async def test_a_question_nobody_answers_in_time_is_withdrawn(autojump_clock):
    async with served(jobs()) as http:
        params = call_params("ask", {"timeout": 30})
        created = await http.modern("tools/call", params, capabilities=TASKS | ELICITATION)
        task_id = created.result["taskId"]
        await until(http, task_id, "input_required")
        await trio.sleep(31)
        done = await get(http, task_id)
        assert done["status"] == "failed"
        assert done["error"]["message"] == "The client did not answer within 30 s"


# ----- Cancelling


@requirement("X305")
async def test_a_task_can_be_cancelled_and_that_is_the_end_of_it(autojump_clock):
    did: list[str] = []
    async with served(jobs(did)) as http:
        created = await begin(http, "work", {"seconds": 1_000, "label": "a"})
        await wait_all_tasks_blocked()
        for _ in range(2):
            response = await request(http, "tasks/cancel", created["taskId"])
            assert response.result.keys() == {"resultType", "_meta"}
            assert response.result["resultType"] == "complete"
        told = await get(http, created["taskId"])
        assert told["status"] == "cancelled"
        await wait_all_tasks_blocked()
        assert did == ["a began", "a cancelled"]
        assert http.endpoint.core.tasks.running == {}
        await trio.sleep(5)
        assert await get(http, created["taskId"]) == told
        # One that is over stays what it is.
        created = await begin(http, "work", {"seconds": 0})
        done = await until(http, created["taskId"], "completed")
        assert (await request(http, "tasks/cancel", created["taskId"])).result["resultType"] == "complete"
        assert await get(http, created["taskId"]) == done


@requirement("X305")
async def test_a_task_that_waits_for_an_answer_can_be_cancelled(autojump_clock):
    async with served(jobs()) as http:
        created = await http.modern("tools/call", call_params("ask"), capabilities=TASKS | ELICITATION)
        told = await until(http, created.result["taskId"], "input_required")
        await request(http, "tasks/cancel", told["taskId"])
        assert (await get(http, told["taskId"]))["status"] == "cancelled"
        await request(http, "tasks/update", told["taskId"], inputResponses={"sure": YES})
        await wait_all_tasks_blocked()
        assert (await get(http, told["taskId"]))["status"] == "cancelled"
        assert http.endpoint.core.tasks.running == {}


@requirement("G125", "X305")
async def test_losing_the_connection_does_not_cancel_a_task(autojump_clock):
    did: list[str] = []
    async with served(jobs(did)) as http:
        async with http.connect() as connection:
            created = await begin(http, "work", {"seconds": 3, "label": "a"})
            connection.cut()
        await until(http, created["taskId"], "completed")
        assert did == ["a began", "a done"]


# ----- Whose it is


@requirement("X307", "X311")
@pytest.mark.parametrize("method", METHODS)
async def test_what_is_no_task_is_unknown(method, autojump_clock):
    async with served(jobs()) as http:
        created = (await begin(http, "work", {"seconds": 0}))["taskId"]
        first, _, last = created[1:].partition("_")
        for task_id in ("x", "t", f"t{int(first, 16) + 1:x}_{last}", f"t{first.upper()}x_{last}", created[:-1] + "~"):
            response = await request(http, method, task_id, inputResponses={})
            assert response.error == UNKNOWN


@requirement("X309")
@pytest.mark.parametrize("params", [{}, {"taskId": None}, {"taskId": 7}, {"taskId": ["x"]}], ids=json.dumps)
@pytest.mark.parametrize("method", METHODS)
async def test_without_a_task_there_is_nothing_to_ask_for(method, params):
    async with served(jobs()) as http:
        response = await http.modern(method, params, name="x", capabilities=TASKS)
        assert response.error["code"] in {-32602, -32020}


# ----- Rounds before the task


@requirement("T256", "X299")
async def test_what_is_asked_before_the_task_is_asked_in_rounds(autojump_clock):
    async with served(jobs()) as http:
        capabilities = TASKS | ELICITATION
        first = (await http.call("later", capabilities=capabilities)).result
        assert (first["resultType"], list(first["inputRequests"])) == ("input_required", ["sure"])
        assert "taskId" not in first
        params = {"name": "later", "arguments": {}, "inputResponses": {"sure": YES}}
        created = (await http.modern("tools/call", params, capabilities=capabilities)).result
        check(created, "task")
        done = await until(http, created["taskId"], "completed")
        assert done["result"]["content"][0]["text"] == "after the question"
        assert http.endpoint.core.tasks.running == {}


@requirement("T256", "T250")
async def test_what_is_done_once_is_done_once_before_the_task_and_in_it(autojump_clock):
    server, made = Server("s"), []

    @server.tool(task="required", task_later=True)
    async def order(ctx: Context) -> int:
        await ctx.once("order", lambda: made.append("before"))
        await ctx.elicit("Sure?", Sure, key="sure")
        await ctx.start_task()
        await ctx.once("order", lambda: made.append("after"))
        return len(made)

    async with served(server) as http:
        first = (await http.call("order", capabilities=TASKS | ELICITATION)).result
        params = call_params("order") | {"inputResponses": {"sure": YES}, "requestState": first["requestState"]}
        created = (await http.modern("tools/call", params, capabilities=TASKS | ELICITATION)).result
        done = await until(http, created["taskId"], "completed")
        assert done["result"]["structuredContent"] == 1
        assert made == ["before"]


@requirement("T256")
async def test_a_call_that_ends_before_its_task_is_a_plain_call(autojump_clock):
    async with served(jobs()) as http:
        capabilities = TASKS | ELICITATION
        params: dict[str, Any] = {"name": "later", "arguments": {}, "inputResponses": {"sure": {"action": "cancel"}}}
        result = (await http.modern("tools/call", params, capabilities=capabilities)).result
        assert result["resultType"] == "complete"
        assert result["content"][0]["text"] == "no task was needed"
        params["inputResponses"] = {"sure": {"action": "accept", "content": {"sure": False}}}
        response = await http.modern("tools/call", params, capabilities=capabilities)
        assert response.error == {"code": -7, "message": "then not"}
        response = await http.call("later", capabilities=TASKS)
        assert (response.status, response.error["code"]) == (400, -32021)
        params["inputResponses"] = None
        response = await http.modern("tools/call", params, capabilities=capabilities)
        assert (response.status, response.error["code"]) == (400, -32602)
        assert await http.endpoint.core.store.records("task").count() == 0


@requirement("G125")
async def test_a_client_that_leaves_before_the_task_ends_the_call(autojump_clock):
    server, did = Server("s"), []

    @server.tool(task="required", task_later=True)
    async def slow() -> None:
        did.append("began")
        try:
            await trio.sleep(1_000)
        except trio.Cancelled:
            did.append("cancelled")
            raise

    async with served(server, stream_after=0.1) as http:
        async with http.open_modern("tools/call", call_params("slow"), capabilities=TASKS) as stream:
            stream.cut()
        await trio.sleep(1)
        assert did == ["began", "cancelled"]


# ----- On a subscription


@requirement("S242", "B31")
async def test_a_subscription_tells_what_becomes_of_a_task(autojump_clock):
    async with served(jobs()) as http:
        created = await http.modern("tools/call", call_params("ask"), capabilities=TASKS | ELICITATION)
        other = await begin(http, "ask")
        task_id = created.result["taskId"]
        filters = {"notifications": {"taskIds": [task_id, "unknown"]}}
        async with http.open_modern("subscriptions/listen", filters, id="listen", capabilities=TASKS) as stream:
            acknowledged = await stream.message()
            assert acknowledged["params"]["notifications"] == {"taskIds": [task_id]}
            seen: list[str] = []
            key = next(iter((await until(http, task_id, "input_required"))["inputRequests"]))
            for _ in range(2):
                await request(http, "tasks/update", task_id, inputResponses={key: YES})
                told = await until(http, task_id, "input_required", "completed")
                key = next(iter(told.get("inputRequests", {"": 0})))
            while "completed" not in seen:
                message = await stream.message()
                assert message["method"] == "notifications/tasks"
                params = message["params"]
                assert params["_meta"] == {META + "subscriptionId": "listen"}
                assert params["taskId"] == task_id
                check(params, None)
                seen.append(params["status"])
            # All that was asked for is over.
            (result,) = await stream.rest()
            assert result["result"] == {"resultType": "complete", "_meta": {META + "subscriptionId": "listen"}}
        assert seen[-1] == "completed"
        assert other["taskId"] != task_id


@requirement("S242", "X311")
async def test_a_subscription_to_no_task_of_the_callers_ends_at_once(autojump_clock):
    async with served(jobs()) as http:
        for unknown in ("unknown", f"t{2**44 - 1:x}_{'x' * 24}"):
            filters = {"notifications": {"taskIds": [unknown]}}
            async with http.open_modern("subscriptions/listen", filters, capabilities=TASKS) as stream:
                acknowledged, result = await stream.rest()
            assert acknowledged["params"]["notifications"] == {}
            assert result["result"]["resultType"] == "complete"


@requirement("S242")
async def test_a_subscription_tells_of_tasks_that_are_over_already_and_then_of_the_others(autojump_clock):
    async with served(jobs(), task_ttl=60.0) as http:
        done = (await begin(http, "work", {"seconds": 0}))["taskId"]
        await until(http, done, "completed")
        expiring = (await begin(http, "work", {"seconds": 1_000}))["taskId"]
        for more in ({}, {"toolsListChanged": True}):
            filters = {"notifications": {"taskIds": [done], **more}}
            async with http.open_modern("subscriptions/listen", filters, capabilities=TASKS) as stream:
                assert (await stream.message())["params"]["notifications"]["taskIds"] == [done]
                assert (await stream.message())["params"]["status"] == "completed"
                if not more:
                    assert [message["result"]["resultType"] for message in await stream.rest()] == ["complete"]
        filters = {"notifications": {"taskIds": [expiring]}}
        async with http.open_modern("subscriptions/listen", filters, capabilities=TASKS) as stream:
            await stream.message()
            await trio.sleep(60 + 2 * LOOK_AGAIN)
            assert [message.get("method") for message in await stream.rest()] == [None]
