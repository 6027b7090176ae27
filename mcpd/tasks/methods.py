"""The methods of tasks, in both eras (SEP-2663; 2025-11-25, basic/utilities/tasks)."""

# No `from __future__ import annotations`: msgspec reads these annotations at run time.
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio
from msgspec import Raw

from mcpd.errors import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    CapabilityError,
    ClientError,
    ProtocolError,
    StoreError,
    only,
)
from mcpd.protocol.jsonrpc import is_object
from mcpd.protocol.requests import ListParams, Params, decode_params
from mcpd.server.background import TASKS, unknown_method
from mcpd.server.call import Call
from mcpd.tasks.record import RELATED, Question, TaskRecord, encode_error_object

if TYPE_CHECKING:
    from mcpd.tasks.tasks import Tasks

Method = Callable[["Tasks", Call], Awaitable[Any]]


class TaskParams(Params, kw_only=True):
    """``tasks/get``, ``tasks/cancel``, ``tasks/result``."""

    task_id: str


class UpdateParams(TaskParams, kw_only=True):
    """``tasks/update``."""

    input_responses: dict[str, Raw]


# ----- The extension


def _declared(call: Call) -> None:
    if TASKS not in (call.capabilities.extensions or {}):
        raise CapabilityError({"extensions": {TASKS: {}}}, what="tasks extension")


async def get(tasks: "Tasks", call: Call) -> Any:
    """The task as it is, with what its status brings along."""
    _declared(call)
    _, record = await tasks.load(call, decode_params(TaskParams, call.params).task_id)
    return _complete(tasks, record.modern())


async def update(tasks: "Tasks", call: Call) -> Any:
    """Answers to questions of the task; those to unknown or answered ones are ignored."""
    _declared(call)
    params = decode_params(UpdateParams, call.params)
    key, _ = await tasks.load(call, params.task_id)
    for name, response in params.input_responses.items():
        if not is_object(response):
            raise ProtocolError(INVALID_PARAMS, f"inputResponses.{name} must be an object")
    await tasks.change(key, lambda record: answer(record, params.input_responses))
    return _complete(tasks, {})


async def cancel(tasks: "Tasks", call: Call) -> Any:
    """Cancel the task, if it is not over."""
    _declared(call)
    key, _ = await tasks.load(call, decode_params(TaskParams, call.params).task_id)
    await tasks.change(key, cancelled)
    return _complete(tasks, {})


def _complete(tasks: "Tasks", told: dict[str, Any]) -> dict[str, Any]:
    return tasks.dispatcher.offer.signed(told | {"resultType": "complete"})


def answer(record: TaskRecord, responses: dict[str, Raw]) -> None:
    """Put answers into the record; without a further question the task goes on."""
    for name, question in record.open_questions.items():
        if name in responses:
            question.answer = bytes(responses[name])
    record.go_on()


def refused(record: TaskRecord, name: str, error: bytes) -> None:
    """The client has answered a question with an error."""
    question = record.questions.get(name)
    if question is not None and question.open:
        question.error = error
    record.go_on()


def cancelled(record: TaskRecord) -> None:
    """The record of a task that its client cancelled."""
    record.status = "cancelled"
    record.message = "The task was cancelled by request"


# ----- 2025-11-25


async def legacy_get(tasks: "Tasks", call: Call) -> Any:
    """The task as it is."""
    _, record = await tasks.load(call, decode_params(TaskParams, call.params).task_id)
    return record.legacy()


async def legacy_list(tasks: "Tasks", call: Call) -> Any:
    """All tasks of the session."""
    if call.session is None:
        # "If a server cannot identify requestors, it SHOULD NOT advertise tasks/list".
        raise unknown_method(call.method, call.revision)
    cursor = decode_params(ListParams, call.params).cursor
    if cursor is not None:
        raise ProtocolError(INVALID_PARAMS, "Invalid cursor: all tasks are on the first page")
    found: list[Any] = []
    for task_id in await call.session.task_ids():
        record = await tasks.read(tasks.key(call, task_id))
        if record is not None:
            found.append(record.legacy())
    return {"tasks": found}


