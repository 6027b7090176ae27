"""`mcpd.ports.EventLog` on Redis: one sorted set for each session that has a stream which can be resumed.

A session's events are few and small as a rule, often one priming event: a sorted set then takes some hundred bytes,
where a Redis stream takes 4.4 KB. All streams of a session share it. An event's score is its ID and counts bytes, so
the oldest events beyond the bound go with one ZREMRANGEBYSCORE.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import trio

from mcpd.ports import Event
from mcpd_stores.redis.names import member
from mcpd_stores.redis.replies import ReplyError, explain
from mcpd_stores.redis.scripts import APPEND, FORGET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcpd_stores.redis.bus import RedisBus
    from mcpd_stores.redis.link import Link

# What Redis needs for an event besides its text, so that many small ones count as well.
_OVERHEAD: Final = 128
_ID: Final = re.compile(r"[0-9]{1,16}")
_LAST: Final = b"!"
_MORE: Final = b"."


class RedisEvents:
    """The events of all sessions of one application."""

    def __init__(self, link: Link, bus: RedisBus, stem: str, *, sessions: str, max_bytes: int, keep: float) -> None:
        """
        Args:
          link: the connection.
          bus: tells of new events.
          stem: how the logs' names begin.
          sessions: how the names of the sessions' records begin; a log lives as long as its record.
          max_bytes: how much a session keeps.
          keep: seconds that a log is kept after an event if there is no such record.
        """  # noqa: D205, D212 - the class says it
        self._link = link
        self._bus = bus
        self._stem = stem
        self._sessions = sessions
        self._max_bytes = max_bytes
        self._keep = round(keep * 1000)
        self.dropped = 0
        """How many events gave way to those that this process appended."""
        self.poll = 5.0
        """Seconds after which a wait looks for itself: a message may have been lost."""

    async def append(self, session: str, stream: str, data: bytes, *, last: bool = False) -> str:
        """Add an event and return its id, a number."""
        of = member(session)
        log = self._stem + of
        name = stream.encode()
        event = b"%b%d %b%b" % (_LAST if last else _MORE, len(name), name, data)
        cost = len(event) + _OVERHEAD
        keys = (log, self._sessions + of)
        number, dropped = await APPEND(self._link, keys, log, name, event, cost, self._max_bytes, self._keep)
        self.dropped += dropped
        id_: str = number.decode()
        return id_

    async def read(self, session: str, stream: str, *, after: str) -> tuple[Sequence[Event], bool] | None:
        """The events after *after*; None when there is no such event of this stream. One ZRANGEBYSCORE."""
        if _ID.fullmatch(after) is None:
            await trio.lowlevel.checkpoint()
            return None
        try:
            found: list[bytes] = await self._link.call(
                "ZRANGEBYSCORE", self._stem + member(session), after, "+inf", again=True
            )
        except ReplyError as exc:
            raise explain(exc) from exc
        events: list[Event] = []
        finished = False
        begin = stream.encode()
        for position, text in enumerate(found):
            number, _, rest = text.partition(b" ")
            flag = rest[:1]
            length, _, rest = rest[1:].partition(b" ")
            size = int(length)
            ours = size == len(begin) and rest.startswith(begin)
            if position == 0 and not (ours and number == after.encode()):
                return None
            if ours:
                finished = flag == _LAST
                if position:
                    events.append(Event(number.decode(), rest[size:]))
        return (events, finished) if found else None

    async def wait(self, session: str, stream: str, *, after: str) -> None:
        """Return when there may be something after *after*, or the log is gone."""
        log = self._stem + member(session)
        async with self._bus.listen(log) as messages:
            found = await self.read(session, stream, after=after)
            if found is None or found[0] or found[1]:
                return
            with trio.move_on_after(self.poll):
                async for name in messages:
                    # Empty: the log is gone, or messages may have been lost.
                    if not name or name == stream.encode():
                        return

    async def forget(self, session: str) -> None:
        """Drop all events of the session."""
        log = self._stem + member(session)
        await FORGET(self._link, (log,), log, again=True)
