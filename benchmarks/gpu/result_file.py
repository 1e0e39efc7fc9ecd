"""The result file of one model on one machine: every part adds its figures as soon as it has them."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from flare.bench.machine import describe_machine
from flare.bench.recorder import Recorder
from flare.bench.result import BenchResult, Figure, ScenarioResult, read_result, write_result


def add(path: Path, label: str, scenario: str, found: ScenarioResult) -> None:
    """Put `found` under `scenario` into the file, which is made when there is none. Figures that are there
    already get more values: the parts may be run again, between those of another engine."""
    result = read_result(path) if path.exists() else _new(label)
    result.scenarios[scenario] = _joined(result.scenarios.get(scenario, ScenarioResult()), found)
    result.settings.setdefault("commands", {})[scenario] = _command()
    write_result(result, path)


def add_recorded(path: Path, label: str, scenario: str, recorder: Recorder, seconds: float) -> None:
    """As `add`, of what was recorded in `seconds`."""
    add(path, label, scenario, recorder.result(seconds))


def _command() -> str:
    """What this process was started with; of files elsewhere on the machine their names."""
    return " ".join(Path(word).name if Path(word).is_absolute() else word for word in sys.argv)


def _new(label: str) -> BenchResult:
    return BenchResult(
        format="flare.bench",
        version=1,
        label=label,
        model=label,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=describe_machine(),
        settings={},
        scenarios={},
    )


def _joined(first: ScenarioResult, second: ScenarioResult) -> ScenarioResult:
    figures: dict[tuple[str, str], Figure] = {}
    for figure in (*first.figures, *second.figures):
        known = figures.get((figure.case, figure.measure))
        if known is None:
            figures[figure.case, figure.measure] = figure
        else:
            known.values += figure.values
    errors = dict(first.errors)
    for message, count in second.errors.items():
        errors[message] = errors.get(message, 0) + count
    return ScenarioResult(
        figures=list(figures.values()),
        requests=first.requests + second.requests,
        errors=errors,
        notes=list(dict.fromkeys([*first.notes, *second.notes])),
        seconds=round(first.seconds + second.seconds, 3),
    )
