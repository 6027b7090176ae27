"""``mcpd sessions``: what who runs a server can see of its sessions, and end.

It works on the store, not on a server, so it needs no running one. A session is named by what the store calls its
record. What is never shown is what lets in or is the users' own: session IDs, tokens, what handlers keep.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
import trio

from mcpd.errors import SettingError
from mcpd.ports import Inspectable
from mcpd.sessions.record import SessionRecord, decode_record
from mcpd.sessions.signals import TOPIC, Signal, encode_signal
from mcpd.stores import open_store

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from mcpd.ports import Kept, RecordStore, Store

REDIS: Final = "redis://127.0.0.1:6379/0"
_LABELS: Final = {"idleSecondsLeft": "idle left", "logLevel": "log level", "stateValues": "state values"}
_COLUMNS: Final = "{:22}  {:10}  {:>9}  {:>7}  {}"


def store_url(store: str, redis_url: str) -> str:
    """The URL of a store: ``redis`` alone is the Redis that ``--redis-url`` names."""
    return redis_url if store == "redis" else store


redis_option: Final[Callable[[Any], Any]] = click.option(
    "--redis-url",
    default=REDIS,
    show_default=True,
    envvar="MCPD_REDIS_URL",
    show_envvar=True,
    help="Which Redis '--store redis' means.",
)


def _store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    described = "Where the sessions live: the URL the server was given."
    option: Callable[[Any], Any] = click.option(
        "--store", default="memory", show_default=True, envvar="MCPD_STORE", show_envvar=True, help=described
    )
    with_both: Callable[..., Any] = option(redis_option(command))
    return with_both


class _Sessions:
    """The sessions in a store that is connected."""

    def __init__(self, store: Store, records: RecordStore, sight: Inspectable) -> None:
        self._store = store
        self._records = records
        self._sight = sight

    async def count(self) -> int:
        return await self._records.count()

    async def page(self, cursor: str, limit: int) -> tuple[Sequence[Kept], str]:
        try:
            return await self._sight.page(cursor, limit=limit)
        except ValueError as exc:
            raise SettingError(f"--cursor: {exc}") from None

    async def find(self, name: str) -> Kept | None:
        return await self._sight.peek(name)

    async def end(self, name: str) -> bool:
        """End it: its record and its events go, and every replica ends its streams and calls."""
        there = await self._sight.remove(name)
        # Also when it was gone: a replica that missed the first word must not go on with it.
        await self._store.bus.publish(TOPIC, encode_signal(Signal("operator", "removed", name)))
        return there


@asynccontextmanager
async def _connected(url: str) -> AsyncGenerator[_Sessions, None]:
    store = open_store(url)
    records = store.records("session")
    if not isinstance(records, Inspectable):
        raise SettingError(
            f"The store {store.name} cannot be looked into from here"
            + ("" if store.shared else ": its sessions are inside the server's own process")
            + "; give the store's URL with --store, or ask the running server for its metrics"
        )
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        yield _Sessions(store, records, records)
        nursery.cancel_scope.cancel()


# ----- The commands


@click.group("sessions")
def sessions_command() -> None:
    """Look at the sessions in a store, and end them."""


@sessions_command.command("list")
@_store_options
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="How many to show.")
@click.option("--cursor", default="", help="Where to go on, as the page before said.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each session.")
def list_command(store: str, redis_url: str, *, limit: int, cursor: str, as_json: bool) -> None:
    """Show sessions, the next to expire first."""
    trio.run(_list, store_url(store, redis_url), limit, cursor, as_json)


async def _list(url: str, limit: int, cursor: str, as_json: bool) -> None:  # noqa: FBT001 - trio.run passes no names
    async with _connected(url) as sessions:
        found, following = await sessions.page(cursor, limit)
    if not as_json:
        click.echo(_COLUMNS.format("NAME", "REVISION", "IDLE LEFT", "BYTES", "CLIENT"))
    for kept in found:
        told = _tell(kept)
        if as_json:
            click.echo(msgspec.json.encode(told))
        else:
            left = _time(told["idleSecondsLeft"])
            click.echo(_COLUMNS.format(told["name"], told["revision"], left, told["bytes"], told["client"]).rstrip())
    if following:
        click.echo(f"There are more; go on with --cursor {following}", err=True)


@sessions_command.command("show")
@click.argument("name")
@_store_options
def show_command(name: str, store: str, redis_url: str) -> None:
    """Show one session, by the name that 'list' gives it."""
    kept = trio.run(_with, store_url(store, redis_url), partial(_Sessions.find, name=name))
    if kept is None:
        raise _unknown(name)
    for what, value in _tell(kept, fully=True).items():
        click.echo(f"{_LABELS.get(what, what):13}  {_time(value) if what == 'idleSecondsLeft' else value}".rstrip())


@sessions_command.command("end")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_store_options
def end_command(names: tuple[str, ...], store: str, redis_url: str) -> None:
    """End sessions: their calls and streams end at once, on every replica. Exits with 1 if one was unknown."""

    async def end_all(sessions: _Sessions) -> list[bool]:
        return [await sessions.end(name) for name in names]

    ended = trio.run(_with, store_url(store, redis_url), end_all)
    for name, there in zip(names, ended, strict=True):
        click.echo(f"{_printable(name)}  {'ended' if there else 'unknown: it has ended or expired'}")
    if not all(ended):
        sys.exit(1)


@sessions_command.command("count")
@_store_options
def count_command(store: str, redis_url: str) -> None:
    """Show how many sessions there are."""
    click.echo(trio.run(_with, store_url(store, redis_url), _Sessions.count))


async def _with(url: str, work: Callable[[_Sessions], Any]) -> Any:
    async with _connected(url) as sessions:
        return await work(sessions)


def _unknown(name: str) -> SettingError:
    return SettingError(f"There is no session {_printable(name)}; it has ended or expired, or 'list' never showed it")


def _tell(kept: Kept, *, fully: bool = False) -> dict[str, Any]:
    record = decode_record(kept.record)
    told: dict[str, Any] = {
        "name": kept.name,
        "revision": "?" if record is None else record.revision,
        "client": "" if record is None else _client(record),
        "idleSecondsLeft": round(kept.left, 1),
        "bytes": len(kept.record),
    }
    if fully and record is not None:
        told |= {
            "initialized": "yes" if record.initialized else "no",
            "logLevel": record.log_level or "none",
            "subscriptions": len(record.subscriptions),
            "stateValues": len(record.state),
            "tasks": len(record.tasks),
        }
    return told


def _client(record: SessionRecord) -> str:
    return _printable(f"{record.client_info.name} {record.client_info.version}".strip())


def _printable(text: str) -> str:
    """Text that a client or a caller has chosen must not be able to move an operator's cursor."""
    return "".join(character if character.isprintable() else "?" for character in text[:80])


def _time(seconds: float) -> str:
    hours, minutes = divmod(int(seconds) // 60, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{int(seconds) % 60:02}s"
