"""A mapping for a million entries that never stops the loop."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

V = TypeVar("V")

_PARTS: Final = 251
"""A prime, so that the keys of one part differ in the bits by which a dict places them."""


class Index(Generic[V]):
    """A dict in parts: growing copies one part, not a million entries at once.

    With values that the garbage collector need not know, it need not know of the parts either (CPython before 3.14).
    """

    __slots__ = ("_parts", "size")

    def __init__(self) -> None:
        self._parts: list[dict[str, V]] = [{} for _ in range(_PARTS)]
        self.size = 0

    def get(self, key: str) -> V | None:
        """The value, if there is one."""
        return self._parts[hash(key) % _PARTS].get(key)

    def __getitem__(self, key: str) -> V:
        """The value that is there."""
        return self._parts[hash(key) % _PARTS][key]

    def add(self, key: str, value: V) -> None:
        """Put the first value for *key*."""
        self._parts[hash(key) % _PARTS][key] = value
        self.size += 1

    def remove(self, key: str) -> None:
        """Remove the value that is there."""
        part = self._parts[hash(key) % _PARTS]
        del part[key]
        self.size -= 1
        if not part:
            part.clear()  # else it would keep the room it once needed
