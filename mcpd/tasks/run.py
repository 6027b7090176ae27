"""One call that runs as a task."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import trio

from mcpd.errors import INTERNAL_ERROR, ClientError, ProtocolError, StoreError
from mcpd.protocol.jsonrpc import encode
from mcpd.server.call import NOWHERE
from mcpd.tasks.record import RELATED, Question, TaskRecord, encode_error_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpd.server.call import Call, Outlet
    from mcpd.server.dispatch import Answer
    from mcpd.tasks.tasks import Tasks

T = TypeVar("T")
logger: Final = logging.getLogger("mcpd.tasks")
_TRIES: Final = 10
"""How often a question is asked again whose answer does not fit."""


class _Response(msgspec.Struct):
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Outcome(msgspec.Struct, rename="camel"):
    is_error: bool = False


_response: Final = msgspec.json.Decoder(_Response)
_outcome: Final = msgspec.json.Decoder(_Outcome)


class TaskRun:
    """A call on its way as a task: its own call's outlet, and what its request is waiting for.

    It implements `mcpd.server.background.Background` and `mcpd.server.call.Outlet`.
    """

    def __init__(self, tasks: Tasks, call: Call, *, ttl_ms: int) -> None:
        """Args: *tasks*: all of them; *call*: the request's; *ttl_ms*: how long the task is kept, and may take."""
        self._tasks = tasks
        self._request: Call | None = call
        self._call = call.detached(self)
        self._ttl_ms = ttl_ms
        self._key = ""
        self._record: TaskRecord | None = None
        self._numbered: dict[str, int] = {}
        self._answer = trio.Event()
        self._result: Any = None
        self._error: ProtocolError | None = None
        self.listeners: list[Outlet] = []
        """Open ``tasks/result`` requests of the task here: what it reports goes to them."""

    # ----- The request's side

    async def start(self) -> None:
        """Make the task; its request is answered with it."""
        request = self._request
        if request is None:
            await trio.lowlevel.checkpoint()
            return
        key, record = self._tasks.new(request, self._ttl_ms)
        self._tasks.running[key] = self
        try:
            await self._tasks.keep(request, key, record)
        except BaseException:
            del self._tasks.running[key]
            raise
        self._key, self._record = key, record
        # With it goes its exchange, which the task outlives.
        self._request = self._call.rounds = self._call.first_round = None
        if request.revision.modern:
            self._result = self._tasks.dispatcher.offer.signed(self._record.modern() | {"resultType": "task"})
        else:
            self._result = {"task": self._record.legacy()}
        self._answer.set()

    async def answered(self) -> Any:
        """What the request is answered with: the task, or the call's own result if it ended without becoming one.

        Raises:
          ProtocolError: the call ended with an error before it became a task.
        """
        try:
            await self._answer.wait()
        except trio.Cancelled:
            if self._record is None:
                self._call.cancel()
            raise
        if self._error is not None:
            raise self._error
        return self._result

    # ----- The task's side

    async def run(self) -> None:
        """Run the call to its end, and keep its outcome."""
        outcome: Callable[[TaskRecord], object] = _stopped
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch)
                answer = await self._tasks.dispatcher.answer(self._call)
                nursery.cancel_scope.cancel()
            if self._record is None:
                self._answer_request(answer)
                return
            outcome = _cancelled if answer is None else _outcome_of(answer)
        finally:
            if self._record is not None:
                self._tasks.running.pop(self._key, None)
                await self._tasks.finish(self._key, outcome)
            elif not self._answer.is_set():
                self._error = ProtocolError(INTERNAL_ERROR, "The server is shutting down")
                self._answer.set()
            # This object and its call know each other; nothing is to wait for the garbage collector.
            self._call.background = None
            self._call.outlet = NOWHERE

    def _answer_request(self, answer: Answer | None) -> None:
        if answer is None:
            self._error = ProtocolError(INTERNAL_ERROR, "The call was cancelled")
        else:
            response = _response.decode(answer.body)
            if isinstance(response.error, msgspec.UnsetType):
                self._result = response.result
            else:
                error = msgspec.json.decode(response.error)
                status = answer.status if answer.status != 200 else None
                self._error = ProtocolError(error["code"], error["message"], error.get("data"), http_status=status)
        self._answer.set()

    async def _watch(self) -> None:
        """Stop the call when the task is over for others or its time is up, and renew the lease until then."""
        await self._answer.wait()
        session = self._call.session
        while True:
            await self._tasks.wait(self._key)
            try:
                record = await self._tasks.renew(self._key)
                if session is not None and session.ended and record is not None:
                    # Nobody can ask for it any more: nothing of it is to stay.
                    await self._tasks.forget(session.id, [record.id])
                    record = None
            except StoreError as exc:
                logger.warning("A task could not be renewed: %s", exc)
                continue
            if record is None or record.over:
                self._call.cancel()
                return

    # ----- Outlet

    async def send(self, message: bytes) -> None:
        """What a task reports goes to who waits for its result (legacy); the extension has no reports."""
        await trio.lowlevel.checkpoint()
        if self._call.revision.modern or not self.listeners or self._record is None:
            return
        plain = msgspec.json.decode(message)
        plain["params"]["_meta"] = {RELATED: {"taskId": self._record.id}} | plain["params"].get("_meta", {})
        # One of them: a message is never written to two streams. The newest is the likeliest to be read.
        await self.listeners[-1].send(encode(plain))

    async def ask(
        self, method: str, params: dict[str, Any], read: Callable[[msgspec.Raw], T], *, key: str | None, timeout: float
    ) -> T:
        """Put the question into the task, and wait for its answer. One that does not fit is asked again."""
        for _ in range(_TRIES):
            name = self._name(method, key)
            question = Question(method, encode(params))

            def add(record: TaskRecord, name: str = name, question: Question = question) -> None:
                record.questions[name] = question
                record.status = "input_required"

            await self._tasks.change(self._key, add)
            answer: bytes | None = None
            with trio.move_on_after(timeout):
                answer = await self._answer_to(name)
            if answer is None:
                await self._tasks.change(self._key, partial(_withdraw, name))
                raise ClientError(INTERNAL_ERROR, f"The client did not answer within {timeout:g} s")
            try:
                return read(msgspec.Raw(answer))
            except ValueError:
                continue
        raise ClientError(INTERNAL_ERROR, "The client's answers do not fit")

    async def close_stream(self) -> None:
        """A task has none."""
        await trio.lowlevel.checkpoint()

    def _name(self, method: str, key: str | None) -> str:
        # "Each request key in inputRequests MUST be unique over the lifetime of a single task" (SEP-2663).
        stem = key or method.partition("/")[0]
        number = self._numbered[stem] = self._numbered.get(stem, 0) + 1
        return stem if key is not None and number == 1 else f"{stem}-{number}"

    async def _answer_to(self, name: str) -> bytes:
        while True:
            record = await self._tasks.read(self._key)
            question = None if record is None or record.over else record.questions.get(name)
            if question is None:
                # A plain handler's thread cannot be cancelled; it hears of it here.
                raise ClientError(INTERNAL_ERROR, "The task is over")
            if question.answer is not None:
                return question.answer
            if question.error is not None:
                error = msgspec.json.decode(question.error)
                raise ClientError(error["code"], error["message"])
            await self._tasks.wait(self._key)


def _withdraw(name: str, record: TaskRecord) -> None:
    record.questions.pop(name, None)
    record.go_on()


def _stopped(record: TaskRecord) -> None:
    record.status = "failed"
    record.message = "The server was stopped"
    record.error = encode_error_object(INTERNAL_ERROR, record.message)


def _cancelled(record: TaskRecord) -> None:
    record.status = "cancelled"


def _outcome_of(answer: Answer) -> Callable[[TaskRecord], object]:
    response = _response.decode(answer.body)

    def apply(record: TaskRecord) -> None:
        if not isinstance(response.result, msgspec.UnsetType):
            record.status = "completed"
            record.result = bytes(response.result)
            record.is_error = _outcome.decode(response.result).is_error
        elif not isinstance(response.error, msgspec.UnsetType):
            record.status = "failed"
            record.error = bytes(response.error)
            record.message = msgspec.json.decode(response.error)["message"]

    return apply
