"""A store in one SQLite file: sessions, handles and tasks outlive a restart of the server. Nothing has to be installed.

Records stand in the file. Events and the bus are those of the memory store, since one process has the file to itself:
after a restart sessions go on, but a stream that was cut cannot be resumed.
"""

from __future__ import annotations

import json
import sqlite3
import time
from typing import TYPE_CHECKING, Any

import trio

from mcpd.errors import RecordExistsError, ShareFullError, StoreError, StoreFullError
from mcpd.ports import Dropped
from mcpd_stores.memory import MemoryBus, MemoryEvents

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mcpd.ports import Share

TABLE = """CREATE TABLE IF NOT EXISTS records (
    kind TEXT, key TEXT, record BLOB, used REAL, deadline REAL, owner TEXT, PRIMARY KEY (kind, key)) WITHOUT ROWID"""
LIVE = "kind = :kind AND key = :key AND deadline > :now"


class SQLiteRecords:
    """`mcpd.ports.RecordStore`. Each verb is one statement, or one transaction: that is all a store has to promise."""

    def __init__(self, store: SQLiteStore, kind: str, capacity: int | None) -> None:
        """Args: *store*: where; *kind*: of the records; *capacity*: how many there may be."""
        self._store, self._kind, self._capacity = store, kind, capacity
        self.dropped = Dropped(0, 0)

    async def create(
        self,
        key: str,
        record: bytes,
        *,
        ttl: float,
        spare: Collection[str] | None = (),
        share: Share | None = None,
    ) -> None:
        """Keep a new record; at a cap the least recently used one that is not in *spare* gives way."""

        def insert(db: sqlite3.Connection) -> None:
            here = {"kind": self._kind, "key": key, "record": record, "now": time.time(), "ttl": ttl}
            here["owner"] = None if share is None else share.owner
            if db.execute(f"SELECT 1 FROM records WHERE {LIVE}", here).fetchone():
                raise RecordExistsError(f"There is a record {key!r} already")
            self.free(db)
            if share is not None:
                full = ShareFullError(f"All {share.capacity} records of this owner are in use")
                self._make_room(
                    db, "kind = :kind AND owner = :owner", here, most=share.capacity, spare=spare, full=full
                )
            if self._capacity is not None:
                full = StoreFullError(f"All {self._capacity} records are in use")
                self._make_room(db, "kind = :kind", here, most=self._capacity, spare=spare, full=full)
            db.execute("INSERT INTO records VALUES (:kind, :key, :record, :now, :now + :ttl, :owner)", here)

        await self._store.work(insert)

    async def load(self, key: str, *, ttl: float) -> bytes | None:
        """The record, used just now."""
        statement = f"UPDATE records SET used = :now, deadline = :now + :ttl WHERE {LIVE} RETURNING record"
        row = await self._one(statement, key=key, ttl=ttl)
        return None if row is None else bytes(row[0])

    async def save(self, key: str, record: bytes, *, ttl: float, expected: bytes) -> bool:
        """Compare and set."""
        change = "record = :record, used = :now, deadline = :now + :ttl"
        statement = f"UPDATE records SET {change} WHERE {LIVE} AND record = :expected RETURNING 1"
        return await self._one(statement, key=key, record=record, ttl=ttl, expected=expected) is not None

    async def renew(self, keys: Collection[str], *, ttl: float) -> None:
        """Those of *keys* that are there were used just now."""
        change = "used = :now, deadline = :now + :ttl"
        several = "kind = :kind AND deadline > :now AND key IN (SELECT value FROM json_each(:keys))"
        await self._one(f"UPDATE records SET {change} WHERE {several}", keys=json.dumps(list(keys)), ttl=ttl)

    async def delete(self, key: str) -> bool:
        """Remove the record."""
        return await self._one(f"DELETE FROM records WHERE {LIVE} RETURNING 1", key=key) is not None

    async def evict(self, number: int, *, spare: Collection[str] | None = ()) -> int:
        """Nothing: records in a file take none of this process's memory."""
        await trio.lowlevel.checkpoint()
        return 0

    async def count(self) -> int:
        """How many are alive."""
        row = await self._one("SELECT count(*) FROM records WHERE kind = :kind AND deadline > :now")
        return 0 if row is None else int(row[0])

    def free(self, db: sqlite3.Connection) -> None:
        """Free what has expired: a record that is only hidden still costs."""
        statement = "DELETE FROM records WHERE kind = ? AND deadline <= ? RETURNING key"
        self._drop([key for (key,) in db.execute(statement, [self._kind, time.time()])])

    def _make_room(
        self,
        db: sqlite3.Connection,
        among: str,
        here: dict[str, Any],
        *,
        most: int,
        spare: Collection[str] | None,
        full: StoreFullError,
    ) -> None:
        by_use = [key for (key,) in db.execute(f"SELECT key FROM records WHERE {among} ORDER BY used", here)]
        if len(by_use) >= most:
            oldest = next((key for key in by_use if spare is not None and key not in spare), None)
            if oldest is None:
                raise full
            db.execute("DELETE FROM records WHERE kind = ? AND key = ?", [self._kind, oldest])
            self._drop([oldest], evicted=1)

    def _drop(self, keys: list[str], *, evicted: int = 0) -> None:
        self.dropped = Dropped(self.dropped.expired + len(keys) - evicted, self.dropped.evicted + evicted)
        self._store.gone += keys if self._kind == "session" else []

    async def _one(self, statement: str, **values: Any) -> Any:
        values |= {"kind": self._kind, "now": time.time()}
        return await self._store.work(lambda db: next(iter(db.execute(statement, values).fetchall()), None))


