"""No async generator of ours holds a nursery or a cancel scope open over a `yield`.

Whoever drops such a generator half-way leaves its scope to the garbage collector, in whichever task that comes up. What
`asynccontextmanager` wraps is entered and left by one task, in order: that is what it is for.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import mcpd
import mcpd_stores

SCOPES = {"open_nursery", "CancelScope", "move_on_after", "move_on_at", "fail_after", "fail_at"}


def held_open(source: str) -> list[str]:
    """The async generators in *source* that yield inside a scope of Trio, with their lines."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.AsyncFunctionDef):
            continue
        if any("asynccontextmanager" in ast.unparse(decorator) for decorator in function.decorator_list):
            continue
        for block in _within(function):
            if isinstance(block, ast.With | ast.AsyncWith) and _opens_scope(block):
                found += [f"{function.name}:{each.lineno}" for each in _within(block) if isinstance(each, ast.Yield)]
    return found


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """What belongs to *node* itself, and not to a function in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _within(child)


def _opens_scope(block: ast.With | ast.AsyncWith) -> bool:
    names = {node.attr for item in block.items for node in ast.walk(item) if isinstance(node, ast.Attribute)}
    names |= {node.id for item in block.items for node in ast.walk(item) if isinstance(node, ast.Name)}
    return bool(names & SCOPES)


@pytest.mark.parametrize("package", [mcpd, mcpd_stores], ids=lambda each: each.__name__)
def test_no_async_generator_holds_a_scope_open(package: object) -> None:
    files = sorted(Path(package.__file__).parent.rglob("*.py"))
    assert files
    assert {str(file): found for file in files if (found := held_open(file.read_text(encoding="utf-8")))} == {}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("async with trio.open_nursery():\n  yield 1", ["f:3"]),
        ("with move_on_after(1):\n  if x:\n   yield 1", ["f:4"]),
        ("async with trio.open_nursery():\n  pass\n yield 1", []),
        ("with trio.CancelScope():\n  def g(): yield 1", []),
        ("async with lock:\n  yield 1", []),
    ],
)
def test_a_scope_that_is_held_open_is_found(body: str, expected: list[str]) -> None:
    assert held_open(f"async def f():\n {body}") == expected
    assert held_open(f"@asynccontextmanager\nasync def f():\n {body}") == []
