"""What the benchmarks that compare several things leave behind: a page, and the raw figures for the next comparison."""

from __future__ import annotations

import json
import os
import platform
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
"""Of every progress bar."""


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table; the first column is text, the others are figures."""
    lines = [f"| {' | '.join(titles)} |", "| --- |" + " ---: |" * (len(titles) - 1)]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


def taken() -> str:
    """When, where, and with which Python: builds of the same version differ by a fifth in speed."""
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    python = f"{platform.python_implementation()} {sys.version.split('[')[0].strip()}"
    return f"Taken {day} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores, {python}."


def write(out: Path, stem: str, lines: Sequence[str], raw: object) -> str:
    """Write the page and the figures; gives the page."""
    text = "\n".join(lines) + "\n"
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{stem}.md").write_text(text)
    (out / f"{stem}.json").write_text(json.dumps(raw, indent=1) + "\n")
    return text


def bars(axes: Any, values: dict[str, float], label: str, form: str) -> None:
    """Horizontal bars, mcpd's in another colour."""
    names = [*reversed(values)]
    colours = ["#c33" if "mcpd" in name else "#567" for name in names]
    drawn = axes.barh(names, [values[name] for name in names], color=colours)
    axes.bar_label(drawn, fmt=form, padding=3)
    axes.set_xlabel(label)
    axes.margins(x=0.15)
    axes.spines[["top", "right"]].set_visible(False)
