"""Each report has a test, on each store, or a reason why not."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.reports import MEMORY_ONLY, NOT_YET, REDIS_ONLY

HERE = Path(__file__).parent
REPORTS = {
    *(1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 21, 22, 23, 24, 25, 26, 28, 29, 30, 31, 33, 34, 35),
    *(36, 37, 38, 40, 41, 42, 44, 45, 46, 47, 48, 49, 50, 51, 53, 54, 56, 57, 58, 59, 61, 63, 64, 67, 70, 71, 72, 73),
    *(74, 75),
}


def named_in(folder: Path) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, set[int]]]:
    """The tests of reports in a folder, and the reports that each of them names."""
    for path in folder.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and re.match(r"test_r[0-9]", node.name):
                yield node, {int(number) for number in re.findall(r"(?<=_r)[0-9]+", node.name)}


def reports_in(tests: Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, set[int]]]) -> set[int]:
    return {number for _, numbers in tests for number in numbers}


def arguments(test: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {argument.arg for argument in test.args.args}


def on_both_stores(test: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    marks = {mark.id for mark in test.decorator_list if isinstance(mark, ast.Name)}
    return bool(arguments(test) & {"rig", "storage"}) and "in_memory" not in marks


def test_every_report_is_accounted_for():
    tested = set()
    for folder in (HERE, HERE.parent / "replicas"):
        for test, numbers in named_in(folder):
            assert ast.get_docstring(test), f"{test.name} does not say what was reported"
            tested |= numbers
    assert tested | set(NOT_YET) == REPORTS
    assert tested & set(NOT_YET) == set()


def test_every_report_is_replayed_on_both_stores():
    both = reports_in(found for found in named_in(HERE) if on_both_stores(found[0]))
    in_memory = reports_in(named_in(HERE)) - both
    on_redis = reports_in(named_in(HERE.parent / "replicas")) - both
    assert in_memory == set(MEMORY_ONLY)
    assert on_redis == set(REDIS_ONLY)


def test_every_rig_has_the_clock_of_its_store():
    for test, _ in named_in(HERE):
        if "rig" in arguments(test):
            # pytest-trio takes the clock from the test's own signature.
            assert "clock" in arguments(test), test.name
            assert "autojump_clock" not in arguments(test), test.name