async def legacy_cancel(tasks: "Tasks", call: Call) -> Any:
    """Cancel the task.

    Raises:
      ProtocolError: -32602: it is over already.
    """
    key, record = await tasks.load(call, decode_params(TaskParams, call.params).task_id)
    if record.over:
        raise ProtocolError(INVALID_PARAMS, f"The task is {record.legacy()['status']} already")
    changed = await tasks.change(key, cancelled)
    return (changed or record).legacy()


async def legacy_result(tasks: "Tasks", call: Call) -> Any:
    """What the call would have been answered with, once it is; until then its questions are asked on this stream.

    Raises:
      ProtocolError: the call's own error.
    """
    key, record = await tasks.load(call, decode_params(TaskParams, call.params).task_id)
    task_id = record.id
    run = tasks.running.get(key)
    if run is not None:
        run.listeners.append(call.outlet)
    found: TaskRecord | None = record
    try:
        async with trio.open_nursery() as nursery:
            asked: set[str] = set()
            while found is not None and not found.over:
                for name, question in found.open_questions.items():
                    if name not in asked:
                        asked.add(name)
                        nursery.start_soon(_ask, tasks, call, key, name, question)
                await tasks.wait(key)
                found = await tasks.read(key)
            nursery.cancel_scope.cancel()
    except ExceptionGroup as exc:
        # The look at the task and several of its questions may have met the same store that is away.
        if exc.split(StoreError)[1] is None:
            raise StoreError("The task could not be followed") from exc
        raise only(exc)  # noqa: B904 - it has its own cause
    finally:
        if run is not None:
            run.listeners.remove(call.outlet)
    if found is None:
        raise ProtocolError(INVALID_PARAMS, "Unknown or expired task")
    record = found
    related = {RELATED: {"taskId": task_id}}
    if record.result is not None:
        result = msgspec.json.decode(record.result)
        return result | {"_meta": result.get("_meta", {}) | related}
    if record.error is not None:
        error = msgspec.json.decode(record.error)
        raise ProtocolError(error["code"], error["message"], error.get("data"))
    raise ProtocolError(INVALID_PARAMS, "The task was cancelled")


async def _ask(tasks: "Tasks", call: Call, key: str, name: str, question: Question) -> None:
    params = msgspec.json.decode(question.params)
    task_id = key.partition(".")[2]
    params["_meta"] = params.get("_meta", {}) | {RELATED: {"taskId": task_id}}
    try:
        response = await call.outlet.ask(question.method, params, bytes, key=name, timeout=float("inf"))
    except ClientError as exc:
        if exc.code == CONNECTION_CLOSED:
            return  # this request's client cannot be asked; another's may
        error = encode_error_object(exc.code, exc.message)
        await tasks.change(key, lambda record: refused(record, name, error))
    else:
        await tasks.change(key, lambda record: answer(record, {name: Raw(response)}))


def _offered(method: Method) -> Method:
    """*method*, where the server has tasks and the revision knows them; else there is no such method."""

    async def offered(tasks: "Tasks", call: Call) -> Any:
        if not tasks.dispatcher.offer.has_tasks or not (call.revision.modern or call.revision.priming):
            raise unknown_method(call.method, call.revision)
        return await method(tasks, call)

    return offered


LEGACY: Final[dict[str, Method]] = {
    "tasks/get": _offered(legacy_get),
    "tasks/list": _offered(legacy_list),
    "tasks/cancel": _offered(legacy_cancel),
    "tasks/result": _offered(legacy_result),
}
MODERN: Final[dict[str, Method]] = {
    "tasks/get": _offered(get),
    "tasks/update": _offered(update),
    "tasks/cancel": _offered(cancel),
}
