"""How a check is written and run, and how it says what is wrong."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, NamedTuple, TypeAlias

import trio

from mcpd.ports import Store

OpenStore: TypeAlias = Callable[[], AbstractAsyncContextManager[tuple[Store, Store]]]
"""Opens two stores on one backend that holds nothing yet."""
Advance: TypeAlias = Callable[[float], Awaitable[object]]
"""Makes so many seconds pass for what is kept."""
Check: TypeAlias = Callable[[OpenStore, Advance], Awaitable[None]]
"""One promise, checked: raises AssertionError if it is not kept."""

TTL: Final = 100.0
PATIENCE: Final = 10.0
"""Seconds that something may take that is to happen at once."""
ODD_BYTES: Final = (b"", b"\0", b"\r\n", b"\xff\xfe", bytes(range(256)), b"x" * 100_000)


class Replicas(NamedTuple):
    """Two stores that run on one backend."""

    here: Store
    there: Store
    advance: Advance


def promise(body: Callable[[Replicas], Awaitable[None]]) -> Check:
    """A check of this promise: *body*, with a backend of its own."""

    @functools.wraps(body)
    async def check(open_store: OpenStore, advance: Advance) -> None:
        async with open_store() as (here, there), _running(here, there):
            await body(Replicas(here, there, advance))

    return check


@asynccontextmanager
async def _running(*stores: Store) -> AsyncGenerator[None, None]:
    broken: AssertionError | None = None
    async with trio.open_nursery() as nursery:
        for store in dict.fromkeys(stores):
            await nursery.start(store.run)
        try:
            yield
        except AssertionError as exc:
            # Raised again outside, or the nursery would hide it in a group.
            broken = exc
        nursery.cancel_scope.cancel()
    if broken is not None:
        raise broken


def kept(is_kept: bool, promise: str) -> None:  # noqa: FBT001 - as in `assert is_kept, promise`
    """Raises AssertionError with the *promise* that is not kept."""
    if not is_kept:
        raise AssertionError(promise)


def same(found: object, wanted: object, promise: str) -> None:
    """Raises AssertionError, with all three, if the first two differ."""
    if found != wanted:
        raise AssertionError(f"{promise}: expected {repr(wanted)[:200]}, found {repr(found)[:200]}")


async def refused(doing: Awaitable[object], how: type[Exception]) -> bool:
    """Whether it raises *how*."""
    try:
        await doing
    except how:
        return True
    return False
