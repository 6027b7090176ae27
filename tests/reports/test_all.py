"""Each report has a test, or a reason why not."""

import ast
import re
from pathlib import Path

from tests.reports import NOT_YET

REPORTS = {
    *(1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 21, 22, 23, 24, 25, 26, 28, 29, 30, 31, 33, 34, 35),
    *(36, 37, 38, 40, 41, 42, 44, 45, 46, 47, 48, 49, 50, 51, 53, 54, 56, 57, 58, 59, 61, 63, 64, 67, 70, 71, 72, 73),
    *(74, 75),
}


def test_every_report_is_accounted_for():
    tested = set()
    reports = Path(__file__).parent
    for path in [*reports.glob("test_*.py"), *(reports.parent / "replicas").glob("test_*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and re.match(r"test_r[0-9]", node.name):
                assert ast.get_docstring(node), f"{node.name} does not say what was reported"
                tested |= {int(number) for number in re.findall(r"(?<=_r)[0-9]+", node.name)}
    assert tested | set(NOT_YET) == REPORTS
    assert tested & set(NOT_YET) == set()
