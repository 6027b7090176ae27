"""What is fuzzed with bytes: one definition, which both Hypothesis (in CI) and atheris (for hours) drive."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from hypothesis import strategies


class Target(NamedTuple):
    """A property of any bytes.

    `check` raises for bytes that show a mistake. `seeds` are whole inputs to begin with, most of them as they should
    be; `tokens` are pieces that mean something to what is tested.
    """

    name: str
    check: Callable[[bytes], None]
    seeds: Sequence[bytes]
    tokens: Sequence[bytes]


TARGETS: Final[dict[str, Target]] = {}
"""All of them, by name."""


def target(
    *, seeds: Sequence[bytes], tokens: Sequence[bytes] = ()
) -> Callable[[Callable[[bytes], None]], Callable[[bytes], None]]:
    """Make a target of a function, under its own name."""

    def add(check: Callable[[bytes], None]) -> Callable[[bytes], None]:
        TARGETS[check.__name__] = Target(check.__name__, check, seeds, tokens)
        return check

    return add


def inputs(of: Target) -> strategies.SearchStrategy[bytes]:
    """Bytes of all kinds, above all seeds with a few edits."""
    edit = strategies.tuples(
        strategies.integers(0, 1 << 16),
        strategies.integers(0, 8),
        strategies.sampled_from(of.tokens) | strategies.binary(max_size=4)
        if of.tokens
        else strategies.binary(max_size=4),
    )
    return strategies.binary() | strategies.builds(
        edited, strategies.sampled_from(of.seeds), strategies.lists(edit, max_size=6)
    )


def edited(seed: bytes, edits: Sequence[tuple[int, int, bytes]]) -> bytes:
    """*seed* with some pieces replaced: each edit is a position, how many bytes go, and what comes instead."""
    data = bytearray(seed)
    for position, length, new in edits:
        start = position % (len(data) + 1)
        data[start : start + length] = new
    return bytes(data)
