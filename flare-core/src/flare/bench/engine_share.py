"""How much of a decode step the engine adds to the model's program, where the server tells."""

from __future__ import annotations

from flare.bench.recorder import Recorder
from flare.bench.target import Target

CASE = "the server's last steps"


async def add_engine_share(target: Target, recorder: Recorder) -> None:
    """Step period, program time and the share of the period that is not the program, as the server's own
    medians over its last decode steps; a note when it has none."""
    times = await target.step_times()
    if times is None:
        recorder.note("engine share: not reported by this server")
        return
    recorder.add(CASE, "step period", 1000 * times.period, "ms", "lower")
    recorder.add(CASE, "program", 1000 * times.program, "ms", "lower")
    recorder.add(CASE, "engine share", 100 * (1 - times.program / times.period), "%", "lower")
