"""A server whose tools run as tasks, and clients of both eras that follow them. Its wall clock is Trio's."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import msgspec
import trio

from mcpd import Context, ProtocolError, Server, ToolError
from mcpd.ports import Store
from tests.harness import serving
from tests.server.replica import now

EXTENSION = "io.modelcontextprotocol/tasks"
TASKS = {"extensions": {EXTENSION: {}}}
RELATED = "io.modelcontextprotocol/related-task"
STATUSES = {"working", "input_required", "completed", "failed", "cancelled"}


class Sure(msgspec.Struct):
    sure: bool


def jobs(did: list[str] | None = None) -> Server:
    """The server; *did* hears what becomes of its work."""
    server = Server("jobs", version="2")
    told = [] if did is None else did

    @server.tool(task="optional")
    async def work(seconds: float, ctx: Context, label: str = "") -> str:
        told.append(f"{label} began")
        try:
            await ctx.progress(1, 2, "half")
            await ctx.info("working")
            await trio.sleep(seconds)
            await ctx.progress(2, 2, "done")
        except trio.Cancelled:
            told.append(f"{label} cancelled")
            raise
        told.append(f"{label} done")
        return f"worked {seconds:g} s"

    @server.tool(task="required")
    async def must() -> str:
        await trio.sleep(1)
        return "as a task"

    @server.tool
    async def never() -> str:
        return "not as a task"

    @server.tool(task="optional")
    async def fail(how: str) -> str:
        await trio.sleep(1)
        if how == "tool":
            raise ToolError("the disk is full")
        if how == "protocol":
            raise ProtocolError(-1234, "no such job", {"job": 7})
        raise RuntimeError("a secret")

    @server.tool(task="optional")
    async def ask(ctx: Context, timeout: float = 600.0) -> str:
        answer = await ctx.elicit("Sure?", Sure, key="sure", timeout=timeout)
        again = await ctx.elicit("Really?", Sure, timeout=timeout)
        return f"{answer.action} {answer.content} {again.action} {again.content}"

    @server.tool(task="optional")
    async def ask_twice(ctx: Context) -> str:
        found: dict[str, str] = {}

        async def one(key: str) -> None:
            found[key] = (await ctx.elicit(f"{key}?", Sure, key=key)).action

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, "a")
            nursery.start_soon(one, "b")
        return f"{found['a']} {found['b']}"

    @server.tool(task="optional")
    async def large(size: int) -> str:
        await trio.sleep(1)
        return "x" * size

    @server.tool(task="optional")
    async def sample(ctx: Context) -> str:
        return (await ctx.sample("hi", max_tokens=5)).text

    @server.tool(task="required", task_later=True)
    async def later(ctx: Context, seconds: float = 1.0) -> str:
        answer = await ctx.elicit("Sure?", Sure, key="sure")
        if answer.content is None:
            return "no task was needed"
        if not answer.content.sure:
            raise ProtocolError(-7, "then not")
        await ctx.start_task()
        await ctx.start_task()  # twice is once
        await trio.sleep(seconds)
        return "after the question"

    return server


@asynccontextmanager
async def served(server: Server, store: Store | str = "memory", **settings: Any) -> AsyncGenerator[Any, None]:
    """The harness's `serving`, with the tasks on Trio's clock."""
    async with serving(server, store=store, **settings) as http:
        http.endpoint.core.tasks.now = now
        yield http


# ----- Modern


async def begin(http: Any, tool: str, arguments: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    """Call a tool as a client that can have tasks: the ``CreateTaskResult``."""
    params = {"name": tool, "arguments": arguments or {}} | params
    response = await http.modern("tools/call", params, capabilities=TASKS)
    assert response.status == 200, response.body
    created: dict[str, Any] = response.result
    assert created["resultType"] == "task", created
    return created


async def request(http: Any, method: str, task_id: str, **params: Any) -> Any:
    """One of the extension's requests."""
    capabilities = params.pop("capabilities", TASKS)
    return await http.modern(method, {"taskId": task_id, **params}, name=task_id, capabilities=capabilities)


async def get(http: Any, task_id: str) -> dict[str, Any]:
    """``tasks/get`` of a task that is there; every answer is checked as the extension has it."""
    result: dict[str, Any] = (await request(http, "tasks/get", task_id)).result
    check(result, "complete")
    return result


async def until(http: Any, task_id: str, *statuses: str) -> dict[str, Any]:
    """Poll as advised until the task has one of *statuses*."""
    with trio.fail_after(60):
        while True:
            found = await get(http, task_id)
            if found["status"] in statuses:
                return found
            await trio.sleep(found["pollIntervalMs"] / 1000)


def check(told: dict[str, Any], kind: str | None) -> None:
    """A ``DetailedTask``: what its status brings along, and nothing else."""
    by_status = {"input_required": {"inputRequests"}, "completed": {"result"}, "failed": {"error"}}
    common = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"}
    expected = common | by_status.get(told["status"], set())
    if kind is not None:
        expected |= {"resultType"}
        assert told["resultType"] == kind
    assert told.keys() - {"statusMessage", "_meta"} == expected, told
    assert told["status"] in STATUSES
    assert type(told["ttlMs"]) is int
    assert told["ttlMs"] > 0
    assert type(told["pollIntervalMs"]) is int
    assert told["pollIntervalMs"] > 0
    for moment in (told["createdAt"], told["lastUpdatedAt"]):
        datetime.fromisoformat(moment)
    assert told["createdAt"] <= told["lastUpdatedAt"]
