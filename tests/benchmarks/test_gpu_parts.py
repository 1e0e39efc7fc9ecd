"""Parts of a plan: each is a process with a limit, and what became of it is in the file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import bench
import pytest
from models import MODELS

from flare.bench.result import read_result

SERVER = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(77.7)'])"


@pytest.fixture
def place(tmp_path: Path) -> bench.Place:
    core = tmp_path / "core"
    core.write_bytes(bytes(1 << 20))
    return bench.Place(MODELS["3b"], core, tmp_path / "results" / "flare-gpu-3b.json")


def told(monkeypatch: pytest.MonkeyPatch, script: str, limit: float = 30.0) -> None:
    """Every part runs `script`."""
    words = [sys.executable, "-c", script]
    monkeypatch.setattr(bench, "command", lambda part, place, repeat: (words, limit))
    monkeypatch.setattr(bench, "prepare", lambda place: (words, limit))


def test_a_part_that_fails_is_in_the_file(place: bench.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, "raise SystemExit(3)")
    assert not bench.run("replay", place, 1)
    assert read_result(place.into).scenarios["replay"].errors == {"part replay ended with status 3": 1}


def test_a_part_and_what_it_started_end_at_the_limit(
    place: bench.Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(monkeypatch, SERVER, limit=1.0)
    assert not bench.run("http", place, 1)
    assert read_result(place.into).scenarios["http"].errors == {"part http ran out of time": 1}
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "sleep(77.7)" not in running


def test_a_part_writes_for_itself(place: bench.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, "pass")
    assert bench.run("decode", place, 1)
    assert not place.into.exists()
    assert bench.run("prepare", place, 1)
    prepared = read_result(place.into).scenarios["prepare"]
    assert {figure.measure: figure.median for figure in prepared.figures}["core"] == pytest.approx(1 / 1024)


def test_every_part_of_the_plans_has_a_command(place: bench.Place) -> None:
    for plan in bench.DEFAULT:
        name, _, parts = plan.partition(":")
        model = bench.Place(MODELS[name], place.core, place.into)
        for part in parts.split(","):
            words, limit = bench.prepare(model) if part == "prepare" else bench.command(part, model, 2)
            assert str(place.core) in words
            assert limit > 0
    with pytest.raises(KeyError):
        bench.command("planted", place, 1)
