"""Both directions: every requirement has a test or a reason, and every test names requirements that there are."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.requirements import LEFT, REQUIREMENTS, requirement

TESTS = Path(__file__).parent


def named_by_tests() -> dict[str, list[str]]:
    """The tests of each id, read from the sources: no test has to be collected, or even importable."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for each in ids_of(node):
                    found[each].append(f"{path.relative_to(TESTS)}::{node.name}")
    return found


def ids_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in function.decorator_list:
        match decorator:
            case ast.Call(func=ast.Name(id="requirement"), args=arguments):
                for argument in arguments:
                    assert isinstance(argument, ast.Constant), f"{function.name}: write the ids themselves"
                    assert isinstance(argument.value, str)
                    # A helper with the decorator would count as a test and prove nothing.
                    assert function.name.startswith("test"), f"{function.name} is tied to requirements and no test"
                    yield argument.value


def test_every_requirement_has_a_test_or_a_reason():
    tested = named_by_tests()
    missing = [f"{each.id} {each.sentence}" for each in REQUIREMENTS.values() if each.id not in {*tested, *LEFT}]
    assert not missing, "\n".join(missing)


def test_every_test_names_requirements_that_there_are():
    unknown = {each: tests for each, tests in named_by_tests().items() if each not in REQUIREMENTS}
    assert not unknown


def test_nothing_that_is_tested_is_left():
    both = {each: tests for each, tests in named_by_tests().items() if each in LEFT}
    assert not both, f"take them out of tests/requirements.py: {both}"


def test_the_table_is_whole():
    numbers = [int(each.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")) for each in REQUIREMENTS]
    assert numbers == list(range(1, len(numbers) + 1)), "an id twice, or one out of its order"
    for each in REQUIREMENTS.values():
        assert each.strength in set("MSYDmsy"), each
        assert each.era in set("LNB"), each
        assert each.page, each
        assert each.sentence.endswith("."), each


def test_every_reason_is_one_and_is_used():
    assert all(len(reason) > 20 for reason in LEFT.values()), "a reason says why"


def test_the_decorator_refuses_what_there_is_not():
    for ids in ((), ("E0",), ("E86", "e86")):
        try:
            requirement(*ids)
        except LookupError:
            continue
        raise AssertionError(ids)
