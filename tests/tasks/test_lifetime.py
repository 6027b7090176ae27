"""How long tasks live, on which replica, and what is left of them."""

import gc
from datetime import datetime
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpd import Server, Settings
from mcpd.core import Core
from mcpd.endpoint.reply import Reply
from mcpd.errors import SettingError
from mcpd.server.call import Call
from mcpd.server.context import Context
from mcpd.sessions.record import MAX_TASKS
from mcpd.tasks.run import TaskRun
from mcpd.tasks.tasks import LEASE, LOOK_AGAIN
from mcpd_stores.memory import MemoryStore
from tests.harness import call_params, living
from tests.requirements import requirement
from tests.server.replica import ADA, EVE, OTHER_ADA, Replica, now, running
from tests.tasks.jobs import TASKS, begin, get, jobs, request, served, until

YES: dict[str, Any] = {"action": "accept", "content": {"sure": True}}
ASKING = TASKS | {"elicitation": {}}
UNKNOWN = {"code": -32602, "message": "Unknown or expired task"}


async def start(replica: Replica, tool: str, *, principal: Any = None, **arguments: Any) -> str:
    params = {"name": tool, "arguments": arguments}
    created = await replica.result("tools/call", params, principal=principal, capabilities=ASKING)
    assert created["resultType"] == "task"
    task_id: str = created["taskId"]
    return task_id


async def status(replica: Replica, task_id: str, principal: Any = None) -> dict[str, Any]:
    return await replica.result("tasks/get", {"taskId": task_id}, principal=principal, capabilities=TASKS)


# ----- Age


@requirement("X312", "W289", "W294")
async def test_a_task_is_kept_for_its_ttl_and_no_longer(autojump_clock):
    store = MemoryStore()
    async with served(jobs(), store, task_ttl=60.0) as http:
        done = await begin(http, "work", {"seconds": 1})
        await until(http, done["taskId"], "completed")
        while now() < _end(done) - 1:
            await get(http, done["taskId"])  # looking does not make it older, nor younger
            await trio.sleep(5)
        await trio.sleep(6)
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            assert (await request(http, method, done["taskId"], inputResponses={})).error == UNKNOWN
        await trio.sleep(2)
        assert await store.records("task").count() == 0
        assert not store._records["task"]._orders


def _end(task: dict[str, Any]) -> float:
    return datetime.fromisoformat(task["createdAt"]).timestamp() + task["ttlMs"] / 1000


@requirement("X312")
async def test_a_task_may_take_no_longer_than_it_is_kept(autojump_clock):
    did: list[str] = []
    async with served(jobs(did), task_ttl=60.0) as http:
        await begin(http, "work", {"seconds": 1_000, "label": "a"})
        await trio.sleep(59)
        assert did == ["a began"]
        await trio.sleep(1 + 2 * LOOK_AGAIN)
        assert did == ["a began", "a cancelled"]
        assert http.endpoint.core.tasks.running == {}


@requirement("W286", "W289")
async def test_who_waits_for_a_result_hears_that_the_task_has_expired(autojump_clock):
    async with served(jobs()) as http:
        session = await http.initialize(capabilities={"elicitation": {}})
        for tool, arguments in (("work", {"seconds": 1_000}), ("ask", {})):
            params = {"name": tool, "arguments": arguments, "task": {"ttl": 30_000}}
            task = (await session.post("tools/call", params)).result["task"]
            async with session.open("tasks/result", {"taskId": task["taskId"]}) as stream:
                messages = await stream.rest()
            assert messages[-1]["error"] == UNKNOWN
            listed = (await session.post("tasks/list")).result["tasks"]
            assert listed == []


