"""Two results side by side."""

from __future__ import annotations

from typing import NamedTuple

from flare.bench.errors import BenchmarkError
from flare.bench.result import BenchResult, Figure

_NOT_COMPARED = ("load_before",)


class Row(NamedTuple):
    """One figure of both. `ratio` of the medians is above 1 when the first is ahead; None for counts that
    describe the case, and where a median is 0."""

    name: str
    first: Figure
    second: Figure
    ratio: float | None


class Comparison(NamedTuple):
    """`warnings` are what makes the two hard to compare: settings, machine, errors, missing figures."""

    labels: tuple[str, str]
    rows: list[Row]
    warnings: list[str]


def compare(first: BenchResult, second: BenchResult) -> Comparison:
    """What both results have, in the order of the first. Raises: BenchmarkError when they share no figure."""
    mine, theirs = _figures(first), _figures(second)
    rows = [
        Row(
            f"{scenario}, {figure.case}: {figure.measure}, {figure.unit}",
            figure,
            other,
            _ratio(figure, other),
        )
        for (scenario, case, measure), figure in mine.items()
        if (other := theirs.get((scenario, case, measure))) is not None
    ]
    if not rows:
        raise BenchmarkError("the two results have no figure in common", field="compare")
    labels = (first.label, second.label)
    if labels[0] == labels[1]:
        labels = (f"{labels[0]} (first)", f"{labels[1]} (second)")
    warnings = _differences(first, second)
    for label, result in zip(labels, (first, second), strict=True):
        if result.failures:
            warnings.append(f"{label} has {result.failures} failed requests or measurements")
    for label, only in zip(labels, (mine.keys() - theirs.keys(), theirs.keys() - mine.keys()), strict=True):
        if only:
            warnings.append(f"{len(only)} figures are in {label} only")
    return Comparison(labels, rows, warnings)


def _figures(result: BenchResult) -> dict[tuple[str, str, str], Figure]:
    return {
        (name, figure.case, figure.measure): figure
        for name, scenario in result.scenarios.items()
        for figure in scenario.figures
    }


def _ratio(first: Figure, second: Figure) -> float | None:
    if first.better is None or not first.median or not second.median:
        return None
    ratio = first.median / second.median
    return ratio if first.better == "higher" else 1 / ratio


def _differences(first: BenchResult, second: BenchResult) -> list[str]:
    found = []
    for part in ("settings", "machine"):
        here, there = getattr(first, part), getattr(second, part)
        for name in sorted(here.keys() | there.keys()):
            mine, theirs = here.get(name), there.get(name)
            if mine != theirs and name not in _NOT_COMPARED:
                found.append(f"{part} differ in {name}: {mine} and {theirs}")
    return found
