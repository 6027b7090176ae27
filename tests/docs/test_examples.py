"""Every Python example of the documentation runs; every test in it passes.

The blocks of a page are one module, run in order. A block whose first line is a comment with a file's name is that file
too, so that others can import it. What is written for another library is run by an interpreter that has it.
"""

import inspect
import linecache
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.clients.test_clients import FASTMCP
from tests.docs.pages import PAGES, ROOT, Block, blocks, name_of
from tests.processes import missing

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def _test_files(page: Path) -> list[str]:
    """The files of a page that are for pytest."""
    return [block.file for block in blocks(page, "python") if block.file and block.file.startswith("test_")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to work in; what is imported from it is forgotten."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith((str(tmp_path), str(ROOT / "examples"))):
            del sys.modules[name]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name_of)
async def test_the_examples_of_a_page_run(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType(f"page_{page.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in blocks(page, "python"):
        if block.file is not None:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        _run(block, module)
        if block.file is None or not block.file.startswith("test_"):
            for name in [name for name in vars(module) if name.startswith("test_")]:
                # Once each, right after its block: a later block may change what it is about.
                await vars(module).pop(name)()


@pytest.mark.parametrize("page", [page for page in PAGES if _test_files(page)], ids=name_of)
def test_the_test_files_of_a_page_pass(page: Path, tmp_path: Path) -> None:
    for block in blocks(page, "python"):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\ntrio_mode = true\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *_test_files(page)]
    path = {"PYTHONPATH": str(ROOT / "examples")}
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout


def _run(block: Block, module: ModuleType) -> None:
    # A traceback shows the block's own lines, and `inspect` finds them.
    name = f"{block.page.name}:{block.line}"
    linecache.cache[name] = (len(block.text), None, block.text.splitlines(keepends=True), name)
    exec(compile(block.text, name, "exec"), vars(module))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python", "mcp")], ids=name_of)
def test_what_is_written_for_the_official_sdk_runs(page: Path, tmp_path: Path) -> None:
    for block in blocks(page, "python", "mcp"):
        _run_elsewhere(block, sys.executable, tmp_path)


@pytest.mark.clients
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python", "fastmcp")], ids=name_of)
def test_what_is_written_for_fastmcp_runs(page: Path, tmp_path: Path) -> None:
    if not FASTMCP.path.exists():
        missing(FASTMCP.name, "make pytest")
    for block in blocks(page, "python", "fastmcp"):
        _run_elsewhere(block, str(FASTMCP.path), tmp_path)


def _run_elsewhere(block: Block, python: str, folder: Path) -> None:
    # Imported, not started: that its declarations are accepted is what the page says.
    (folder / "example.py").write_text(block.text, encoding="utf-8")
    done = subprocess.run(
        [python, "-c", "import example"], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{block.page.name}:{block.line}: {done.stderr}"


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
async def test_an_example_runs(example: Path, folder: Path) -> None:
    module = __import__(example.stem)
    for name, value in list(vars(module).items()):
        if name.startswith("test_") and inspect.iscoroutinefunction(value):
            await value()


def test_no_example_is_forgotten() -> None:
    # A block that no test runs is in a language that says so.
    runs = {("python",), ("python", "mcp"), ("python", "fastmcp"), ("console",)}
    shown = {("sh",), ("text",), ("json",), ("toml",), ("nginx",), ("ini",), ("haproxy",), ("yaml",), ("http",)}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        opened = [tuple(line[3:].split()) for line in text.splitlines() if line.startswith("```")][::2]
        assert set(opened) <= runs | shown, page.name


@pytest.mark.parametrize("name", ["notes.py", "orders.py", "leaky.py"])
def test_an_example_is_what_a_page_shows(name: str) -> None:
    shown = {block.text for page in PAGES for block in blocks(page, "python") if block.file == name}
    assert (ROOT / "examples" / name).read_text(encoding="utf-8") in shown