@requirement("X312")
async def test_a_plain_handler_whose_task_has_expired_or_was_cancelled_holds_no_thread():
    server = Server("s", max_threads=2)

    @server.tool(task="required")
    def plain(ctx: Context) -> str:
        return trio.from_thread.run(lambda: ctx.elicit("Sure?", {"type": "object", "properties": {}})).action

    async with running(server) as replica:
        for _ in range(5):
            task_id = await start(replica, "plain")
            with trio.fail_after(10):
                while (await status(replica, task_id))["status"] != "input_required":  # noqa: ASYNC110 - it polls
                    await trio.sleep(0.001)
            await replica.result("tasks/cancel", {"taskId": task_id}, capabilities=TASKS)
            with trio.fail_after(10):
                while replica.core.dispatcher.offer.threads.borrowed_tokens:  # noqa: ASYNC110 - a thread tells nobody
                    await trio.sleep(0.001)


# ----- Number


async def test_one_client_cannot_have_all_tasks(autojump_clock):
    async with served(jobs(), max_tasks=3, max_tasks_per_principal=1) as http:
        await begin(http, "work", {"seconds": 5})
        response = await http.call("work", {"seconds": 0}, capabilities=TASKS)
        assert (response.status, response.error["data"]) == (429, {"limit": "max_tasks_per_principal"})
        assert int(response.headers["retry-after"]) > 0
        assert http.endpoint.core.meter.rejected["tasks"] == {"full": 0, "principal": 1}
        await trio.sleep(10)
        # What is over gives way.
        await begin(http, "work", {"seconds": 5})
        assert await http.endpoint.core.tasks._records.count() == 1


@requirement("W294")
async def test_at_the_cap_a_task_is_refused_while_all_run(autojump_clock):
    async with served(jobs(), max_tasks=2, task_ttl=60.0) as http:
        kept = [(await begin(http, "work", {"seconds": seconds}))["taskId"] for seconds in (1_000, 1_000)]
        for _ in range(2):
            response = await http.call("work", {"seconds": 0}, capabilities=TASKS)
            assert (response.status, response.error["code"]) == (503, -32603)
            assert response.error["message"] == "There are too many tasks; try again later (max_tasks)"
        params = {"name": "later", "arguments": {}, "inputResponses": {"sure": YES}}
        response = await http.modern("tools/call", params, capabilities=ASKING)
        assert response.error["message"] == "There are too many tasks; try again later (max_tasks)"
        # Calls that are no tasks go on.
        assert (await http.call("work", {"seconds": 0})).text == "worked 0 s"
        for task_id in kept:
            await get(http, task_id)
        await trio.sleep(63)
        await begin(http, "work", {"seconds": 0})


@requirement("W294")
async def test_at_the_cap_the_least_recently_used_task_that_is_over_gives_way(autojump_clock):
    async with served(jobs(), max_tasks=3) as http:
        running = (await begin(http, "work", {"seconds": 1_000}))["taskId"]
        over = [(await begin(http, "work", {"seconds": 0}))["taskId"] for _ in range(2)]
        for task_id in over:
            await until(http, task_id, "completed")
        for _ in range(5):
            await trio.sleep(1)
            newest = (await begin(http, "work", {"seconds": 0}))["taskId"]
            await until(http, newest, "completed")
        for task_id in over:
            assert (await request(http, "tasks/get", task_id)).error == UNKNOWN
        assert (await get(http, running))["status"] == "working"


@requirement("W294")
async def test_a_session_has_room_for_a_task_as_long_as_some_of_its_tasks_are_over(autojump_clock):
    async with served(jobs()) as http:
        session = await http.initialize()

        async def begun(seconds: float) -> Any:
            params = {"name": "work", "arguments": {"seconds": seconds}, "task": {}}
            return (await session.post("tools/call", params)).answer

        first = (await begun(0))["result"]["task"]["taskId"]
        for _ in range(MAX_TASKS - 2):
            await begun(1_000)
        await wait_all_tasks_blocked()
        # The check and the entry are one step: of those that come together only as many get in as there is room for.
        answers: list[Any] = []

        async def another() -> None:
            answers.append(await begun(1_000))

        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(another)
        assert sorted("result" in answer for answer in answers) == [False] * 4 + [True] * 2
        assert len((await session.post("tasks/list")).result["tasks"]) == MAX_TASKS
        assert (await session.post("tasks/get", {"taskId": first})).error == UNKNOWN
        assert len(http.endpoint.core.tasks.running) == MAX_TASKS


# ----- The end of the session


