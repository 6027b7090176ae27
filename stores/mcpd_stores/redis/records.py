"""`mcpd.ports.RecordStore` on Redis: one string with a TTL for each record, and an index of them (see scripts.py)."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Final

import trio

from mcpd.errors import RecordExistsError, ShareFullError, StoreError, StoreFullError
from mcpd.ports import Dropped, Kept
from mcpd_stores.redis.names import member
from mcpd_stores.redis.replies import ReplyError, explain
from mcpd_stores.redis.scripts import COUNT, CREATE, DELETE, PAGE, PEEK, REFRESH, RENEW, SAVE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from mcpd.ports import Share
    from mcpd_stores.redis.link import Link

logger: Final = logging.getLogger("mcpd.redis")

# So many keys go into one run of a script: about a quarter of a millisecond, in which Redis serves nobody else.
_CHUNK: Final = 100
# Who uses records renews them every half a minute, or every third of their TTL if that is shorter.
_LONGEST_USE: Final = 45.0
_MAX_USED: Final = 10_000
_FULL: Final = (b"full", b"share")
_NAME: Final = re.compile(r"[A-Za-z0-9+/]{22}")
_CURSOR: Final = re.compile(r"([0-9]{1,16})\.([A-Za-z0-9+/]{22})")


class RedisRecords:
    """The records of one kind. They are `mcpd.ports.Inspectable` as well."""

    def __init__(self, link: Link, index: str, *, capacity: int | None, logs: str = "") -> None:
        """
        Args:
          link: the connection.
          index: the name of the index.
          capacity: how many records there may be.
          logs: the beginning of the names of event logs that go with the records.
        """  # noqa: D205, D212 - the class says it
        self._link = link
        self._stem = f"{index}:"
        self._keys = (index, f"{index}:used")
        self._names = (self._stem, logs)
        self._capacity = -1 if capacity is None else capacity
        # What was loaded since the index last heard of it, and when.
        self._used: dict[str, float] = {}
        self._evicted = 0
        self._expired = 0

    async def create(
        self,
        key: str,
        record: bytes,
        *,
        ttl: float,
        spare: Collection[str] | None = (),
        share: Share | None = None,
    ) -> None:
        """Keep a new record. At a cap the least recently used one that is not in use gives way.

        In use is what is in *spare*, and what any replica has renewed lately; with None everything is.
        """
        arguments = (*self._names, member(key), record, _ms(ttl), self._capacity)
        whose = ("", 0) if share is None else (member(share.owner), share.capacity)
        # What is spared is only listed when something has to give way: it may be thousands.
        outcome = await self._try_to_create(*arguments, 0 if spare is None or len(spare) else 1, *whose)
        if outcome in _FULL and spare:
            outcome = await self._try_to_create(*arguments, 1, *whose, *map(member, list(spare)))
        if outcome == b"exists":
            raise RecordExistsError("There is a record of this key already")
        if outcome == b"share" and share is not None:
            raise ShareFullError(f"All {share.capacity} records of this owner are in use")
        if outcome == b"full":
            raise StoreFullError(f"All {self._capacity} records are in use")

    async def load(self, key: str, *, ttl: float) -> bytes | None:
        """The record, used just now; None when it is unknown or expired. One GETEX."""
        name = member(key)
        try:
            record: bytes | None = await self._link.call("GETEX", self._stem + name, "PX", _ms(ttl), again=True)
        except ReplyError as exc:
            raise explain(exc) from exc
        if record is not None and len(self._used) < _MAX_USED:
            self._used[name] = trio.current_time()
        return record

    async def save(self, key: str, record: bytes, *, ttl: float, expected: bytes) -> bool:
        """Compare and set."""
        arguments = (*self._names, member(key), expected, record, _ms(ttl))
        saved: int = await SAVE(self._link, self._keys, *arguments)
        return bool(saved)

    async def renew(self, keys: Collection[str], *, ttl: float) -> None:
        """Count the records as in use for a while from now: no replica evicts them then."""
        use = _ms(min(ttl / 2, _LONGEST_USE))
        for names in _chunks([member(key) for key in keys]):
            await RENEW(self._link, self._keys, *self._names, _ms(ttl), use, *names, again=True)
        if not keys:
            await trio.lowlevel.checkpoint()

    async def delete(self, key: str) -> bool:
        """Remove the record, and say whether it was there."""
        name = member(key)
        self._used.pop(name, None)
        return await self.remove(name)

    async def evict(self, number: int, *, spare: Collection[str] | None = ()) -> int:
        """0: the records take no memory of this process, and Redis has a bound of its own."""
        await trio.lowlevel.checkpoint()
        return 0

    async def count(self) -> int:
        """How many records are alive."""
        while True:
            complete, size, expired = await COUNT(self._link, self._keys, *self._names, 5 * _CHUNK, again=True)
            self._expired += expired
            if complete:
                counted: int = size
                return counted

    @property
    def dropped(self) -> Dropped:
        """What this process was the first to find expired, and what gave way to records it created."""
        return Dropped(self._expired, self._evicted)

    def name(self, key: str) -> str:
        """The member of the index, a hash of the key."""
        return member(key)

    async def page(self, cursor: str, *, limit: int) -> tuple[Sequence[Kept], str]:
        """Some records in the order of the index: the first to expire is the first."""
        match = _CURSOR.fullmatch(cursor)
        if cursor and match is None:
            raise ValueError(f"{cursor[:80]!r} is no cursor of this store")
        found: list[Kept] = []
        after = () if match is None else match.groups()
        while len(found) < limit:
            number = min(limit - len(found), _CHUNK)
            members = await PAGE(self._link, self._keys, *self._names, number, *after, again=True)
            for name, _, left, record in members:
                if record is not None and left > 0:  # else the index has not heard of its end yet
                    found.append(Kept(name.decode(), record, left / 1000))
            if len(members) < number:
                return found, ""
            after = (members[-1][1].decode(), members[-1][0].decode())
        return found, ".".join(after)

    async def peek(self, name: str) -> Kept | None:
        """The record, without using it."""
        if _NAME.fullmatch(name) is None:
            await trio.lowlevel.checkpoint()
            return None
        left, record = await PEEK(self._link, self._keys, *self._names, name, again=True)
        return None if record is None or left <= 0 else Kept(name, record, left / 1000)

    async def remove(self, name: str) -> bool:
        """Remove the record and its event log."""
        if _NAME.fullmatch(name) is None:
            await trio.lowlevel.checkpoint()
            return False
        there: int = await DELETE(self._link, self._keys, *self._names, name)
        return bool(there)

    async def refresh(self) -> None:
        """Tell the index what was used. What cannot be told now is told at the record's next use."""
        used, self._used = self._used, {}
        for some in _chunks(list(used.items())):
            now = trio.current_time()
            ages = [word for name, when in some for word in (name, round((now - when) * 1000))]
            try:
                self._expired += await REFRESH(self._link, self._keys, *self._names, *ages, again=True)
            except StoreError as exc:
                logger.debug("The index was not refreshed: %s", exc)
                return

    async def _try_to_create(self, *arguments: Any) -> bytes:
        outcome, evicted, expired = await CREATE(self._link, self._keys, *arguments)
        self._evicted += evicted
        self._expired += expired
        said: bytes = outcome
        return said


def _ms(seconds: float) -> int:
    # Redis refuses 0, and a TTL beyond what it can count (a century is plenty).
    return max(1, min(round(seconds * 1000), 100 * 366 * 86_400_000))


def _chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]
