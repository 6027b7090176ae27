"""What is still there, and who still speaks of it. With the `no_gc` fixture nothing is tidied up in between."""

from __future__ import annotations

import gc
import types
from typing import Any, Final

import trio

# Ways out of the objects of a server into the whole interpreter, and into the test itself.
_NOT_INTO: Final = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.FrameType,
    types.CoroutineType,
    types.AsyncGeneratorType,
    types.GeneratorType,
    trio.lowlevel.Task,
    trio.Nursery,
)


def living(*kinds: type[Any]) -> dict[str, int]:
    """How many objects there are of each of these classes (not of their subclasses), where there are any."""
    found: dict[str, int] = {}
    for thing in gc.get_objects():
        kind: Any = type(thing)
        if kind in kinds:
            found[kind.__name__] = found.get(kind.__name__, 0) + 1
    return found


def mentions(root: object, text: str) -> list[Any]:
    """All strings and bytes with *text* in them that can be reached from *root*."""
    seen: set[int] = set()
    found: list[Any] = []
    todo: list[object] = [root]
    needle = text.encode()
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, _NOT_INTO):
            continue
        seen.add(id(thing))
        if isinstance(thing, str):
            if text in thing:
                found.append(thing)
        elif isinstance(thing, bytes | bytearray):
            if needle in thing:
                found.append(thing)
        else:
            todo += gc.get_referents(thing)
    return found
