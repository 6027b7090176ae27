"""Who runs a call whose stream can be resumed: so that no client that resumes it elsewhere waits for the dead.

While a call runs whose events are logged, its replica renews a lease in the store. A replica that follows the log and
finds the lease run out answers for it, with an error. Only stores that replicas share need this.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from mcpd.errors import INTERNAL_ERROR, ProtocolError, StoreError
from mcpd.protocol.jsonrpc import encode_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mcpd.ports import Store
    from mcpd.protocol.jsonrpc import RequestId

logger: Final = logging.getLogger("mcpd.sessions")
LEASE: Final = 10.0
"""Seconds that a replica may be silent before its calls count as lost."""
LOOK_AGAIN: Final = 2.0
"""Seconds between two looks of a follower to whom nothing was said."""


class _Lease(msgspec.Struct, array_like=True):
    until: float
    """Wall-clock time; replicas agree on no other."""
    ids: list[int | str]
    """The requests that have no answer yet."""


_decode: Final = msgspec.msgpack.Decoder(_Lease).decode
_encode: Final = msgspec.msgpack.Encoder().encode


class Leases:
    """The leases of this replica, and a look at those of others."""

    def __init__(self, store: Store, *, keep: float, now: Callable[[], float] = time.time) -> None:
        """Args: *store*: where they are; *keep*: seconds one can be read after its renewal; *now*: the wall clock."""
        self._records = store.records("lease") if store.shared else None
        self._keep = keep
        self._now = now
        self._held: dict[str, _Lease] = {}

    async def hold(self, session: str, stream: str, ids: Sequence[RequestId]) -> None:
        """The call behind this stream runs here.

        Raises:
          StoreError: the store does not know it now; then the stream must not be one that can be resumed.
        """
        if self._records is None:
            return
        lease = _Lease(self._now() + LEASE, list(ids))
        await self._records.create(f"{session}.{stream}", _encode(lease), ttl=self._keep)
        self._held[f"{session}.{stream}"] = lease

    async def release(self, session: str, stream: str) -> None:
        """The call is over, and its last event logged."""
        if self._records is not None and self._held.pop(f"{session}.{stream}", None) is not None:
            await self._records.delete(f"{session}.{stream}")

    def abandon(self, session: str, stream: str) -> None:
        """The call is over, but its end could not be logged: to followers it is lost when the lease runs out."""
        self._held.pop(f"{session}.{stream}", None)

    async def lost(self, session: str, stream: str) -> list[bytes]:
        """The error responses that a stream is owed whose replica is gone; none while it lives.

        Whoever gets them logs them, and then calls `settled`. Several replicas may follow one stream, and only one of
        them is told; should that one be gone as well before it has logged them, another one is told later.
        """
        if self._records is None:
            await trio.lowlevel.checkpoint()
            return []
        data = await self._records.load(f"{session}.{stream}", ttl=self._keep)
        lease = None if data is None else _decode(data)
        if data is None or lease is None or lease.until > self._now():
            return []
        claimed = _encode(_Lease(self._now() + LEASE, lease.ids))
        if not await self._records.save(f"{session}.{stream}", claimed, ttl=self._keep, expected=data):
            return []
        error = ProtocolError(INTERNAL_ERROR, "The server that ran this call is gone; call again if that is safe")
        return [encode_error(request_id, error) for request_id in lease.ids]

    async def settled(self, session: str, stream: str) -> None:
        """What the stream was owed has been logged."""
        if self._records is not None:
            await self._records.delete(f"{session}.{stream}")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Renew what is held, until cancelled."""
        task_status.started()
        while self._records is not None:
            await trio.sleep(LEASE / 3)
            for key, lease in list(self._held.items()):
                before = _encode(lease)
                lease.until = self._now() + LEASE
                try:
                    if not await self._records.save(key, _encode(lease), ttl=self._keep, expected=before):
                        self._held.pop(key, None)
                except StoreError as exc:
                    # What stands in the store is the old lease, and the next round must expect that.
                    lease.until = _decode(before).until
                    logger.warning("A lease could not be renewed: %s", exc)
