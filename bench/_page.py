"""What a run leaves to be read: a Markdown page and a plot, both laid out as in the bug report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from _figures import MB, Run

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from matplotlib.axes import Axes

HEALTH = "GET /health"
CONNECTIONS = "GET /health, a connection each"
OPENED = "POST initialize, no DELETE"
DELETED = "POST initialize + DELETE"

REPORT_NAME = "the report: mcp-go 0.43.2, heap"
REPORT_COUNTS = [0, 500, 1000, 1500, 2000]
REPORT_MB = [3.28, 7.84, 13.43, 18.99, 23.35]


def page(name: str, run: Run, others: dict[str, Run], plot: str) -> str:
    """Write the page: the curve, the control runs, whether ended sessions were gone, and the other runs beside it."""
    how = "one keep-alive connection" if run.keep_alive else "a new connection for each request"
    lines = [
        f"# Live memory against cumulative `initialize`: {name}",
        "",
        f"Server: {run.server}. Measure: `{run.measure}`, least of 20 samples.",
        f"Taken {run.taken} on {run.machine}, {how}, after a warm-up of {run.warm_up:,} sessions opened and deleted.",
        "MB is 1,000,000 bytes, KiB is 1,024.",
        "",
        f"![live memory against cumulative initialize]({plot})",
        "",
        *_curve(run),
        "",
        *_summary(run),
        "",
        "## Control runs",
        "",
        "Each on a fresh server, after the same warm-up." if run.fresh else "One after the other on the same server.",
        "",
        *_controls(run),
    ]
    if others:
        lines += [
            "",
            "## Beside other servers",
            "",
            "A heap and an RSS are two measures: compare what they gain, not where they start.",
            "",
            *_comparison({name: run, **others}),
        ]
    return "\n".join(lines) + "\n"


def _curve(run: Run) -> list[str]:
    columns: dict[str, list[str]] = {
        "cumulative initialize requests": [f"{p.initialized:,}{' (settled)' * p.settled}" for p in run.points],
        "live memory (MB)": [f"{point.live / MB:.2f}" for point in run.points],
        "RSS (MB)": [_mb(point.rss) for point in run.points if point.rss not in {None, point.live}],
        "live sessions": [f"{point.sessions:,}" for point in run.points if point.sessions is not None],
    }
    filled = {name: cells for name, cells in columns.items() if len(cells) == len(run.points)}
    rows = zip(*filled.values(), strict=True)
    return [_row(filled), "|" + " ---: |" * len(filled), *map(_row, rows)]


def _summary(run: Run) -> list[str]:
    lines = [f"- Over the first round: {run.opened / 1024:+.2f} KiB per `initialize`."]
    settled = [point.live / MB for point in run.settled]
    if run.settle is not None:
        lines.append(
            f"- {run.settle:g} s after each round: {min(settled):.2f} to {max(settled):.2f} MB, "
            f"{settled[-1] - settled[0]:+.2f} MB from the first to the last."
        )
    if run.retained is not None:
        lines.append(f"- Kept for ever: {run.retained:+.1f} bytes per `initialize` (slope over the settled points).")
    return lines + [
        f"- Sessions ended by {ended.by}: {ended.answered:,} of {ended.asked:,} still answered (not 404)."
        for ended in run.ended
    ]


def _controls(run: Run) -> list[str]:
    titles = (
        "traffic",
        "requests",
        "live memory delta (MB)",
        "bytes per request",
        "KiB per request",
        "live sessions",
        "connections still open",
    )
    rows = [
        (
            control.traffic,
            f"{control.requests:,}",
            f"{control.delta / MB:+.2f}",
            f"{control.each:,.0f}",
            f"{control.each / 1024:.2f}",
            "-" if control.sessions is None else f"{control.sessions:,}",
            "-" if control.connections is None else f"{control.connections:,}",
        )
        for control in run.controls
    ]
    return [_row(titles), "| --- |" + " ---: |" * (len(titles) - 1), *map(_row, rows)]


def _comparison(runs: dict[str, Run]) -> list[str]:
    titles = (
        "run",
        "measure",
        "start (MB)",
        "KiB per open session",
        "KiB per deleted session",
        "bytes kept for ever each",
    )
    rows: list[tuple[str, ...]] = []
    for name, run in runs.items():
        each = {control.traffic: f"{control.each / 1024:.2f}" for control in run.controls}
        kept = "-" if run.retained is None else f"{run.retained:+.1f}"
        start = f"{run.points[0].live / MB:.2f}"
        rows.append((name, f"`{run.measure}`", start, each.get(OPENED, "-"), each.get(DELETED, "-"), kept))
    return [_row(titles), "| --- | --- |" + " ---: |" * (len(titles) - 2), *map(_row, rows)]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _mb(value: int | None) -> str:
    return "-" if value is None else f"{value / MB:.2f}"


def draw(path: Path, runs: dict[str, Run]) -> None:
    """Plot live memory, absolute and as growth since the start, with the report's own figures as a dashed line."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    absolute, growth = figure.subplots(1, 2)
    figure.suptitle("Live memory vs cumulative initialize requests")
    for axes, title, is_growth in ((absolute, "as measured", False), (growth, "growth since the start", True)):
        base = REPORT_MB[0] if is_growth else 0.0
        axes.plot(REPORT_COUNTS, [value - base for value in REPORT_MB], "k--", marker=".", label=REPORT_NAME)
        for name, run in runs.items():
            _line(axes, name, run, is_growth=is_growth)
        axes.set_title(title, fontsize="medium")
        axes.set_xlabel("cumulative initialize requests")
        axes.set_ylabel("live memory (MB)")
        axes.grid(alpha=0.3)
        axes.margins(x=0.02)
    absolute.set_ylim(bottom=0)
    absolute.legend(fontsize="small")
    figure.savefig(path, dpi=120, metadata={"Software": None})


def _line(axes: Axes, name: str, run: Run, *, is_growth: bool) -> None:
    base = run.points[0].live if is_growth else 0
    counts = [point.initialized for point in run.points]
    (line,) = axes.plot(counts, [(p.live - base) / MB for p in run.points], marker=".", label=f"{name}, {_short(run)}")
    if run.settled:
        axes.plot(
            [point.initialized for point in run.settled],
            [(p.live - base) / MB for p in run.settled],
            "o",
            color=line.get_color(),
            markerfacecolor="white",
            label=f"{name}, {run.settle:g} s later",
        )


def _short(run: Run) -> str:
    return "heap" if "heap" in run.measure else "RSS"
