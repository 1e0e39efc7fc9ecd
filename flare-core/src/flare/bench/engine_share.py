"""How much of a decode step the engine adds to the model's program, where the server tells."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from flare.bench.recorder import Recorder
from flare.bench.target import Target

PERIOD, PROGRAM = "flare:step_period_seconds", "flare:program_seconds"
CASE = "the server's last steps"


def read_gauges(page: str | None) -> dict[str, float]:
    """Values without labels, or of the first labels, of a Prometheus page; nothing when it is none."""
    values: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(page or ""):
            for sample in family.samples:
                values.setdefault(sample.name, float(sample.value))
    except (ValueError, IndexError, KeyError):
        return {}
    return values


async def add_engine_share(target: Target, recorder: Recorder) -> None:
    """Step period, program time and the share of the period that is not the program, as the server's own
    medians over its last decode steps; a note when it has none."""
    gauges = read_gauges(await target.metrics())
    period, program = gauges.get(PERIOD, 0.0), gauges.get(PROGRAM, 0.0)
    if period <= 0 or program <= 0:
        recorder.note("engine share: not reported by this server")
        return
    recorder.add(CASE, "step period", 1000 * period, "ms", "lower")
    recorder.add(CASE, "program", 1000 * program, "ms", "lower")
    recorder.add(CASE, "engine share", 100 * (1 - program / period), "%", "lower")
