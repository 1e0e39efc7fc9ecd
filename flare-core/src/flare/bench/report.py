"""Results and comparisons as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flare.bench.comparison import Comparison
from flare.bench.result import BenchResult, Figure, ScenarioResult

# Piped output is read by scripts and pasted into pages: Markdown, and no line is cut.
_PIPE_WIDTH = 400


def _console(console: Console | None) -> Console:
    console = console or Console()
    return console if console.is_terminal else Console(file=console.file, width=_PIPE_WIDTH)


def _table(console: Console, columns: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else box.MARKDOWN)
    for place, column in enumerate(columns):
        table.add_column(escape(column), justify="right" if place else "left")
    return table


def _show(console: Console, table: Table) -> None:
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    # The box has blank lines around it and blanks behind it.
    lines = [line.rstrip() for line in captured.get().splitlines()]
    console.print("\n".join(filter(None, lines)), markup=False, highlight=False)


def number(value: float) -> str:
    """Three digits or more: what a measurement is good for."""
    return f"{value:.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


def with_spread(figure: Figure) -> str:
    """Median, and the range of all repetitions where there is one."""
    low, high = map(number, figure.spread)
    median = number(figure.median)
    return median if low == high else f"{median} ({low}–{high})"


def print_result(result: BenchResult, console: Console | None = None) -> None:
    """A table per scenario: a row per case, a column per measure, medians with their range."""
    console = _console(console)
    version = f" {result.server_version}" if result.server_version else ""
    console.print(escape(f"{result.label}{version}: medians of the repetitions (smallest–largest)"))
    for name, scenario in result.scenarios.items():
        console.print(f"\n[bold]{escape(name)}[/bold]{_counts(scenario)}")
        if scenario.figures:
            _show(console, _scenario_table(console, scenario))
        _print_remarks(console, scenario)


def _counts(scenario: ScenarioResult) -> str:
    errors = f", [red]{scenario.failures} failed[/red]" if scenario.failures else ""
    requests = f": {scenario.requests} requests in {scenario.seconds:.1f} s" if scenario.requests else ""
    return requests + errors


def _scenario_table(console: Console, scenario: ScenarioResult) -> Table:
    measures = list(dict.fromkeys(f"{f.measure}, {f.unit}" for f in scenario.figures))
    cells: dict[str, dict[str, str]] = {}
    for figure in scenario.figures:
        cells.setdefault(figure.case, {})[f"{figure.measure}, {figure.unit}"] = with_spread(figure)
    if len(cells) == 1:
        # A single case with many measures reads better downwards.
        ((case, row),) = cells.items()
        table = _table(console, ("", case))
        for measure in measures:
            table.add_row(escape(measure), row[measure])
        return table
    table = _table(console, ("", *measures))
    for case, row in cells.items():
        table.add_row(escape(case), *(row.get(measure, "") for measure in measures))
    return table


def _print_remarks(console: Console, scenario: ScenarioResult) -> None:
    for note in scenario.notes:
        console.print(f"note: {escape(note)}")
    for message, count in scenario.errors.items():
        console.print(f"[red]error: {count} × {escape(message)}[/red]")


def print_comparison(comparison: Comparison, console: Console | None = None) -> None:
    """What both files have, one row per figure; a ratio above 1 means that the first is ahead."""
    console = _console(console)
    table = _table(console, ("", *comparison.labels, "ratio"))
    for row in comparison.rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        table.add_row(escape(row.name), with_spread(row.first), with_spread(row.second), ratio)
    _show(console, table)
