"""The scenarios of `flare bench` at the engine's client: serve.py CORE --into FILE --scenario NAME ...

Starts the engine process of a core, runs the scenarios and adds each to the result file when it is done.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import result_file
from engine_target import engine_target

from flare.bench.recorder import Recorder
from flare.bench.run import run_scenario
from flare.bench.scenarios import SCENARIOS
from flare.bench.settings import BenchSettings
from flare.corefile import CoreReader, read_contract
from flare.engine.client import EngineOptions, ProcessEngineClient


async def measure(core: Path, into: Path, label: str, scenarios: list[str], settings: BenchSettings) -> None:
    """Run `scenarios` on a fresh engine process; a few requests before them wake the GPU's clocks."""
    engine = await ProcessEngineClient.start(core, EngineOptions())
    try:
        with CoreReader(core) as reader:
            vocab_size = read_contract(reader).frontend.vocab_size
        target = engine_target(engine, settings, label, vocab_size)
        for _ in range(3):
            await target.complete([("user", target.prompt(64))], 64)
        for scenario in scenarios:
            found = await run_scenario(scenario, target)
            result_file.add(into, label, scenario, found)
            print(scenario, f"{found.seconds:.1f} s", found.errors or "", flush=True)
        steps = Recorder()
        if target.step_log.record(steps):
            result_file.add_recorded(into, label, "steps", steps, 0.0)
        growth = (await engine.stats()).device_growth
        if growth is not None:
            recorder = Recorder()
            recorder.add("engine process", "calls that took something of the GPU", growth, "", "lower")
            result_file.add_recorded(into, label, "while serving", recorder, 0.0)
    finally:
        await engine.shutdown(drain=False)


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("core", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--label", required=True)
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS), required=True)
    parser.add_argument("--requests", type=int, default=5)
    parser.add_argument("--duration", type=float, default=30.0)
    parser.add_argument("--prompt-tokens", type=int, action="append")
    parser.add_argument("--running-streams", type=int, default=2)
    options = parser.parse_args()
    settings = BenchSettings(
        requests=options.requests,
        duration=options.duration,
        prompt_tokens=tuple(options.prompt_tokens or (512, 4096)),
        decode_prompt_tokens=512,
        output_tokens=256,
        prefix_tokens=4096,
        append_tokens=11,
        running_streams=options.running_streams,
    )
    asyncio.run(measure(options.core, options.into, options.label, options.scenario, settings))


if __name__ == "__main__":
    main()
