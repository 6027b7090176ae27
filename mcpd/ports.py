"""What mcpd asks of a store: three small ports and the `Store` that hands them out.

mcpd owns these interfaces; stores implement them and import nothing else of mcpd but the errors. A store is
found by the name of its entry point in the group ``mcpd.stores``: ``--store redis://host/0`` loads the entry
point ``redis`` and calls it with that URL. `mcpd.testing.store_contract` checks an implementation.

Every method is a Trio checkpoint, also when there is nothing to wait for. Whatever a backend raises becomes
`StoreError` from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from contextlib import AbstractAsyncContextManager

    import trio


class Dropped(NamedTuple):
    """How many records this process has removed without being told to."""

    expired: int
    evicted: int


class Share(NamedTuple):
    """How many of the records one owner may have."""

    owner: str
    """Who it is: opaque, and only ever compared."""
    capacity: int


class RecordStore(Protocol):
    """Bytes with a deadline, by key. A record past its deadline is gone, whoever asks."""

    async def create(
        self,
        key: str,
        record: bytes,
        *,
        ttl: float,
        spare: Collection[str] | None = (),
        share: Share | None = None,
    ) -> None:
        """Keep a new record for *ttl* seconds.

        Never overwrites. At the cap the least recently used record gives way whose key is not in *spare*, and which no
        replica has renewed lately (see `renew`). With None for *spare* nothing gives way. What has expired makes room
        in any case.

        With *share* the record is its owner's. An owner that has its share already makes room itself: of its own
        records the least recently used one gives way on the same terms, and nobody else's does. What is known of an
        owner is gone with the last of its records, and never before it.

        *spare* is looked at only at the cap. It may be large, and change meanwhile; a store that keeps its records
        elsewhere sends its keys there.

        Raises:
          RecordExistsError: there is a record of this key.
          ShareFullError: the owner has its share, and none of its records may give way. Nothing was created.
          StoreFullError: the cap is reached and nothing may give way: every record is in *spare*, or in use by some
          replica. Nothing was created.
        """
        ...

    async def load(self, key: str, *, ttl: float) -> bytes | None:
        """The record, which then lives for *ttl* seconds from now; None when it is unknown or expired."""
        ...

    async def save(self, key: str, record: bytes, *, ttl: float, expected: bytes) -> bool:
        """Replace *expected* by *record*: compare and set.

        Returns:
          False when the record is not (or no longer) *expected*: somebody else changed, deleted or outlived it.
          A deleted record is never revived.
        """
        ...

    async def renew(self, keys: Collection[str], *, ttl: float) -> None:
        """Let those of *keys* that are still there live for *ttl* seconds from now: they are in use.

        Whoever uses records goes on renewing them, at least every third of *ttl* and every half a minute. A store that
        replicas share keeps other replicas from evicting what was renewed, until half of *ttl* or three quarters of a
        minute have passed without another renewal. That is how one replica learns what is in use on another, for
        *spare* tells only of its own.
        """
        ...

    async def delete(self, key: str) -> bool:
        """Remove the record for good, and say whether it was there."""
        ...

    async def evict(self, number: int, *, spare: Collection[str] | None = ()) -> int:
        """Let up to *number* of the least recently used records give way whose keys are not in *spare*.

        With None for *spare* none of those that are alive does.

        It is asked for when this process is short of memory: a store that keeps its records elsewhere does nothing.

        Returns:
          How many gave way.
        """
        ...

    async def count(self) -> int:
        """How many records are alive."""
        ...

    @property
    def dropped(self) -> Dropped:
        """What has expired or given way so far, as far as this process did it."""
        ...


@runtime_checkable
class AtHand(Protocol):
    """Records that need no waiting; a `RecordStore` that has them in its own memory offers this as well."""

    def load_nowait(self, key: str, *, ttl: float, now: float) -> bytes | None:
        """As `RecordStore.load`, at once and without a checkpoint: for requests, which have been waited for already.

        *now* is Trio's current time.
        """
        ...


class Kept(NamedTuple):
    """A record as who operates the server finds it."""

    name: str
    """What the store calls it; the key cannot be told from it."""
    record: bytes
    left: float
    """Seconds until its deadline."""


@runtime_checkable
class Inspectable(Protocol):
    """Records that can be looked into from outside the server; a `RecordStore` that can offers this as well.

    Looking neither renews a record nor counts as a use, and it needs no key: a key lets its holder in.
    """

    def name(self, key: str) -> str:
        """What the store calls the record of this key, whether there is one or not."""
        ...

    async def page(self, cursor: str, *, limit: int) -> tuple[Sequence[Kept], str]:
        """Up to *limit* records, and the cursor for the next ones, which is "" after the last; begin with "".

        Every record is found that is there all the time; one that is used meanwhile may come twice.

        Raises:
          ValueError: *cursor* is none of this store's.
        """
        ...

    async def peek(self, name: str) -> Kept | None:
        """The record of that name; None when there is none."""
        ...

    async def remove(self, name: str) -> bool:
        """Remove the record for good, with all that the store keeps along with it, and say whether it was there."""
        ...


class Event(NamedTuple):
    """One event of a stream: its *id* orders it within the stream, *data* is b"" for a priming event."""

    id: str
    data: bytes


class EventLog(Protocol):
    """The events of the streams of a session, so that a stream that was cut can be resumed.

    Bounded: the oldest events give way first. It is dropped with its session.
    """

    async def append(self, session: str, stream: str, data: bytes, *, last: bool = False) -> str:
        """Add an event and return its id, unique within the session. *last* says that none will follow."""
        ...

    async def read(self, session: str, stream: str, *, after: str) -> tuple[Sequence[Event], bool] | None:
        """The events that followed *after*, and whether the stream is finished. Reading consumes nothing.

        Returns:
          None when *after* is not an event of that stream, or has been dropped.
        """
        ...

    async def wait(self, session: str, stream: str, *, after: str) -> None:
        """Return when there may be something to read after *after*; it may return early."""
        ...

    async def forget(self, session: str) -> None:
        """Drop all events of the session."""
        ...

    @property
    def dropped(self) -> int:
        """How many events gave way before their time, as far as this process knows."""
        ...


class Bus(Protocol):
    """Messages between the replicas that share a store. A hint: what must not be lost stands in a record or the log."""

    async def publish(self, topic: str, message: bytes) -> None:
        """Send *message* to all who are subscribed to *topic* now, in this process too."""
        ...

    def subscribe(self, topic: str) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[bytes]]:
        """While open, receive what is published on *topic*.

        An empty message, which nobody publishes, says that others may have been lost before it.
        """
        ...


class Store(Protocol):
    """One backend: records by kind, events, and the bus.

    An entry point of the group ``mcpd.stores`` is a callable that takes the URL given as ``--store`` and
    returns one of these. Constructing it does no I/O and starts no task.
    """

    @property
    def name(self) -> str:
        """What the start-up line and the metrics call it, without credentials."""
        ...

    @property
    def shared(self) -> bool:
        """Whether other processes may use the same records: then secrets must be shared as well."""
        ...

    @property
    def events(self) -> EventLog:
        """The event log."""
        ...

    @property
    def bus(self) -> Bus:
        """The bus."""
        ...

    def records(self, kind: str, *, capacity: int | None = None) -> RecordStore:
        """The records of one *kind* (a short name: ``session``), at most *capacity* of them."""
        ...

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Do what the store must do in the background, until cancelled; started once it can be used.

        Raises:
          StoreError: it cannot be used, with the reason.
        """
        ...

    async def ping(self) -> None:
        """Return if the store can be used now.

        Raises:
          StoreError: it cannot.
        """
        ...
