"""What the pages of the documentation hold: fenced blocks, and the commands of consoles with what they print."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_FENCED: Final = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE: Final = re.compile(r"# (?P<name>\w+\.\w+)\n")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language and other words of the info string, its text, where it begins."""

    page: Path
    line: int
    info: tuple[str, ...]
    text: str

    @property
    def file(self) -> str | None:
        """The file it is, if its first line is a comment that says so."""
        found = _FILE.match(self.text)
        return None if found is None else found["name"]


@dataclass(frozen=True)
class Command:
    """One command of a console, and what is to be printed."""

    line: int
    text: str
    output: str


def name_of(page: Path) -> str:
    """The page as tests show it."""
    return page.name


def blocks(page: Path, *language: str) -> list[Block]:
    """The blocks of *page* whose info string is *language*, in order."""
    text = page.read_text(encoding="utf-8")
    found = [
        Block(page, text.count("\n", 0, match.start()) + 2, tuple(match["info"].split()), match["text"])
        for match in _FENCED.finditer(text)
    ]
    return [block for block in found if block.info == language]


def commands(block: Block) -> Iterator[Command]:
    """The commands of a console block; one may go on over several lines, as in a shell."""
    lines = block.text.splitlines()
    number = 0
    while number < len(lines):
        begins = number
        assert lines[number].startswith("$ "), f"{block.page.name}:{block.line + number} is no command"
        command = lines[number][2:]
        while _goes_on(command):
            number += 1
            command += f"\n{lines[number]}"
        number += 1
        output: list[str] = []
        while number < len(lines) and not lines[number].startswith("$ "):
            output.append(lines[number])
            number += 1
        yield Command(block.line + begins, command, "\n".join(output))


def _goes_on(command: str) -> bool:
    if command.endswith("\\"):
        return True
    try:
        shlex.split(command)
    except ValueError:
        return True  # a quotation is open
    return False
