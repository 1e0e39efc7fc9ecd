"""Comparing result files: which side is ahead, and what makes them hard to compare."""

from __future__ import annotations

from typing import Any

from loadtest.report import comparison_table, differences, metrics, result_table


def result(
    label: str, *, start: float, first: float, rate: float, gap: float, **settings: Any
) -> dict[str, Any]:
    spread = {"p50": gap, "p99": 2 * gap}
    return {
        "label": label,
        "machine": {"cpu": "one", "load_before": start},
        "settings": {"output_tokens": 256, **settings},
        "results": {
            "start": {"seconds": start},
            "cold": {"360": {"first_token_ms": {"p50": first}}},
            "decode": {"1": {"tokens_per_second": rate, "inter_token_ms": spread}},
        },
    }


QUICK = result("Quick", start=4.0, first=250.0, rate=60.0, gap=20.0)
SLOW = result("Slow", start=100.0, first=500.0, rate=30.0, gap=30.0)


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_a_ratio_above_one_means_the_first_is_ahead() -> None:
    header, _, *rows = cells(comparison_table(QUICK, SLOW))
    assert header == ["", "Quick", "Slow", "ratio"]
    assert rows == [
        ["start to ready, s", "4.0", "100.0", "25.00"],
        ["first token, 360 prompt tokens, ms (p50)", "250.0", "500.0", "2.00"],
        ["decode, 1 stream, tok/s", "60.0", "30.0", "2.00"],
        ["decode, 1 stream, inter-token ms (p50)", "20.0", "30.0", "1.50"],
        ["decode, 1 stream, inter-token ms (p99)", "40.0", "60.0", "1.50"],
    ]
    assert [row[3] for row in cells(comparison_table(SLOW, QUICK))[2:]] == [
        "0.04",
        "0.50",
        "0.50",
        "0.67",
        "0.67",
    ]


def test_only_what_both_measured_is_compared() -> None:
    running = {**SLOW, "results": {key: SLOW["results"][key] for key in ("cold", "decode")}}
    names = [row[0] for row in cells(comparison_table(QUICK, running))[2:]]
    assert names == [metric.name for metric in metrics(running)]
    assert cells(result_table(running))[2][1] == "500.0"


def test_other_settings_are_named_and_the_load_is_not() -> None:
    assert differences(QUICK, SLOW) == []
    other = result("Other", start=1, first=1, rate=1, gap=1, output_tokens=64, top_k=20)
    assert differences(QUICK, other) == [
        "settings differ in output_tokens: 256 and 64",
        "settings differ in top_k: None and 20",
    ]
