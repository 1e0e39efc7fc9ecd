"""The times of a decode step that a server reports of itself."""

from __future__ import annotations

from typing import NamedTuple

from flare.bench.gauges import read_gauges

_PERIOD, _PROGRAM = "flare:step_period_seconds", "flare:program_seconds"


class StepTimes(NamedTuple):
    """Seconds from one step to the next, and of the model's program in it: medians over the last steps."""

    period: float
    program: float


def read_step_times(page: str | None) -> StepTimes | None:
    """From a Prometheus page; None when it is none, or has no such gauges yet."""
    values = read_gauges(page)
    times = StepTimes(values.get(_PERIOD, 0.0), values.get(_PROGRAM, 0.0))
    return times if times.period > 0 and times.program > 0 else None
