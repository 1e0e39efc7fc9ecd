"""Result files as tables, one alone or two side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple


class Metric(NamedTuple):
    """One number of a result file. `higher` says whether more is better."""

    name: str
    value: float
    higher: bool


def metrics(result: dict[str, Any]) -> list[Metric]:
    """The numbers of a result file, in the order of the tables."""
    return list(_metrics(result))


def _metrics(result: dict[str, Any]) -> Iterator[Metric]:
    measured = result["results"]
    if "start" in measured:
        yield Metric("start to ready, s", measured["start"]["seconds"], higher=False)
    for tokens, cold in measured.get("cold", {}).items():
        yield Metric(
            f"first token, {tokens} prompt tokens, ms (p50)", cold["first_token_ms"]["p50"], higher=False
        )
    for streams, decode in measured.get("decode", {}).items():
        case = f"decode, {streams} stream{'' if streams == '1' else 's'}"
        yield Metric(f"{case}, tok/s", decode["tokens_per_second"], higher=True)
        for name in ("p50", "p99"):
            yield Metric(f"{case}, inter-token ms ({name})", decode["inter_token_ms"][name], higher=False)


def result_table(result: dict[str, Any]) -> str:
    """A Markdown table of one result file."""
    rows = [(metric.name, f"{metric.value:.1f}") for metric in metrics(result)]
    return _markdown(("", result["label"]), rows)


def comparison_table(first: dict[str, Any], second: dict[str, Any]) -> str:
    """A Markdown table of what both files have; a ratio above 1 means that `first` is ahead."""
    others = {metric.name: metric for metric in metrics(second)}
    rows = []
    for metric in metrics(first):
        if metric.name in others:
            other = others[metric.name].value
            ratio = metric.value / other if metric.higher else other / metric.value
            rows.append((metric.name, f"{metric.value:.1f}", f"{other:.1f}", f"{ratio:.2f}"))
    return _markdown(("", first["label"], second["label"], "ratio"), rows)


def differences(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """What makes two files hard to compare: settings and machine, without the load before measuring."""
    found = []
    for part in ("settings", "machine"):
        for name in sorted(first[part].keys() | second[part].keys()):
            mine, theirs = first[part].get(name), second[part].get(name)
            if mine != theirs and name != "load_before":
                found.append(f"{part} differ in {name}: {mine} and {theirs}")
    return found


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        first, *numbers = (
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return f"| {' | '.join((first, *numbers))} |"

    rule = f"|{'-' * (widths[0] + 2)}|" + "".join(f"{'-' * (width + 1)}:|" for width in widths[1:])
    return "\n".join((line(header), rule, *map(line, rows)))
