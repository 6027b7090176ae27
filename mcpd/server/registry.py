"""What a server offers, by name and in order, and its lists: pages with checked cursors, each encoded once."""

from __future__ import annotations

import base64
import binascii
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from mcpd.errors import INVALID_PARAMS, ProtocolError
from mcpd.protocol.jsonrpc import encode_foreign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mcpd.protocol.revisions import Revision


class Entry(Protocol):
    """One thing on offer."""

    def describe(self, revision: Revision) -> msgspec.Struct:
        """What a list says of it in *revision*."""
        ...


E = TypeVar("E", bound=Entry)


class Registry(Generic[E]):
    """Entries of one kind, by key, in the order of their registration."""

    def __init__(self, kind: str, changed: Callable[[], object]) -> None:
        """Args: *kind*: the word for one entry in messages; *changed*: called after each change."""
        self._kind = kind
        self._changed = changed
        self._entries: dict[str, tuple[int, E]] = {}
        self._serial = 0
        self.version = 0

    def add(self, key: str, entry: E) -> None:
        """Add an entry.

        Raises:
          ValueError: there is one of this key.
        """
        if key in self._entries:
            raise ValueError(f"There is a {self._kind} {key!r} already; remove it first, or give this one another name")
        self._serial += 1
        self._entries[key] = (self._serial, entry)
        self._touch()

    def remove(self, key: str) -> None:
        """Remove an entry.

        Raises:
          KeyError: there is none of this key.
        """
        if key not in self._entries:
            raise KeyError(f"There is no {self._kind} {key!r}")
        del self._entries[key]
        self._touch()

    def get(self, key: str) -> E | None:
        """The entry of this key, or None."""
        found = self._entries.get(key)
        return None if found is None else found[1]

    def __iter__(self) -> Iterator[E]:
        return iter([entry for _, entry in self._entries.values()])

    def __len__(self) -> int:
        return len(self._entries)

    def after(self, serial: int) -> Iterator[tuple[int, E]]:
        """The entries registered after the one with *serial*, with theirs; 0 for all."""
        return (pair for pair in self._entries.values() if pair[0] > serial)

    def _touch(self) -> None:
        self.version += 1
        self._changed()


class Pages(Generic[E]):
    """The list of a registry as results, one page each, encoded once for each revision and kept until it changes."""

    def __init__(
        self,
        registry: Registry[E],
        member: str,
        *,
        size: int,
        extra: Callable[[Revision], dict[str, Any]],
        shown: Callable[[E], bool] = lambda _: True,
    ) -> None:
        """
        Args:
          registry: what to list.
          member: the result's member that holds the entries: ``tools``.
          size: how many entries a page has.
          extra: further members of the result in a revision.
          shown: whether to list an entry.
        """  # noqa: D205, D212 - the class says it
        self._registry = registry
        self._member = member
        self._size = size
        self._extra = extra
        self._shown = shown
        self._encoded: dict[tuple[str, int], msgspec.Raw] = {}
        self._version = -1

    def page(self, cursor: str | None, revision: Revision) -> msgspec.Raw:
        """The encoded result.

        Raises:
          ProtocolError: -32602 for a cursor that is none of ours.
        """
        serial = 0 if cursor is None else self._read(cursor)
        if self._version != self._registry.version:
            self._encoded.clear()
            self._version = self._registry.version
        key = (revision.name, serial)
        found = self._encoded.get(key)
        if found is None:
            found = self._encode(serial, revision)
            # A cursor points behind an entry, so the number of keys is bounded by what clients can have been given.
            if len(self._encoded) <= len(self._registry):
                self._encoded[key] = found
        return found

    def _encode(self, serial: int, revision: Revision) -> msgspec.Raw:
        shown = ((number, entry) for number, entry in self._registry.after(serial) if self._shown(entry))
        page = list(islice(shown, self._size))
        result: dict[str, Any] = {self._member: [entry.describe(revision) for _, entry in page]}
        if next(shown, None) is not None:
            result["nextCursor"] = self._write(page[-1][0])
        return encode_foreign(result | self._extra(revision))

    # A cursor names the last entry it has shown, not a position: entries may come and go between two pages, and none is
    # shown twice or left out.
    def _write(self, serial: int) -> str:
        return base64.urlsafe_b64encode(f"{self._member}:{serial}".encode()).decode().rstrip("=")

    def _read(self, cursor: str) -> int:
        try:
            text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
            member, _, number = text.partition(":")
            serial = int(number)
            if member == self._member and serial > 0 and self._write(serial) == cursor:
                return serial
        except (ValueError, binascii.Error):
            pass
        raise ProtocolError(INVALID_PARAMS, "Invalid cursor: use the nextCursor of an earlier answer as it is, or none")
