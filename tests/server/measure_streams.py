"""64 streams open at one server: the first byte, events a second, and the longest hold of the event loop; see
`scripts/stream-check`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from open_streams import REQUESTS, Streams, percentile, read_streams

from flare.bench.machine import describe_machine

CPU_BOUND_MS = 20.0
KINDS = ("paced", "unpaced", "engine")


@contextmanager
def served(*arguments: str) -> Iterator[tuple[tuple[str, int], subprocess.Popen[str]]]:
    """A watched server and its address."""
    command = [sys.executable, str(Path(__file__).parent / "stream_server.py"), *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield ("127.0.0.1", int(process.stdout.readline())), process
    finally:
        process.stdin.close()
        process.wait(30)


def figures_of(process: subprocess.Popen[str]) -> dict[str, float]:
    """What the server measured since it was asked last."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    figures: dict[str, float] = json.loads(process.stdout.readline())
    return figures


def milliseconds(seconds: float) -> float:
    return round(seconds * 1e3, 2)


def summary(seen: Streams, figures: dict[str, float]) -> dict[str, float]:
    """One run in numbers."""
    return {
        "events": seen.events,
        "events_per_s": round(seen.events / seen.lasted),
        "loop_cpu_us_per_event": round(figures["loop_cpu_s"] / seen.events * 1e6, 1),
        "first_byte_ms_p50": milliseconds(percentile(seen.first_bytes, 0.5)),
        "first_byte_ms_p99": milliseconds(percentile(seen.first_bytes, 0.99)),
        "first_event_ms_p99": milliseconds(percentile(seen.first_events, 0.99)),
        "pause_ms_p50": milliseconds(percentile(seen.pauses, 0.5)),
        "pause_ms_p99": milliseconds(percentile(seen.pauses, 0.99)),
        "longest_hold_cpu_ms": milliseconds(figures["hold_cpu_s"]),
        "longest_hold_wall_ms": milliseconds(figures["hold_wall_s"]),
    }


def measured(name: str, count: int, runs: int, *arguments: str, tools: bool = True) -> dict[str, Any]:
    """Runs of every protocol at a server that `stream_server` makes of `arguments`."""
    found: dict[str, Any] = {}
    with served(*arguments) as (address, process):
        for protocol, (path, body) in REQUESTS.items():
            asked = body if tools else {key: value for key, value in body.items() if key != "tools"}
            read_streams(address, path, asked, 2)  # everything is imported and compiled
            figures_of(process)
            found[protocol] = []
            for _ in range(runs):
                seen = read_streams(address, path, asked, count)
                assert seen.ended == count, f"{seen.ended} of {count} streams ended as they should"
                found[protocol].append(summary(seen, figures_of(process)))
                print(f"{name}, {protocol}: {found[protocol][-1]}", flush=True)
    return found


def tiny_core(folder: Path, count: int) -> Path:
    """A core of the example recipe's tiny model for `count` requests at once."""
    from prepared_cores import tiny_request

    from flare.contract import DType
    from flare.prepare import CapacityRequest
    from flare.prepare.progress import Progress
    from flare.prepare.session import PreparationSession
    from flare_recipe_smollm.recipe import RECIPE

    checkpoint = RECIPE.oracle.tiny_checkpoint(folder / "checkpoint")
    capacities = CapacityRequest(
        context=512, concurrency=count, prefill_chunk_size=64, page_tokens=16, snapshot_rows=2
    )
    session = PreparationSession(RECIPE, tiny_request(DType.F32, capacities), Progress())
    session.prepare(RECIPE.loader.open(checkpoint), folder / "tiny.core.safetensors")
    return folder / "tiny.core.safetensors"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=KINDS, metavar="|".join(KINDS))
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3, help="of each kind and protocol")
    parser.add_argument("--rate", type=float, default=30.0, help="of the scripted engine: tokens a second")
    parser.add_argument("--json", type=Path, help="where to write the results; kinds that are there stay")
    options = parser.parse_args()
    count, runs = options.streams, options.runs
    result: dict[str, Any] = {"streams": count, "rate": options.rate}
    if options.json is not None and options.json.exists():
        result = json.loads(options.json.read_text())
        assert (result["streams"], result["rate"]) == (count, options.rate), "measured otherwise before"
    for kind in options.kinds:
        result[kind] = {"date": time.strftime("%Y-%m-%d"), "machine": describe_machine()}
        if kind == "engine":
            with tempfile.TemporaryDirectory() as folder:
                core = tiny_core(Path(folder), count)
                found = measured(kind, count, runs, "engine", str(core), tools=False)
        else:
            found = measured(kind, count, runs, "scripted", str(options.rate if kind == "paced" else 0))
        result[kind] |= found
        longest = max(run["longest_hold_cpu_ms"] for each in found.values() for run in each)
        if options.json is not None:
            options.json.write_text(json.dumps(result, indent=1) + "\n")
        print(f"{kind}: the event loop was held for {longest} ms of CPU at most", flush=True)
        if longest > CPU_BOUND_MS:
            sys.exit(f"more than {CPU_BOUND_MS:g} ms")


if __name__ == "__main__":
    main()
