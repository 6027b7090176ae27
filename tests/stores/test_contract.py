"""Every store keeps the contract of `mcpd.ports.Store`; and the contract notices who does not."""

import itertools
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mcpd.errors import RecordExistsError, StoreError
from mcpd.ports import Event, Store
from mcpd.stores import open_store as open_by_name
from mcpd.testing import store_contract
from mcpd_stores.memory import MemoryBus, MemoryEvents, MemoryRecords, MemoryStore


@asynccontextmanager
async def open_memory() -> AsyncGenerator[tuple[Store, Store], None]:
    store = open_by_name("memory")
    yield store, store


def moving(clock: MockClock) -> store_contract.Advance:
    async def advance(seconds: float) -> None:
        before = trio.current_time()
        clock.jump(seconds)
        # pytest-trio runs on a mock clock only if the test itself asks for one; else this would test nothing.
        assert trio.current_time() >= before + seconds
        await trio.lowlevel.checkpoint()

    return advance


@pytest.mark.parametrize("check", store_contract.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("opened", [open_memory], ids=["memory"])
async def test_store(opened: store_contract.OpenStore, check: store_contract.Check, autojump_clock: MockClock) -> None:
    await check(opened, moving(autojump_clock))


async def test_all_at_once(autojump_clock: MockClock) -> None:
    await store_contract.check_store(open_memory, advance=moving(autojump_clock))


def test_checks_are_named_after_their_promise() -> None:
    assert len({check.__name__ for check in store_contract.CHECKS}) == len(store_contract.CHECKS) >= 29
    assert all(check.__doc__ for check in store_contract.CHECKS)


# --- What a store can get wrong, one thing each. The contract is worth something only if it sees all of them.


class Overwrites(MemoryRecords):
    async def create(self, key: str, record: bytes, **kw: Any) -> None:
        await self.delete(key)
        await super().create(key, record, **kw)


class LosesRaces(MemoryRecords):
    async def create(self, key: str, record: bytes, **kw: Any) -> None:
        if await self.load(key, ttl=kw["ttl"]) is not None:
            raise RecordExistsError(key)
        await trio.lowlevel.checkpoint()
        await self.delete(key)
        await super().create(key, record, **kw)


class EvictsNewest(MemoryRecords):
    async def _evict_one(self, spare: Any) -> bool:
        last = next(iter(self._orders.values())).last
        return last is not None and await self.delete(last)


class IgnoresSpare(MemoryRecords):
    async def create(self, key: str, record: bytes, *, ttl: float, spare: Any = ()) -> None:
        await super().create(key, record, ttl=ttl)


class TakesNoneForNothing(MemoryRecords):
    async def create(self, key: str, record: bytes, *, ttl: float, spare: Any = ()) -> None:
        await super().create(key, record, ttl=ttl, spare=spare or ())


class NeverFull(MemoryRecords):
    async def create(self, key: str, record: bytes, **kw: Any) -> None:
        self._capacity = None
        await super().create(key, record, **kw)


class NeverExpires(MemoryRecords):
    def _find(self, key: str, now: float) -> Any:
        return super()._find(key, -1.0)


class ForgetsToRenewOnLoad(MemoryRecords):
    async def load(self, key: str, *, ttl: float) -> bytes | None:
        await trio.lowlevel.checkpoint()
        found = self._find(key, trio.current_time())
        return None if found is None else bytes(found.data)


class RenewsWhatItDoesNotSave(MemoryRecords):
    async def save(self, key: str, record: bytes, *, ttl: float, expected: bytes) -> bool:
        await self.renew([key], ttl=ttl)
        return await super().save(key, record, ttl=ttl, expected=expected)


class SavesBlindly(MemoryRecords):
    async def save(self, key: str, record: bytes, *, ttl: float, expected: bytes) -> bool:
        found = await self.load(key, ttl=ttl)
        return found is not None and await super().save(key, record, ttl=ttl, expected=found)


class Revives(MemoryRecords):
    async def save(self, key: str, record: bytes, *, ttl: float, expected: bytes) -> bool:
        if await super().save(key, record, ttl=ttl, expected=expected):
            return True
        if self._find(key, trio.current_time()) is None:
            await super().create(key, record, ttl=ttl)
        return False


class CreatesOnRenew(MemoryRecords):
    async def renew(self, keys: Any, *, ttl: float) -> None:
        for key in keys:
            if await self.load(key, ttl=ttl) is None:
                await self.create(key, b"", ttl=ttl)
        await trio.lowlevel.checkpoint()


class DeletesTwice(MemoryRecords):
    async def delete(self, key: str) -> bool:
        await super().delete(key)
        return True


class CountsTheDead(MemoryRecords):
    async def count(self) -> int:
        await trio.lowlevel.checkpoint()
        return self._index.size


class StripsKeys(MemoryRecords):
    def _find(self, key: str, now: float) -> Any:
        return super()._find(key.strip(), now)


class EvictsWhatIsUsed(MemoryRecords):
    async def evict(self, number: int, *, spare: Any = ()) -> int:
        return await super().evict(number)


class Boasts(MemoryRecords):
    async def evict(self, number: int, *, spare: Any = ()) -> int:
        await trio.lowlevel.checkpoint()
        return number


class NoCheckpoint(MemoryRecords):
    async def delete(self, key: str) -> bool:
        there = self._find(key, trio.current_time()) is not None
        self._pop(key)
        return there


class Consumes(MemoryEvents):
    async def read(self, session: str, stream: str, *, after: str) -> Any:
        found = await super().read(session, stream, after=after)
        if found is not None and found[0]:
            self._sessions[session][stream].events.clear()
        return found


class Backwards(MemoryEvents):
    async def read(self, session: str, stream: str, *, after: str) -> Any:
        found = await super().read(session, stream, after=after)
        return None if found is None else (list(reversed(found[0])), found[1])


class NumbersStreams(MemoryEvents):
    async def append(self, session: str, stream: str, data: bytes, *, last: bool = False) -> str:
        found = self._sessions.get(session, {}).get(stream)
        self._numbers = itertools.count(1 if found is None else found.events[-1][0] + 1)
        return await super().append(session, stream, data, last=last)


class Inclusive(MemoryEvents):
    async def read(self, session: str, stream: str, *, after: str) -> Any:
        found = await super().read(session, stream, after=after)
        return None if found is None else ([Event(after, b""), *found[0]], found[1])


class ReadsNumbers(MemoryEvents):
    async def read(self, session: str, stream: str, *, after: str) -> Any:
        return await super().read(session, stream, after=after.strip().lstrip("0"))


class NeverFinished(MemoryEvents):
    async def append(self, session: str, stream: str, data: bytes, *, last: bool = False) -> str:
        return await super().append(session, stream, data)


class Unbounded(MemoryEvents):
    def __init__(self) -> None:
        super().__init__(per_stream=10**9)


class Sleeps(MemoryEvents):
    async def wait(self, session: str, stream: str, *, after: str) -> None:
        await trio.sleep_forever()


class Remembers(MemoryEvents):
    def forget_now(self, session: str) -> None: ...


class FirstOnly(MemoryBus):
    async def publish(self, topic: str, message: bytes) -> None:
        await trio.lowlevel.checkpoint()
        for subscriber in list(self._topics.get(topic, ()))[:1]:
            subscriber.send_nowait(message)


class Twice(MemoryBus):
    async def publish(self, topic: str, message: bytes) -> None:
        await super().publish(topic, message)
        await super().publish(topic, message)


class AllTopics(MemoryBus):
    async def publish(self, topic: str, message: bytes) -> None:
        for each in [*self._topics]:
            await super().publish(each, message)
        await trio.lowlevel.checkpoint()


BROKEN: list[type] = [
    *(
        Overwrites,
        LosesRaces,
        EvictsNewest,
        IgnoresSpare,
        TakesNoneForNothing,
        NeverFull,
        NeverExpires,
        ForgetsToRenewOnLoad,
    ),
    *(RenewsWhatItDoesNotSave, SavesBlindly, Revives, CreatesOnRenew, DeletesTwice, CountsTheDead, StripsKeys),
    *(
        EvictsWhatIsUsed,
        Boasts,
        NoCheckpoint,
        Consumes,
        Backwards,
        NumbersStreams,
        Inclusive,
        ReadsNumbers,
        NeverFinished,
        Unbounded,
        Sleeps,
    ),
    *(Remembers, FirstOnly, Twice, AllTopics),
]


@pytest.mark.parametrize("part", BROKEN, ids=lambda part: part.__name__)
async def test_a_broken_store_is_found_out(part: type, autojump_clock: MockClock) -> None:
    def break_one(store: MemoryStore) -> None:
        if issubclass(part, MemoryRecords):
            make: Callable[..., Any] = part
            kinds: dict[str, MemoryRecords] = {}

            def records(kind: str, *, capacity: int | None = None) -> MemoryRecords:
                if kind not in kinds:
                    kinds[kind] = make(capacity, lambda _: None)
                return kinds[kind]

            store.records = records  # type: ignore[method-assign]
        elif issubclass(part, MemoryEvents):
            store.events = part()
        else:
            store.bus = part()

    @asynccontextmanager
    async def opened() -> AsyncGenerator[tuple[Store, Store], None]:
        store = MemoryStore()
        break_one(store)
        yield store, store

    failed: list[str] = []
    for check in store_contract.CHECKS:
        try:
            await check(opened, moving(autojump_clock))
        except (AssertionError, BaseExceptionGroup, trio.TooSlowError, StoreError):
            failed.append(check.__name__)
    assert failed, "the contract does not see it"
    assert len(failed) < len(store_contract.CHECKS), "everything failed: that is the harness, not the contract"


async def test_a_broken_promise_says_what_was_expected(autojump_clock: MockClock) -> None:
    @asynccontextmanager
    async def opened() -> AsyncGenerator[tuple[Store, Store], None]:
        store = MemoryStore()
        store.records = lambda kind, capacity=None: SimpleNamespace(  # type: ignore[method-assign,assignment,return-value]
            **{name: getattr(records, name) for name in ("create", "load", "save", "renew", "count")}, delete=delete
        )
        records = MemoryRecords(None, lambda _: None)
        yield store, store

    async def delete(key: str) -> bool:
        await trio.lowlevel.checkpoint()
        return False

    check = next(c for c in store_contract.CHECKS if c.__name__ == "delete_says_whether_it_was_there")
    with pytest.raises(AssertionError, match="delete says that the record was there"):
        await check(opened, moving(autojump_clock))
