"""Legacy sessions: a record in the store each, and what of them is live in this process.

Between exchanges a session costs its record and its place in the store's expiry order: no task, no channel, no
buffer. While it has an exchange here it is renewed, so that it expires neither under a call nor under an open stream.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

import msgspec
import trio

from mcpd.errors import LimitError, ShareFullError, StoreError, StoreFullError
from mcpd.memory import HIGH_WATER, MemoryGuard
from mcpd.ports import AtHand, Inspectable
from mcpd.protocol.jsonrpc import Message
from mcpd.protocol.jsonrpc import encode as encode_json
from mcpd.protocol.revisions import LEGACY, Revision
from mcpd.server.meter import Meter
from mcpd.sessions.answers import Answers
from mcpd.sessions.live import Live, Lives, Standalone
from mcpd.sessions.record import (
    MAX_BYTES,
    SessionRecord,
    add_cancellation,
    changed_record,
    decode_record,
    new_record,
)
from mcpd.sessions.recorded import RecordedSession
from mcpd.sessions.signals import TOPIC, Signal, decode_signal, encode_signal
from mcpd.shares import share_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from mcpd.ports import Store
    from mcpd.protocol.jsonrpc import RequestId
    from mcpd.protocol.types import ClientCapabilities, Implementation
    from mcpd.server.principal import Owner
    from mcpd.sessions.live import Closable

T = TypeVar("T")
logger: Final = logging.getLogger("mcpd.sessions")
_ID: Final = re.compile(r"[A-Za-z0-9_-]{24}")
_TRY_AGAIN: Final = 1.0
"""Seconds after which is tried again what the store could not do."""
_NOT_ANYMORE: Final = "The session has ended"


class Sessions:
    """All sessions of one endpoint."""

    def __init__(
        self,
        store: Store,
        *,
        idle: float,
        initialization: float,
        capacity: int,
        each: int | None = None,
        meter: Meter | None = None,
        memory: MemoryGuard | None = None,
        max_bytes: int = MAX_BYTES,
        forget_tasks: Callable[[str, Sequence[str]], Awaitable[None]] | None = None,
    ) -> None:
        """
        Args:
          store: where their records are.
          idle: seconds that a session lives after its last exchange.
          initialization: seconds that it lives after its last exchange until the client says that it is initialized.
          capacity: how many there may be; the least recently used idle one gives way.
          each: how many each owner may have; of its own the least recently used idle one gives way.
          meter: counts them.
          memory: says when no more may come.
          max_bytes: how large a session's record may become.
          forget_tasks: drops what the session of this ID has left of its tasks, whose ids these are.
        """  # noqa: D205, D212 - the class says it
        self.records = store.records("session", capacity=capacity)
        self.at_hand = self.records if isinstance(self.records, AtHand) else None
        """The records, if none has to be waited for: then `load_nowait` will do."""
        self._each = each
        self.events = store.events
        self.answers = Answers(store)
        self.idle = idle
        self._bus = store.bus
        self._shared = store.shared
        self._initialization = min(initialization, idle)
        self.meter = Meter() if meter is None else meter
        self.memory = MemoryGuard(None) if memory is None else memory
        self.max_bytes = max_bytes
        self._forget_tasks = forget_tasks
        self._live = Lives()
        self._replica = secrets.token_hex(8)
        self._streams = count()

    async def create(
        self,
        revision: Revision,
        capabilities: ClientCapabilities,
        client_info: Implementation,
        principal: object = None,
        owner: Owner = "",
    ) -> str:
        """Open a session and return its ID: 144 random bits, visible ASCII.

        Raises:
          LimitError: at a cap, with every session in use, or without memory for another one.
          StoreError: the store cannot be reached.
          ProtocolError: -32602 when the client tells more of itself than a record may hold.
        """
        record = new_record(revision.name, capabilities, client_info, max_bytes=self.max_bytes)
        session_id = secrets.token_urlsafe(18)
        key = _key(session_id, principal)
        if not self.memory.has_room(len(record), HIGH_WATER):
            self.meter.rejected["sessions"]["memory"] += 1
            raise LimitError("There is no memory for another session; try again later", limit="memory_limit")
        share = share_of(owner, self._each)
        try:
            await self.records.create(key, record, ttl=self._initialization, spare=self._live, share=share)
        except ShareFullError:
            self.meter.rejected["sessions"]["principal"] += 1
            message = f"This client has its share of {self._each} sessions, all in use; end one, or try again later"
            raise LimitError(message, limit="max_sessions_per_principal", own=True) from None
        except StoreFullError:
            self.meter.rejected["sessions"]["full"] += 1
            raise LimitError("All sessions are in use; try again later", limit="max_sessions") from None
        except StoreError:
            self.meter.rejected["sessions"]["store"] += 1
            raise
        self.meter.sessions_created += 1
        return session_id

    async def load(self, session_id: str, principal: object = None) -> Session | None:
        """The session of this ID, in use from now until the returned object is dropped; None when there is none.

        A checkpoint only where the store has to be waited for.

        Unknown, expired, ended and another principal's are one answer.

        Raises:
          StoreError: the store cannot be reached.
        """
        if self.at_hand is not None:
            return self.load_nowait(session_id, principal, trio.current_time())
        if _ID.fullmatch(session_id) is None:
            return None
        # Live before it is loaded: a DELETE that comes between finds it, and nothing of the session is left behind.
        live = self._live.of(_key(session_id, principal))
        return self._opened(live, session_id, await self.records.load(live.key, ttl=self.idle))

    def load_nowait(self, session_id: str, principal: object, now: float) -> Session | None:
        """The same, at once, where records are `at_hand`. *now* is Trio's current time."""
        records = self.at_hand
        if records is None or _ID.fullmatch(session_id) is None:
            return None
        key = session_id if principal is None else _key(session_id, principal)
        data = records.load_nowait(key, ttl=self.idle, now=now)
        return None if data is None else self._opened(self._live.of(key), session_id, data)

    def _opened(self, live: Live, session_id: str, data: bytes | None) -> Session | None:
        record = None if data is None else decode_record(data)
        revision = None if record is None else LEGACY.get(record.revision)
        if record is None or revision is None or live.ended:
            return None
        if record.cancelled:
            live.see(record.cancelled)
        return Session(self, session_id, live, record, revision)

    async def end(self, session: Session, reason: Literal["deleted", "aborted"] = "deleted") -> bool:
        """End the session everywhere, at once; False when it had ended already. *reason* is what it counts as."""
        there = await self.records.delete(session.key)
        self.meter.sessions_ended[reason] += there
        session.live.end()
        try:
            await self.events.forget(session.key)
            await self._tell(Signal(self._replica, "end", session.key))
            if self._forget_tasks is not None:
                await self._forget_tasks(session.id, session.record.tasks)
        except StoreError as exc:
            # It has ended all the same: its record is gone, and with it the right to do anything.
            logger.warning("The end of a session could not be told everywhere, or left something behind: %s", exc)
        return there

    async def answer(self, session: Session, message: Message) -> None:
        """The client answers a question of ours, wherever the call that asked is running."""
        if not session.live.questions.answer(message):
            await self.answers.keep(session.key, message)
            await self._tell(Signal(self._replica, "answer", session.key, encode_json(message)))

    async def cancel(self, session: Session, request_id: RequestId) -> None:
        """The client cancels a call of its own, wherever that is running. An unknown one is ignored.

        It stands in the record as well, for a replica that the bus does not reach just now.
        """
        if not session.live.cancel(request_id):
            if self._shared:
                await session.cancelled(request_id)
            await self._tell(Signal(self._replica, "cancel", session.key, encode_json(request_id)))

    async def take_over(self, session: Session, stream: Closable) -> None:
        """This is the session's standalone stream now: the one before ends, on whichever replica that is.

        A proxy may keep an old one open long after the client has left it.
        """
        live = session.live
        if live.standalone is not None:
            live.standalone.stream.finish()
        name = f"{self._replica}.{next(self._streams)}".encode()
        live.standalone = Standalone(name, stream)
        try:
            await self._tell(Signal(self._replica, "listen", session.key, name))
        except StoreError as exc:
            logger.warning("Other replicas could not be told of a new stream: %s", exc)

    async def renew(self, session: Session) -> None:
        """The last exchange ended just now."""
        ttl = self.idle
        if not session.is_initialized:
            # Another exchange may have said so meanwhile.
            record = await session.reload()
            if record is not None and not record.initialized:
                ttl = self._initialization
        await self.records.renew([session.key], ttl=ttl)

    def busy(self) -> int:
        """How many sessions are in use in this process."""
        return len(self._live)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Renew what is in use and hear what other replicas have to say, until cancelled."""
        async with trio.open_nursery() as nursery, self._bus.subscribe(TOPIC) as signals:
            nursery.start_soon(self._renew_live)
            nursery.start_soon(self.answers.run, self._live.all)
            nursery.start_soon(self.memory.run, self.records, self._live)
            task_status.started()
            async for raw in signals:
                if not raw:
                    while not await self._catch_up():  # noqa: ASYNC110 - nothing says that the store is back
                        await trio.sleep(_TRY_AGAIN)
                    continue
                ended = self._hear(raw)
                if ended is not None:
                    await self._forget(ended)

    async def _renew_live(self) -> None:
        pause = interval = max(0.05, min(self.idle / 3, 30.0))
        while True:
            await trio.sleep(pause)
            pause = interval
            keys = list(self._live)
            try:
                for start in range(0, len(keys), 500):
                    await self.records.renew(keys[start : start + 500], ttl=self.idle)
            except StoreError:
                # A session expires only if the store stays away for what is left of its idle time.
                pause = min(interval, _TRY_AGAIN)

    async def _catch_up(self) -> bool:
        """The bus was away, and may have lost what it had for us: look what became of the sessions in use here.

        False when the store was away as well.
        """
        for live in self._live.all():
            try:
                data = await self.records.load(live.key, ttl=self.idle)
                record = None if data is None else decode_record(data)
                if record is None:
                    live.end()
                    await self._forget(live.key)
                else:
                    live.see(record.cancelled)
                    await self.answers.look(live)
            except StoreError as exc:
                logger.warning("What the bus may have lost could not be looked up: %s", exc)
                return False
        return True

    async def _tell(self, signal: Signal) -> None:
        await self._bus.publish(TOPIC, encode_signal(signal))

    async def _forget(self, key: str) -> None:
        # Once more: an event may have been logged here before this replica heard of the end.
        try:
            await self.events.forget(key)
        except StoreError as exc:
            logger.warning("The events of a session that has ended could not be dropped: %s", exc)

    def _hear(self, raw: bytes) -> str | None:
        """Do what another replica says; the key of a session in use here that has ended there."""
        try:
            signal = decode_signal(raw)
            if signal.kind != "listen" and signal.sender == self._replica:
                return None
            return self._obey(signal)
        except (msgspec.MsgspecError, RecursionError):
            logger.warning("The bus brought what is no signal, perhaps from another version of mcpd")
            return None

    def _obey(self, signal: Signal) -> str | None:
        if signal.kind == "removed":
            return self._removed(signal.key)
        live = self._live.get(signal.key)
        if live is None:
            return None
        if signal.kind == "end":
            live.end()
            return signal.key
        if signal.kind == "answer":
            live.questions.answer(msgspec.json.decode(signal.data, type=Message))
        elif signal.kind == "listen":
            live.hear_of_stream(signal.data)
        else:
            live.cancel(msgspec.json.decode(signal.data, type=int | str))
        return None

    def _removed(self, name: str) -> str | None:
        """End the session with a record of that name, which an operator has removed; its key, if it is in use here."""
        if isinstance(self.records, Inspectable):
            for live in self._live.all():
                if self.records.name(live.key) == name:
                    live.end()
                    return live.key
        return None


class Session(RecordedSession):
    """One session in use by one exchange. It implements `mcpd.server.call.LegacySession`."""

    __slots__ = ("_sessions", "id", "key", "live", "record", "revision")

    def __init__(
        self, sessions: Sessions, session_id: str, live: Live, record: SessionRecord, revision: Revision
    ) -> None:
        self._sessions = sessions
        self.id = session_id
        self.key = live.key
        self.live = live
        self.record = record
        self.revision = revision
        """The negotiated one."""

    @property
    def is_initialized(self) -> bool:
        """Whether the client has finished its side of the initialization, as far as is known here."""
        record = getattr(self, "record", None)  # a stream that stays open gives it up
        return record is None or record.initialized

    async def cancelled(self, request_id: RequestId) -> None:
        """Keep for other replicas that the client has cancelled a call."""
        with suppress(ValueError):  # the session's state leaves no room; the bus has to do
            await self._change(lambda record: add_cancellation(record, request_id))

    @property
    def ended(self) -> bool:
        """Whether this replica knows that the session has ended."""
        return self.live.ended

    async def ask(
        self,
        send: Callable[[RequestId], Awaitable[None]],
        read: Callable[[msgspec.Raw], T],
        *,
        timeout: float,
        give_up: Callable[[RequestId], Awaitable[None]],
    ) -> T:
        """Ask the client, who may answer at any replica; see `mcpd.sessions.live.Questions.ask`."""
        answers = self._sessions.answers
        asked: list[RequestId] = []

        async def expect_and_send(id_: RequestId) -> None:
            asked.append(id_)
            await answers.expect(self.key, id_)
            await send(id_)

        try:
            return await self.live.questions.ask(expect_and_send, read, timeout=timeout, give_up=give_up)
        finally:
            for id_ in asked:
                await answers.forget(self.key, id_)

    async def log(self, stream: str, data: bytes, *, last: bool = False) -> str:
        """Add an event to one of the session's streams and return its id; see `mcpd.ports.EventLog.append`."""
        id_ = await self._sessions.events.append(self.key, stream, data, last=last)
        if self.live.ended:
            # It ended meanwhile, and its events are forgotten: this one came too late, and nobody would drop it.
            await self._sessions.events.forget(self.key)
        return id_

    async def reload(self) -> SessionRecord | None:
        """The record as it is now; None when the session has ended."""
        data = await self._sessions.records.load(self.key, ttl=self._sessions.idle)
        return None if data is None else decode_record(data)

    async def _current(self) -> SessionRecord:
        return (await self._read())[1]

    async def _read(self) -> tuple[bytes, SessionRecord]:
        data = await self._sessions.records.load(self.key, ttl=self._sessions.idle)
        record = None if data is None else decode_record(data)
        if data is None or record is None:
            raise StoreError(_NOT_ANYMORE)
        return data, record

    async def _change(self, apply: Callable[[SessionRecord], object]) -> None:
        # Compare and set: another request of the session, here or on another replica, may change it at the same time.
        while True:
            data, record = await self._read()
            apply(record)
            changed = changed_record(record, max_bytes=self._sessions.max_bytes)
            if changed == data or await self._sessions.records.save(
                self.key, changed, ttl=self._sessions.idle, expected=data
            ):
                self.record = record
                return


def _key(session_id: str, principal: object) -> str:
    # The principal is part of the key, hashed: whoever presents another's ID asks for a record that is not there.
    if principal is None:
        return session_id
    owner = hashlib.sha256(encode_json(cast("Any", principal))).hexdigest()[:32]
    return f"{owner}.{session_id}"
