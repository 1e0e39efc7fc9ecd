"""The tables of a GPU's measurements say what the files say."""

from __future__ import annotations

import re
from pathlib import Path

import gpu_tables
import pytest

from flare.bench.result import BenchResult, Figure, ScenarioResult, read_result, write_result


def test_the_page_is_what_the_files_say() -> None:
    page = gpu_tables.PAGE.read_text()
    assert gpu_tables.current(page) == page, "scripts/docs writes them"
    assert len(set(re.findall(r"<!-- measured: ([\w-]+) -->", page))) >= 6


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of results with nothing in it."""
    monkeypatch.setattr(gpu_tables, "RESULTS", tmp_path)
    return tmp_path


def decoding(rate: float, latency: float) -> BenchResult:
    figures = [
        Figure(case="1 stream", measure="total", unit="tok/s", better="higher", values=[rate, rate, 1.0]),
        Figure(case="1 stream", measure="per stream", unit="tok/s", better="higher", values=[rate]),
        Figure(case="1 stream", measure="inter-token p99", unit="ms", better="lower", values=[latency]),
    ]
    graph = Figure(case="1 stream", measure="graphs back to back", unit="ms", better="lower", values=[2.0])
    reading = Figure(case="1 stream", measure="time to read them", unit="ms", better="lower", values=[1.0])
    return BenchResult(
        format="flare.bench",
        version=1,
        label="x",
        model="x",
        date="today",
        machine={},
        settings={},
        scenarios={
            "decode": ScenarioResult(figures=figures),
            "replay": ScenarioResult(figures=[graph, reading]),
        },
    )


def cells(table: str, title: str) -> list[str]:
    (row,) = [line for line in table.splitlines() if line.startswith(f"| {title} |")]
    return [cell.strip() for cell in row.split("|")[2:-1]]


def test_a_ratio_above_one_is_ahead_for_rates_and_times(results: Path) -> None:
    written = results / "flare-h200-3b-as-written.json"
    write_result(decoding(400, 2.5), written)
    write_result(decoding(320, 5.0), results / "vllm-h200-3b.json")
    write_result(decoding(500, 2.0), results / "flare-h200-3b.json")
    mine = read_result(written)
    p50 = Figure(case="1 stream", measure="inter-token p50", unit="ms", better="lower", values=[2.0])
    mine.scenarios["decode"].figures.append(p50)
    write_result(mine, written)
    table = gpu_tables.peers()
    assert cells(table, "1 stream, tok/s") == ["320", "400", "1.25", "500"]
    assert cells(table, "1 stream, inter-token p99, ms") == ["5", "2.5", "2.00", "2"]
    assert cells(table, "1 stream, inter-token p50, ms") == ["–", "2", "–", "–"]
    assert "4 streams" not in table
    assert gpu_tables.start() == "Not measured yet.\n"
    assert cells(gpu_tables.floor(), "3B, 1 stream") == ["2", "2", "1", "1.00", "2.00"]
    assert cells(gpu_tables.floor(), "3B as written, 1 stream") == ["2.5", "2", "1", "1.25", "2.00"]


def test_another_value_is_another_page(results: Path) -> None:
    page = "before\n<!-- measured: peers -->\nold\n<!-- end -->\nbehind\n"
    write_result(decoding(400, 2.5), results / "flare-h200-3b.json")
    first = gpu_tables.current(page)
    changed = read_result(results / "flare-h200-3b.json")
    changed.scenarios["decode"].figures[0].values = [500.0]
    write_result(changed, results / "flare-h200-3b.json")
    assert gpu_tables.current(first) != first
    assert first.startswith("before\n")
    assert first.endswith("behind\n")
    assert "old" not in first
    with pytest.raises(KeyError):
        gpu_tables.current("<!-- measured: planted -->\n<!-- end -->")