@requirement("W294")
async def test_nothing_of_a_sessions_tasks_outlives_it(autojump_clock):
    store, did = MemoryStore(), list[str]()
    async with served(jobs(did), store) as one, served(jobs(), store) as two:
        other = await one.initialize()
        session = await one.initialize()
        for owner, seconds in ((session, 0), (session, 1_000), (other, 1_000)):
            params = {"name": "work", "arguments": {"seconds": seconds, "label": f"{seconds}"}, "task": {}}
            await owner.post("tools/call", params)
        await wait_all_tasks_blocked()
        session.http = two
        assert (await session.delete()).status == 204
        await wait_all_tasks_blocked()
        assert did.count("1000 cancelled") == 1
        assert len(one.endpoint.core.tasks.running) == 1
        assert await store.records("task").count() == 1
        assert one.endpoint.sessions.busy() == 1
        assert trio.current_time() == 0


@requirement("W294")
async def test_a_task_of_a_session_that_an_operator_ends_ends_with_it(autojump_clock):
    store, did = MemoryStore(), list[str]()
    async with served(jobs(did), store) as http:
        session = await http.initialize()
        params = {"name": "work", "arguments": {"seconds": 1_000}, "task": {}}
        await session.post("tools/call", params)
        (live,) = http.endpoint.sessions._live.all()
        live.end()
        del live
        await trio.sleep(LOOK_AGAIN + 0.1)
        assert did == [" began", " cancelled"]
        assert await store.records("task").count() == 0
        assert http.endpoint.sessions.busy() == 0


async def test_a_task_that_grows_too_large_fails_and_says_so(autojump_clock):
    async with served(jobs(), max_task_size=10_000) as http:
        task_id = (await begin(http, "large", {"size": 10_000}))["taskId"]
        message = (await until(http, task_id, "failed"))["error"]["message"]
        assert message.startswith("The outcome cannot be kept: The task would take 10")
        assert message.endswith(" bytes, of at most 10000")
        await until(http, (await begin(http, "large", {"size": 9_000}))["taskId"], "completed")


async def test_an_answer_that_makes_a_task_too_large_is_refused_and_another_one_is_taken(autojump_clock):
    async with served(jobs(), max_task_size=10_000) as http:
        params = {"name": "ask", "arguments": {}}
        response = await http.modern("tools/call", params, capabilities=ASKING)
        task_id = response.result["taskId"]
        await until(http, task_id, "input_required")
        wide = YES | {"_meta": {"wide": "x" * 10_000}}
        error = (await request(http, "tasks/update", task_id, inputResponses={"sure": wide})).error
        assert error["code"] == -32602
        assert "The task would take" in error["message"]
        await request(http, "tasks/update", task_id, inputResponses={"sure": YES})
        await trio.sleep(LOOK_AGAIN)
        (name,) = (await until(http, task_id, "input_required"))["inputRequests"]
        assert name != "sure"
        await request(http, "tasks/update", task_id, inputResponses={name: YES})
        await until(http, task_id, "completed")


@pytest.mark.parametrize("setting", ["max_tasks", "max_task_size", "task_ttl"])
def test_a_bound_of_nothing_is_refused_by_name(setting):
    with pytest.raises(SettingError, match=setting):
        Settings(**{setting: 0})


# ----- Replicas


@requirement("X300", "C50")
async def test_any_replica_answers_and_cancels(autojump_clock):
    store = MemoryStore()
    async with running(jobs(), store) as one, running(jobs(), store) as two:
        asking = await start(one, "ask")
        await wait_all_tasks_blocked()
        for key in ("sure", "elicitation-1"):
            told = await status(two, asking)
            assert (told["status"], list(told["inputRequests"])) == ("input_required", [key])
            params = {"taskId": asking, "inputResponses": {key: YES}}
            await two.result("tasks/update", params, capabilities=TASKS)
            await wait_all_tasks_blocked()
        done = await status(two, asking)
        assert done["result"]["content"][0]["text"] == "accept Sure(sure=True) accept Sure(sure=True)"
        working = await start(one, "work", seconds=1_000)
        await wait_all_tasks_blocked()
        assert len(one.core.tasks.running) == 1
        assert not two.core.tasks.running
        await two.result("tasks/cancel", {"taskId": working}, capabilities=TASKS)
        await wait_all_tasks_blocked()
        assert not one.core.tasks.running
        assert (await status(one, working))["status"] == "cancelled"
        assert trio.current_time() == 0  # told by the bus, not found by looking again


