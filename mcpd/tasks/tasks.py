"""Running calls as tasks, and the state of each in the store.

The record is the truth and any replica can read it, answer its questions and cancel it. The replica that runs the call
hears of that on the bus, at the latest by looking again; it renews a lease in the record, so that the tasks of a lost
replica fail.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from weakref import WeakSet, WeakValueDictionary

import msgspec
import trio

from mcpd.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    LimitError,
    ProtocolError,
    ShareFullError,
    StoreError,
    StoreFullError,
)
from mcpd.memory import SMALL, MemoryGuard
from mcpd.protocol.jsonrpc import encode, is_object
from mcpd.server.changes import Change
from mcpd.server.principal import identity_of
from mcpd.shares import share_of
from mcpd.tasks.methods import LEGACY, MODERN
from mcpd.tasks.record import TaskRecord, decode_task, encode_error_object, encode_task
from mcpd.tasks.run import TaskRun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mcpd.ports import Store
    from mcpd.protocol.requests import CallToolParams
    from mcpd.server.call import Call, LegacySession
    from mcpd.server.dispatch import Dispatcher
    from mcpd.sessions.subscriptions import Subscriptions

T = TypeVar("T")
logger: Final = logging.getLogger("mcpd.tasks")
_TOPIC: Final = "tasks"
# When a task ends is part of its id, so that a look-up knows how long the record has to live.
_ID: Final = re.compile(r"t([0-9a-f]{1,12})_[A-Za-z0-9_-]{24}")
LEASE: Final = 15.0
LOOK_AGAIN: Final = 2.0
"""Seconds after which a task looks at its record without having been told to."""


class Follower(Protocol):
    """Who is told of some tasks."""

    async def look(self) -> None:
        """Read the tasks: of one whose replica is gone nobody tells but who reads it.

        Raises:
          StoreError: the store cannot be reached.
        """
        ...


class Tasks:
    """All tasks of one server."""

    def __init__(
        self,
        store: Store,
        dispatcher: Dispatcher,
        subscriptions: Subscriptions,
        *,
        capacity: int,
        each: int | None = None,
        ttl: float,
        max_bytes: int = 4 * 1024 * 1024,
        memory: MemoryGuard | None = None,
        rejected: dict[str, int] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
          store: where their records are.
          dispatcher: runs their calls.
          subscriptions: tells listeners of them.
          capacity: how many there may be, the finished ones included; those give way to new ones.
          each: how many each owner may have; of its own those give way that are over.
          ttl: seconds a task is kept from its creation, and may take.
          max_bytes: how large a task's record may become.
          memory: says when no more may come, and those that are there may not grow.
          rejected: counts what is refused, by reason: ``full`` or ``principal``.
          now: the wall clock.
        """  # noqa: D205, D212 - the class says it
        self.dispatcher = dispatcher
        self.now = now
        self._records = store.records("task", capacity=capacity)
        self._each = each
        self._rejected = {"full": 0, "principal": 0} if rejected is None else rejected
        self._bus = store.bus
        self._subscriptions = subscriptions
        self._ttl = ttl
        self._max_bytes = max_bytes
        self._memory = MemoryGuard(None) if memory is None else memory
        self._waiters: WeakValueDictionary[str, trio.lowlevel.ParkingLot] = WeakValueDictionary()
        self._nursery: trio.Nursery | None = None
        self.lease = LEASE
        self.running: dict[str, TaskRun] = {}
        """The tasks that run here, by key."""
        self.followers: WeakSet[Follower] = WeakSet()
        """Who is to be told of tasks, whichever replica runs them."""
        dispatcher.offer.tasks = self
        dispatcher.extend(self, legacy=LEGACY, modern=MODERN)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run tasks, until cancelled; what is running then has failed."""
        async with trio.open_nursery() as nursery, self._bus.subscribe(_TOPIC) as hints:
            self._nursery = nursery
            try:
                nursery.start_soon(self._look_for_lost)
                task_status.started()
                async for hint in hints:
                    self._wake(hint.decode())
            finally:
                self._nursery = None

    async def _look_for_lost(self) -> None:
        while True:
            await trio.sleep(self.lease)
            with suppress(StoreError):  # it is away
                await self._look()

    async def _look(self) -> None:
        # A method, so that no name in the loop above keeps the last follower.
        for follower in list(self.followers):
            await follower.look()

    # ----- Starting

    async def start(self, call: Call, params: CallToolParams, *, later: bool) -> Any:
        """Run *call* as a task; `mcpd.server.background.TaskRunner`."""
        if self._nursery is None:
            raise ProtocolError(INTERNAL_ERROR, "The server is not running tasks")
        run = TaskRun(self, call, ttl_ms=self._ttl_ms(call, params))
        if not later:
            await run.start()
        self._nursery.start_soon(run.run)
        return await run.answered()

    def new(self, call: Call, ttl_ms: int) -> tuple[str, TaskRecord]:
        """The key and the record of a new task; nobody knows of it before it is kept."""
        now = self.now()
        task_id = f"t{round(now * 1000) + ttl_ms:x}_{secrets.token_urlsafe(18)}"
        return self.key(call, task_id), TaskRecord(task_id, now, now, ttl_ms, now + self.lease)

    async def keep(self, call: Call, key: str, record: TaskRecord) -> None:
        """Keep a new record. At the caps the least recently used task gives way that does not run.

        Raises:
          LimitError: there are too many tasks that run.
          ProtocolError: the session has too many, or the process is short of memory.
        """
        data = encode_task(record)
        if not self._memory.has_room(len(data)):
            raise _short_of_memory()
        if call.session is not None:
            await self._join(call, call.session, record.id)
        share = share_of(call.owner, self._each)
        try:
            await self._records.create(key, data, ttl=record.ttl_ms / 1000, spare=self.running, share=share)
        except ShareFullError:
            self._rejected["principal"] += 1
            message = f"This client has its share of {self._each} tasks, and all of them run; try again later"
            raise LimitError(message, limit="max_tasks_per_principal", own=True) from None
        except StoreFullError:
            self._rejected["full"] += 1
            raise LimitError("There are too many tasks; try again later", limit="max_tasks") from None

    async def _join(self, call: Call, session: LegacySession, task_id: str) -> None:
        """Count the task among its session's; at the cap the oldest that is over gives way."""
        gone: set[str] = set()
        while True:
            known = await session.task_ids()
            gone |= {each for each in known if _ends(each) <= self.now()}
            if await session.add_task(task_id, gone=gone):
                return
            for each in known:
                key = self.key(call, each)
                if each in gone or key in self.running:
                    continue
                record = await self.read(key)
                if record is None or record.over:
                    await self._records.delete(key)
                    gone.add(each)
                    break
            else:
                raise _too_many()

    def _ttl_ms(self, call: Call, params: CallToolParams) -> int:
        longest = round(self._ttl * 1000)
        if call.revision.modern or isinstance(params.task, msgspec.UnsetType) or not is_object(params.task):
            return longest  # the extension has no such parameter
        asked = msgspec.json.decode(params.task).get("ttl")
        return min(longest, asked) if type(asked) is int and asked > 0 else longest

    # ----- Records

    def key(self, call: Call, task_id: str) -> str:
        """The record's key: bound to the session (legacy) or the principal (modern), so a stranger's is unknown.

        A session is bound to its principal itself.
        """
        if call.session is not None:
            return _key(None, call.session.id, task_id)
        return _key(identity_of(call.principal), None, task_id)

    async def load(self, call: Call, task_id: str) -> tuple[str, TaskRecord]:
        """The key and the record of a task.

        Raises:
          ProtocolError: -32602: it is unknown, expired or somebody else's.
        """
        if _ID.fullmatch(task_id) is not None:
            key = self.key(call, task_id)
            found = await self.read(key)
            if found is not None:
                return key, found
        else:
            await trio.lowlevel.checkpoint()
        raise ProtocolError(INVALID_PARAMS, "Unknown or expired task")

    async def read(self, key: str) -> TaskRecord | None:
        """The record as it is now. If the replica that ran it is gone, it has failed.

        What runs here needs no lease to say so: the wall clock may have been set.
        """
        data = await self._records.load(key, ttl=self._left(key)) if self._left(key) > 0 else None
        if data is None:
            return None
        record = decode_task(data)
        if not record.over and key not in self.running and record.lease < self.now():
            return await self.change(key, _lost)
        return record

    async def change(self, key: str, apply: Callable[[TaskRecord], object]) -> TaskRecord | None:
        """Change the record as one step, tell everybody, and return it; None when it is gone.

        "Tasks with a completed, failed, or cancelled status are in a terminal state and MUST NOT transition": that
        stays as it is.

        Raises:
          ProtocolError: the record would become too large, or the process is short of memory for it.
        """
        while True:
            left = self._left(key)
            data = await self._records.load(key, ttl=left) if left > 0 else None
            if data is None:
                return None
            record = decode_task(data)
            if record.over:
                return record
            before = (record.status, len(record.open_questions))
            apply(record)
            told = (record.status, len(record.open_questions)) != before
            if told:
                record.updated = self.now()
            changed = encode_task(record)
            self._check_growth(record, len(changed), len(data))
            if await self._records.save(key, changed, ttl=left, expected=data):
                if told:
                    self._wake(key)
                    await self._bus.publish(_TOPIC, key.encode())
                    self._subscriptions.tell(Change("task", record.id))
                return record

    def _check_growth(self, record: TaskRecord, size: int, before: int) -> None:
        grown = size - before
        if grown <= 0 or size <= SMALL or (record.over and grown <= SMALL):
            return
        if size > self._max_bytes:
            raise ProtocolError(INVALID_PARAMS, f"The task would take {size} bytes, of at most {self._max_bytes}")
        if not self._memory.has_room(grown):
            raise _short_of_memory()

    async def renew(self, key: str) -> TaskRecord | None:
        """The task runs here: renew its lease, and let no replica take its record for one that may give way."""
        record = await self.change(key, self._lease)
        if record is not None and not record.over:
            await self._records.renew([key], ttl=self._left(key))
        return record

    def _lease(self, record: TaskRecord) -> None:
        record.lease = self.now() + self.lease

    async def forget(self, session_id: str, task_ids: Sequence[str]) -> None:
        """The session is over: nothing of its tasks stays, and those that run are stopped, wherever that is."""
        for task_id in task_ids:
            key = _key(None, session_id, task_id)
            if await self._records.delete(key):
                self._wake(key)
                await self._bus.publish(_TOPIC, key.encode())

    async def wait(self, key: str) -> None:
        """Return when the task has changed, or at the latest after `LOOK_AGAIN` seconds."""
        waiters = self._waiters.get(key)
        if waiters is None:
            waiters = self._waiters[key] = trio.lowlevel.ParkingLot()
        with trio.move_on_after(LOOK_AGAIN):
            await waiters.park()

    async def finish(self, key: str, apply: Callable[[TaskRecord], object]) -> None:
        """The last change of a task, also while the server is being stopped.

        An outcome for which there is no room becomes an error that says so.
        """
        with trio.move_on_after(2.0, shield=True), suppress(StoreError):
            try:
                record = await self.change(key, apply)
            except ProtocolError as exc:
                logger.warning("The outcome of a task is not kept: %s", exc)
                record = await self.change(key, partial(_not_kept, str(exc)))
            if record is None:
                self._subscriptions.tell(Change("task", key.partition(".")[2]))  # it has expired

    def _left(self, key: str) -> float:
        return _ends(key.partition(".")[2]) - self.now()

    def _wake(self, key: str) -> None:
        waiters = self._waiters.get(key)
        if waiters is not None:
            waiters.unpark_all()


def _key(principal: object, session_id: str | None, task_id: str) -> str:
    return f"{hashlib.sha256(encode([principal, session_id])).hexdigest()[:32]}.{task_id}"


def _ends(task_id: str) -> float:
    return int(task_id[1:].partition("_")[0], 16) / 1000


def _too_many() -> ProtocolError:
    return ProtocolError(INTERNAL_ERROR, "There are too many tasks; try again later", http_status=503)


def _short_of_memory() -> ProtocolError:
    return ProtocolError(INTERNAL_ERROR, "The server is short of memory for tasks; try again later", http_status=503)


def _not_kept(why: str, record: TaskRecord) -> None:
    record.status = "failed"
    record.message = f"The outcome cannot be kept: {why}"
    record.error = encode_error_object(INTERNAL_ERROR, record.message)


def _lost(record: TaskRecord) -> None:
    record.status = "failed"
    record.message = "The server that ran the task is gone"
    record.error = encode_error_object(INTERNAL_ERROR, record.message)