class SQLiteStore:
    """`mcpd.ports.Store` on one file: ``sqlite:sessions.db``."""

    shared = False

    def __init__(self, url: str) -> None:
        """Args: *url*: ``sqlite:`` and the path of the file. Nothing is opened yet."""
        self.name = url
        self._path = url.partition(":")[2]
        self._one_at_a_time = trio.CapacityLimiter(1)
        self._kinds: dict[str, SQLiteRecords] = {}
        self._db: sqlite3.Connection | None = None
        self.events, self.bus = MemoryEvents(), MemoryBus()
        self.gone: list[str] = []
        """Sessions whose events have yet to be dropped."""

    def records(self, kind: str, *, capacity: int | None = None) -> SQLiteRecords:
        """The records of one kind."""
        return self._kinds.setdefault(kind, SQLiteRecords(self, kind, capacity))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Free what has expired, once a second, until cancelled."""
        await self.ping()
        task_status.started()
        try:
            while True:
                await trio.sleep(1)
                for records in list(self._kinds.values()):
                    await self.work(records.free)
                while self.gone:
                    await self.events.forget(self.gone.pop())
                await self.events.sweep()
        finally:
            with trio.CancelScope(shield=True):  # in its turn: a verb may still be at work in its thread
                await trio.to_thread.run_sync(self._close, limiter=self._one_at_a_time)

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    async def ping(self) -> None:
        """Raises StoreError if the file cannot be used."""
        await self.work(lambda db: db.execute("SELECT 1"))

    async def work(self, verb: Callable[[sqlite3.Connection], Any]) -> Any:
        """Run *verb* in a transaction, in a thread: a disk may take its time, and the loop has other things to do."""

        def transaction() -> Any:
            if self._db is None:
                self._db = sqlite3.connect(self._path, check_same_thread=False)
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = NORMAL")
                self._db.execute(TABLE)
            with self._db:
                return verb(self._db)

        try:
            return await trio.to_thread.run_sync(transaction, limiter=self._one_at_a_time)
        except sqlite3.Error as exc:
            raise StoreError(f"SQLite: {exc}") from exc