@requirement("X300")
async def test_without_the_bus_a_replica_looks_again(autojump_clock):
    store = MemoryStore()

    async def nobody_hears(topic: str, message: bytes) -> None:
        await trio.lowlevel.checkpoint()

    async with running(jobs(), store) as one, running(jobs(), store) as two:
        store.bus.publish = nobody_hears  # type: ignore[method-assign]
        asking, working = await start(one, "ask"), await start(one, "work", seconds=1_000)
        await wait_all_tasks_blocked()
        await two.result("tasks/update", {"taskId": asking, "inputResponses": {"sure": YES}}, capabilities=TASKS)
        await two.result("tasks/cancel", {"taskId": working}, capabilities=TASKS)
        await trio.sleep(LOOK_AGAIN + 0.1)
        assert list((await status(two, asking))["inputRequests"]) == ["elicitation-1"]
        assert len(one.core.tasks.running) == 1


@requirement("W286", "C50")
async def test_a_legacy_task_is_asked_for_and_asks_on_another_replica(autojump_clock):
    store = MemoryStore()
    async with served(jobs(), store) as one, served(jobs(), store) as two:
        session = await one.initialize(capabilities={"elicitation": {}})
        params = {"name": "ask_twice", "arguments": {}, "task": {}}
        task = (await session.post("tools/call", params)).result["task"]
        session.http = two
        async with session.open("tasks/result", {"taskId": task["taskId"]}) as stream:
            for _ in range(2):
                question = await stream.message()
                await session.send({"jsonrpc": "2.0", "id": question["id"], "result": YES})
            (answer,) = await stream.rest()
        assert answer["result"]["content"][0]["text"] == "accept accept"


@requirement("X306", "W290")
async def test_the_tasks_of_a_lost_replica_fail(autojump_clock):
    store = MemoryStore()
    async with running(jobs(), store) as two:
        async with running(jobs(), store) as one:
            # What a replica leaves behind that is killed: a record, and nobody who renews it.
            params = {"name": "work", "arguments": {"seconds": 1_000}}
            call = one.call("tools/call", params, capabilities=TASKS)
            key, record = one.core.tasks.new(call, 600_000)
            await one.core.tasks.keep(call, key, record)
        began = trio.current_time()
        while True:
            told = await status(two, record.id)
            if told["status"] != "working":
                break
            await trio.sleep(0.2)
        assert LEASE - 1 <= trio.current_time() - began <= LEASE + 1
        assert told["status"] == "failed"
        assert told["error"] == {"code": -32603, "message": "The server that ran the task is gone"}
        assert told["statusMessage"] == told["error"]["message"]
        assert (await two.core.tasks.read(key)) is not None


@requirement("X306")
async def test_a_task_that_runs_here_is_not_lost_when_the_clock_is_set(autojump_clock):
    async with running(jobs()) as replica:
        working = await start(replica, "work", seconds=10)
        replica.core.tasks.now = lambda: now() + 4 * LEASE
        assert (await status(replica, working))["status"] == "working"
        await trio.sleep(11)
        assert (await status(replica, working))["status"] == "completed"


@requirement("X306")
async def test_a_task_that_runs_is_never_taken_for_lost(autojump_clock):
    store = MemoryStore()
    async with running(jobs(), store) as one, running(jobs(), store) as two:
        working, asking = await start(one, "work", seconds=4 * LEASE), await start(one, "ask")
        await wait_all_tasks_blocked()
        while trio.current_time() < 4 * LEASE - 1:
            assert (await status(two, working))["status"] == "working"
            assert (await status(two, asking))["status"] == "input_required"
            await trio.sleep(0.7)
        await trio.sleep(2)
        assert (await status(two, working))["status"] == "completed"


