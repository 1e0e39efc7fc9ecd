"""Measures Flare on this machine's GPU: bench.py [PLAN ...] [--cores DIR] [--results DIR]

A plan is MODEL:PART,PART,... and is carried out in order; without one everything is measured. Every part is
a process with a time limit of its own and writes what it found at once, so that a failure loses nothing else.
Parts: prepare, start, decode, first, hit, beside, long, replay, prefill, kernels, http. Values of parts that
are repeated are added to those that are there.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import result_file
from models import LONG_CONTEXT, MODELS, Model

from flare.bench.errors import BenchmarkError
from flare.bench.machine import describe_machine
from flare.bench.recorder import Recorder
from flare.bench.result import read_result

HERE = Path(__file__).resolve().parent
RECIPE = "smollm2-135m"  # whose model code the random checkpoints run through
LONG_PROMPT = 65_536
DEFAULT = (
    "135m:prepare,start,decode,first,hit,replay,kernels,http",
    "3b:prepare,start,decode,first,hit,beside,replay,prefill,kernels,http",
    "3b-long:prepare,decode,first,hit,beside,long,prefill",
    "3b-long-512:prepare,decode,first,hit,beside,long,prefill",
)


@dataclass(frozen=True)
class Place:
    """Where one model's core and figures are."""

    model: Model
    core: Path
    into: Path

    @property
    def common(self) -> list[str]:
        """Arguments that every part takes."""
        return [str(self.core), "--into", str(self.into), "--label", f"Flare, {self.model.label}"]


def command(part: str, place: Place, repeat: int) -> tuple[list[str], float]:
    """The command of a part that repeats its cases so often, and the most seconds it may take. Raises:
    KeyError for an unknown part."""
    long = place.model.context >= LONG_CONTEXT
    prompts = ["--prompt-tokens", "512", "--prompt-tokens", "4096"]
    beside = ["--prompt-tokens", str(LONG_PROMPT)]
    prefills = ["--prefill", "4096", *(["--prefill", str(LONG_PROMPT)] if long else [])]
    listing = place.into.with_name(f"{place.into.stem}-kernels.json")
    serve = [sys.executable, str(HERE / "serve.py"), *place.common]
    requests = ["--requests", str(repeat)]
    replay = [sys.executable, str(HERE / "replay.py"), *place.common, "--repeat", str(repeat)]
    kernels = [sys.executable, str(HERE / "kernel_times.py"), *place.common, "--listing", str(listing)]
    startup = [sys.executable, str(HERE / "startup.py"), *place.common, "--repeat", str(repeat)]
    commands = {
        "start": (startup, 30.0 + 25 * repeat),
        "decode": ([*serve, "--scenario", "decode", *requests], 60.0),
        "first": ([*serve, "--scenario", "cold", *prompts, "--requests", str(2 * repeat)], 60.0),
        "hit": ([*serve, "--scenario", "extend", "--scenario", "repeat", *requests], 60.0),
        "beside": ([*serve, "--scenario", "mixed", "--prompt-tokens", "4096", *requests], 60.0),
        "long": ([*serve, "--scenario", "cold", "--scenario", "mixed", *beside, *requests], 120.0),
        "replay": (replay, 60.0),
        "prefill": ([*replay, "--only-prefill", *prefills], 90.0),
        "kernels": (kernels, 60.0),
        "http": ([sys.executable, str(HERE / "over_http.py"), *place.common, *requests], 120.0),
    }
    return commands[part]


def prepare(place: Place) -> tuple[list[str], float]:
    """The command that makes the core."""
    model = place.model
    return [
        *(sys.executable, "-m", "flare", "prepare", RECIPE, "--device", "cuda"),
        *("--checkpoint", model.checkpoint, "--context", str(model.context)),
        *("--prefill-chunk-size", str(model.prefill_chunk_size), "--output", str(place.core)),
    ], 240.0


def run(part: str, place: Place, repeat: int) -> bool:
    """Carry out one part; a failure is written into the result file."""
    words, limit = prepare(place) if part == "prepare" else command(part, place, repeat)
    print(f"== {place.model.name} {part}: {' '.join(words)}", flush=True)
    began = time.perf_counter()
    process = subprocess.Popen(words, start_new_session=True)
    try:
        status: int | None = process.wait(limit)
    except subprocess.TimeoutExpired:
        status = None
    finally:
        if process.poll() is None:  # servers that a part started are in its group
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    seconds = time.perf_counter() - began
    print(f"== {place.model.name} {part}: status {status} after {seconds:.1f} s", flush=True)
    recorder = Recorder()
    if status == 0 and part == "prepare":
        recorder.add("process", "preparation", seconds, "s", "lower")
        recorder.add("process", "core", place.core.stat().st_size / 2**30, "GiB")
    elif status != 0:
        how = "ran out of time" if status is None else f"ended with status {status}"
        recorder.fail(BenchmarkError(f"part {part} {how}"))
    else:
        return True
    result_file.add_recorded(place.into, f"Flare, {place.model.label}", part, recorder, seconds)
    return status == 0


def main() -> int:
    """Carry out the plans; 1 when a part failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", nargs="*", default=list(DEFAULT))
    parser.add_argument("--cores", type=Path, default=Path("/tmp/flare-cores"))
    parser.add_argument("--results", type=Path, default=HERE.parent / "results")
    parser.add_argument("--repeat", type=int, default=5, help="of every case")
    options = parser.parse_args()
    gpu = _gpu_name()
    options.cores.mkdir(parents=True, exist_ok=True)
    options.results.mkdir(parents=True, exist_ok=True)
    failed = []
    for plan in options.plan:
        name, _, parts = plan.partition(":")
        place = Place(
            MODELS[name],
            options.cores / f"{name}.core.safetensors",
            options.results / f"flare-{gpu}-{name}.json",
        )
        for part in filter(None, parts.split(",")):
            if not run(part, place, options.repeat):
                failed.append(f"{name}:{part}")
    print("failed:", ", ".join(failed) or "nothing", flush=True)
    for path in sorted(options.results.glob(f"flare-{gpu}-*.json")):
        if not path.stem.endswith("-kernels"):
            result = read_result(path)
            print(path, {name: part.errors for name, part in result.scenarios.items() if part.errors})
    return 1 if failed else 0


def _gpu_name() -> str:
    """Of this machine's GPU, for file names: `h200`. Raises: BenchmarkError without one."""
    gpus = describe_machine().get("gpus")
    if not gpus:
        raise BenchmarkError("nvidia-smi shows no GPU here")
    name = gpus[0].split(",")[0].removeprefix("NVIDIA ")
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


if __name__ == "__main__":
    sys.exit(main())
