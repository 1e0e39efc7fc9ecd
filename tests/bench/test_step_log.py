"""Parts of decode steps, by number of streams: from servers that tell, and nothing from others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_openai import FakeServer
from typer.testing import CliRunner

from flare.bench import read_result
from flare.bench.recorder import Recorder
from flare.bench.step_log import PARTS, StepLog, read_steps
from flare.cli import app


def step(number: int, requests: int = 1, kind: str = "decode", gap: float | None = 1.0) -> dict[str, Any]:
    parts = {name: float(number) for name in PARTS.values()}
    return {"number": number, "program": kind, "kind": kind, "requests": requests, **parts, "gap_us": gap}


def report(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "timeline_report", "newest": steps[-1]["number"] if steps else 0, "steps": list(steps)}


def test_decode_steps_are_sorted_by_their_streams() -> None:
    log, recorder = StepLog(), Recorder()
    log.skip(report(step(7)))
    assert log.newest == 7
    log.take(report(step(8, kind="prefill"), step(9, gap=None), step(10, gap=3.0), step(11, requests=2)), 1)
    log.take(report(step(12, requests=2), step(13, requests=2), step(14)), 2)
    assert log.record(recorder)
    found = {(f.case, f.measure): f.values for f in recorder.result(0.0).figures}
    assert found["plan", "1 stream p50"] == [9.5]
    assert found["plan", "2 streams p50"] == [12.5]
    assert found["plan", "2 streams p99"] == [pytest.approx(12.99)]
    assert found["gap before the program", "1 stream p50"] == [3.0]
    assert {case for case, _ in found} == set(PARTS)


def test_a_server_that_tells_nothing() -> None:
    log = StepLog()
    log.skip(None)
    log.take(None, 1)
    assert not log.record(Recorder())
    for body in (b"", b"[]", b"{}", b'{"newest": 3}', b"<html>"):
        assert read_steps(body) is None


def test_the_command_shows_the_steps_of_each_number_of_streams(tmp_path: Path) -> None:
    """The server remembers two steps of a stream more with every question."""
    file = tmp_path / "steps.json"
    asked: list[int] = []

    def steps(since: int, requests: int) -> dict[str, Any]:
        asked.append(since)
        newest = 2 * len(asked)
        return report(*(step(number) for number in range(since + 1, newest + 1)))

    with FakeServer() as server:
        server.behaviour.token_seconds = 0.001
        server.behaviour.steps = steps
        arguments = ["bench", server.url, "--scenario", "decode", "--requests", "2", "--concurrency", "1"]
        run = CliRunner().invoke(app, [*arguments, "--output-tokens", "8", "--json", str(file)])
    assert run.exit_code == 0, run.output
    assert asked == [0, 2, 4, 6]
    result = read_result(file)
    assert [*result.scenarios] == ["decode", "steps"]
    (plan,) = (
        f for f in result.scenarios["steps"].figures if (f.case, f.measure) == ("plan", "1 stream p50")
    )
    assert plan.values == [5.5]  # steps 3, 4, 7 and 8
    assert "| gap before the program |" in run.stdout
