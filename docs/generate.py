"""Write the tables of the documentation from the code: ``python docs/generate.py``, or ``--check`` that they are right.

A table stands between ``<!-- table: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args, get_type_hints

import msgspec
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector

import mcpd.cli
from mcpd import Server, Settings
from mcpd.fronts.http import new_endpoint
from mcpd.metrics import _Counts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT: Final = Path(__file__).parents[1]
_TABLE: Final = re.compile(r"(<!-- table: (?P<name>\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_HINTS: Final = get_type_hints(Settings)


def _table(head: str, rows: Iterable[tuple[str, ...]]) -> str:
    columns = [name.strip() for name in head.split("|")]
    lines = [columns, ["---"] * len(columns), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _flags() -> Iterator[tuple[str, ...]]:
    for option in mcpd.cli.serve_command.params:
        if option.param_type_name != "option":
            continue
        described: Any = option
        flag = " ".join(f"`{name}`" for name in (*described.opts, *described.secondary_opts))
        shown = described.show_default if isinstance(described.show_default, str) else described.default
        yield flag, f"`{described.envvar}`", _default(described, shown), described.help
    for name in mcpd.cli._ENVIRONMENT_ONLY:  # noqa: SLF001 - a table of the code looks into it
        yield "environment only", f"`MCPD_{name.upper()}`", "", _description(name)


def _default(option: Any, shown: object) -> str:
    if isinstance(shown, bool):
        return "yes" if shown else "no"
    return "" if option.multiple or shown in ("", None) else f"`{shown}`"


def _description(name: str) -> str:
    hint: Any = get_type_hints(Settings, include_extras=True)[name]
    return str(get_args(hint)[1].description)


def _limits() -> Iterator[tuple[str, ...]]:
    for field in msgspec.structs.fields(Settings):
        kind = _HINTS[field.name]
        if kind in {int, float} and not field.name.endswith("port"):
            shown = mcpd.cli._shown(field.name, field.default)  # noqa: SLF001 - as the command line has it
            number = f"{int(shown):,}" if shown.isdigit() else shown
            yield _description(field.name), number, f"`--{field.name.replace('_', '-')}`"


def _metrics() -> Iterator[tuple[str, ...]]:
    for family in _Counts(new_endpoint(Server("documentation"), "memory", Settings())).collect():
        described: Any = family
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = ", ".join(f"`{label}`" for label in described._labelnames)  # noqa: SLF001 - it has no other way
        yield f"`{name}`", family.type, labels, family.documentation
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    for family in registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = sorted({label for sample in family.samples for label in sample.labels})
        yield f"`{name}`", family.type, ", ".join(f"`{label}`" for label in labels), family.documentation


TABLES: Final[dict[str, tuple[str, Callable[[], Iterator[tuple[str, ...]]]]]] = {
    "flags": ("flag | environment variable | default | meaning", _flags),
    "limits": ("limit | default | flag", _limits),
    "metrics": ("metric | type | labels | meaning", _metrics),
}


def generated(text: str) -> str:
    """The page with its tables as they should be."""

    def table(found: re.Match[str]) -> str:
        head, rows = TABLES[found["name"]]
        return found[1] + "\n" + _table(head, rows()) + "\n" + found[3]

    return _TABLE.sub(table, text)


def main() -> None:
    """Write, or check: then exit status 1 says that a table is out of date."""
    stale: list[str] = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        before = page.read_text(encoding="utf-8")
        after = generated(before)
        if before != after:
            stale.append(page.name)
            if "--check" not in sys.argv:
                page.write_text(after, encoding="utf-8")
    if "--check" in sys.argv and stale:
        sys.exit(f"Out of date: {', '.join(stale)}. Run: python docs/generate.py")


if __name__ == "__main__":
    main()
