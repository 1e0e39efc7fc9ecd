"""What the engine adds to a decode step: step period minus program time, medians, at batch 1, 2 and 4.

`python benchmarks/step_overhead.py CORE`: starts the real engine process, decodes, and asks it for its own
medians over the last 512 steps. Needs no HTTP and no client, so it shows the engine alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

from flare.engine.client import EngineOptions, ProcessEngineClient
from flare.engine.messages import Sampling, Submit

TOKENS = 512  # the engine's window


async def stream(client: ProcessEngineClient, name: str) -> None:
    """Decode TOKENS tokens from a short prompt, reading every event."""
    request = Submit(
        request_id=name,
        prompt=tuple(range(100, 116)),
        sampling=Sampling(temperature=1.0, top_k=20, top_p=0.95, seed=7),
        max_tokens=TOKENS,
    )
    async for _ in await client.submit(request):
        pass


async def measure(core: Path) -> list[dict[str, float]]:
    """One row per batch size."""
    client = await ProcessEngineClient.start(core, EngineOptions())
    rows = []
    try:
        for batch in (1, 2, 4):
            await asyncio.gather(*(stream(client, f"{batch}.{lane}") for lane in range(batch)))
            stats = await client.stats()
            rows.append(
                {
                    "batch": batch,
                    "step_period_ms": round(stats.step_period_ms, 3),
                    "program_ms": round(stats.program_ms, 3),
                    "overhead_ms": round(stats.step_period_ms - stats.program_ms, 3),
                }
            )
    finally:
        await client.shutdown(drain=False)
    return rows


def main() -> None:
    """Print a row per batch size; with --output also write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("core", type=Path)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rows = asyncio.run(measure(options.core))
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    if options.output:
        options.output.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
