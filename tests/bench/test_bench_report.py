"""Comparing result files: which side is ahead, by how much, and what makes them hard to compare."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from flare.bench import BenchmarkError, BenchResult, Figure, ScenarioResult, compare, print_comparison
from flare.bench.result import read_result, write_result

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def result(
    label: str, *, first: list[float], rate: float, prompt: float = 360, **settings: Any
) -> BenchResult:
    figures = [
        Figure(case="360 tokens", measure="first token", unit="ms", better="lower", values=first),
        Figure(case="360 tokens", measure="prompt", unit="tokens", values=[prompt]),
    ]
    decode = [Figure(case="1 stream", measure="total", unit="tok/s", better="higher", values=[rate])]
    return BenchResult(
        format="flare.bench",
        version=1,
        label=label,
        model="m",
        date="2026-01-01T00:00:00+00:00",
        machine={"cpu": "one", "load_before": first[0]},
        settings={"output_tokens": 64, **settings},
        scenarios={"cold": ScenarioResult(figures=figures), "decode": ScenarioResult(figures=decode)},
    )


QUICK = result("Quick", first=[260, 250, 240], rate=60)
SLOW = result("Slow", first=[500, 480, 900], rate=30)


def printed(first: BenchResult, second: BenchResult) -> list[list[str]]:
    stream = io.StringIO()
    print_comparison(compare(first, second), Console(file=stream))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in stream.getvalue().splitlines()]


def test_a_ratio_above_one_means_the_first_is_ahead() -> None:
    header, _, *rows = printed(QUICK, SLOW)
    assert header == ["", "Quick", "Slow", "ratio"]
    assert rows == [
        ["cold, 360 tokens: first token, ms", "250 (240–260)", "500 (480–900)", "2.00"],
        ["cold, 360 tokens: prompt, tokens", "360", "360", ""],
        ["decode, 1 stream: total, tok/s", "60", "30", "2.00"],
    ]
    assert [row[3] for row in printed(SLOW, QUICK)[2:]] == ["0.50", "", "0.50"]


def test_only_what_both_measured_is_compared() -> None:
    alone = QUICK.model_copy(update={"label": "Alone", "scenarios": {"decode": QUICK.scenarios["decode"]}})
    comparison = compare(QUICK, alone)
    assert [row.name for row in comparison.rows] == ["decode, 1 stream: total, tok/s"]
    assert comparison.warnings == ["2 figures are in Quick only"]
    with pytest.raises(BenchmarkError, match="no figure in common"):
        compare(QUICK, alone.model_copy(update={"scenarios": {}}))


def test_what_hinders_a_comparison_is_said_and_the_load_is_not() -> None:
    assert compare(QUICK, SLOW).warnings == []
    other = result("Quick", first=[1], rate=1, output_tokens=32, turns=4)
    other.scenarios["cold"].errors["the server answered 503"] = 2
    comparison = compare(QUICK, other)
    assert comparison.labels == ("Quick (first)", "Quick (second)")
    assert comparison.warnings == [
        "settings differ in output_tokens: 64 and 32",
        "settings differ in turns: None and 4",
        "Quick (second) has 2 failed requests or measurements",
    ]


def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "new" / "quick.json"
    write_result(QUICK, file)
    assert read_result(file) == QUICK
    assert [path.name for path in file.parent.iterdir()] == ["quick.json"]
    later = {**json.loads(file.read_text()), "a_later_field": 1}
    file.write_text(json.dumps(later))
    assert read_result(file) == QUICK


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff\xfe", "cannot be read: not a text"),
        (b"", "is not a result of `flare bench --json`"),
        (b"[]", "is not a result"),
        (b'{"label": "old", "results": {}}', "format: Field required"),
        (
            QUICK.model_dump_json().replace('"version":1', '"version":2').encode(),
            "version: Input should be 1",
        ),
        (QUICK.model_dump_json().replace("[260.0", '["fast"').encode(), r"figures\.0\.values\.0"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "a.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BenchmarkError, match=message):
        read_result(file)


def test_the_published_results_can_be_compared() -> None:
    comparison = compare(read_result(RESULTS / "flare-cpu.json"), read_result(RESULTS / "vllm-cpu.json"))
    assert len(comparison.rows) > 10