@requirement("W284", "X306")
async def test_when_the_server_stops_its_tasks_have_failed(autojump_clock):
    store, did = MemoryStore(), list[str]()
    async with running(jobs(), store) as two:
        async with running(jobs(did), store) as one:
            ids = [await start(one, "work", seconds=1_000, label="a"), await start(one, "ask")]
            done = await start(one, "work", seconds=0)
            await wait_all_tasks_blocked()
        assert did[:2] == ["a began", " began"] or "a cancelled" in did
        for task_id in ids:
            told = await status(two, task_id)
            assert told["status"] == "failed"
            assert told["error"] == {"code": -32603, "message": "The server was stopped"}
        assert (await status(two, done))["status"] == "completed"


@requirement("X300")
async def test_a_server_that_does_not_run_starts_no_task():
    core = Core(jobs(), MemoryStore(), Settings())
    replica = Replica(core)
    error = await replica.error("tools/call", call_params("work", {"seconds": 0}), capabilities=TASKS)
    assert error == {"code": -32603, "message": "The server is not running tasks"}
    assert await core.store.records("task").count() == 0


# ----- Whose it is


@requirement("X311", "X307")
async def test_anothers_task_is_unknown_byte_for_byte(autojump_clock):
    async with running(jobs()) as replica:
        task_id = await start(replica, "work", principal=ADA, seconds=1_000)
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            params = {"taskId": task_id, "inputResponses": {}}
            for principal in (EVE, OTHER_ADA, None):
                assert await replica.error(method, params, principal=principal, capabilities=TASKS) == UNKNOWN
        assert (await status(replica, task_id, ADA))["status"] == "working"


# ----- Nothing stays


@requirement("T251")
@pytest.mark.usefixtures("no_gc")
async def test_a_task_does_not_keep_the_request_that_began_it(autojump_clock):
    before = living(Reply, Call)
    async with served(jobs()) as http:
        session = await http.initialize()
        params = {"name": "work", "arguments": {"seconds": 1_000}, "task": {}}
        await session.post("tools/call", params)
        await begin(http, "work", {"seconds": 1_000})
        await http.settle()
        assert len(http.endpoint.core.tasks.running) == 2
        found = living(Reply, Call)
        assert found.get("Reply", 0) == before.get("Reply", 0)
        assert found["Call"] == before.get("Call", 0) + 2  # the tasks' own


@requirement("T251")
@pytest.mark.usefixtures("no_gc")
async def test_nothing_of_a_task_is_alive_when_it_is_over(autojump_clock):
    async with served(jobs()) as http:
        session = await http.initialize(capabilities={"elicitation": {}})
        kinds = (Call, TaskRun, Context)
        # An exception that is a parameter of some other test lives on with its traceback, and with the calls in that.
        before = living(*kinds)

        async def all_kinds() -> None:
            for tool, arguments in (("work", {"seconds": 1}), ("fail", {"how": "tool"}), ("fail", {"how": "protocol"})):
                await until(http, (await begin(http, tool, arguments))["taskId"], "completed", "failed")
                params = {"name": tool, "arguments": arguments, "task": {}}
                task = (await session.post("tools/call", params)).result["task"]
                await session.post("tasks/result", {"taskId": task["taskId"]})
            params = {"name": "later", "arguments": {}, "inputResponses": {"sure": YES}}
            created = await http.modern("tools/call", params, capabilities=ASKING)
            await until(http, created.result["taskId"], "completed")
            params["inputResponses"] = {"sure": {"action": "cancel"}}
            await http.modern("tools/call", params, capabilities=ASKING)
            await http.call("later", capabilities=ASKING)
            for _ in range(2):
                created = await http.modern("tools/call", call_params("ask"), capabilities=ASKING)
                await request(http, "tasks/cancel", created.result["taskId"])
            await wait_all_tasks_blocked()

        await all_kinds()
        await http.settle()
        assert not gc.isenabled()
        assert living(*kinds) == before
        assert http.endpoint.core.tasks.running == {}
        assert not http.endpoint.core.tasks._waiters
