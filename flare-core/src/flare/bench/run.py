"""One measurement: connect, run the scenarios, collect the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from flare.bench.engine_share import add_engine_share
from flare.bench.errors import BenchmarkError
from flare.bench.machine import describe_machine
from flare.bench.recorder import Recorder
from flare.bench.result import BenchResult, ScenarioResult
from flare.bench.scenarios import SCENARIOS
from flare.bench.settings import BenchSettings
from flare.bench.target import Target, connect


async def measure(
    url: str,
    settings: BenchSettings,
    *,
    scenarios: Sequence[str] = tuple(SCENARIOS),
    label: str | None = None,
    model: str | None = None,
    api_key: str | None = None,
    versions: dict[str, str] | None = None,
    progress: Callable[[str], None] = lambda name: None,
) -> BenchResult:
    """Measure the server at `url`. `progress` is told each scenario's name before it runs.

    Failed requests are counted in the result. Raises: UnavailableError when no model server answers,
    BenchmarkError when its first answers show that nothing can be measured.
    """
    machine = describe_machine()
    results: dict[str, ScenarioResult] = {}
    async with connect(url, settings, model=model, api_key=api_key) as target:
        for name in scenarios:
            progress(name)
            results[name] = await run_scenario(name, target)
        steps = Recorder()
        if target.step_log.record(steps):
            results["steps"] = steps.result(0.0)
        return BenchResult(
            format="flare.bench",
            version=1,
            label=label or target.model,
            model=target.model,
            server_version=target.version,
            versions=versions or {},
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            machine=machine,
            settings=asdict(settings),
            scenarios=results,
        )


async def run_scenario(name: str, target: Target) -> ScenarioResult:
    """Repeat a scenario within its bounds; one without any answer in a repetition ends."""
    settings = target.settings
    recorder = Recorder()
    began = time.perf_counter()
    for repetition in range(settings.requests):
        if repetition and time.perf_counter() - began >= settings.duration:
            break
        answered = recorder.answers
        try:
            await SCENARIOS[name](target, recorder)
        except BenchmarkError as error:
            recorder.fail(error)
        if recorder.answers == answered:
            break
    seconds = time.perf_counter() - began
    if name == "decode":
        await add_engine_share(target, recorder)
    return recorder.result(seconds)
