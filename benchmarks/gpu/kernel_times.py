"""Where the time of a graph goes: kernel_times.py CORE --into FILE --listing FILE

Loads a core as serving does and replays programs under CUPTI, which torch's profiler reads: the duration of
every kernel inside a graph, by operator and by layer, beside the time of the whole graph without a profiler.
A profiler lengthens the pauses between kernels, not the kernels. A kernel that begins while the one before it
runs waits inside for what it needs: its time counts from that one's end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import result_file
import torch
from kernel_names import Layers, OperatorNames, find_layers
from replay import _milliseconds, _started
from torch.profiler import ProfilerActivity, profile

from flare.bench.errors import BenchmarkError
from flare.bench.recorder import Recorder
from flare.corefile import CoreReader, read_contract
from flare.device import load_device

REPLAYS = 12


class Kernel(NamedTuple):
    """One kernel of a graph: medians over the replays, microseconds."""

    name: str
    microseconds: float  # from its begin, or from the end of all before it where that is later
    pause: float  # since all before it ended; below 0 where they overlap


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("core", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--label", required=True)
    parser.add_argument("--listing", type=Path, required=True)
    parser.add_argument("--lanes", type=int, action="append", help="decode programs", default=None)
    options = parser.parse_args()
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    with profile(activities=[ProfilerActivity.CUDA]):  # CUPTI is there before any graph is
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
    with CoreReader(options.core) as reader:
        device: Any = load_device(read_contract(reader), reader)
    operators = OperatorNames()
    listing: dict[str, Any] = json.loads(options.listing.read_text()) if options.listing.exists() else {}
    for lanes in options.lanes or (1, 4):
        recorder, began = Recorder(), time.perf_counter()
        name = f"decode.{lanes}"
        try:
            kernels, whole = timeline(device, name, lanes)
            layers = find_layers([kernel.name for kernel in kernels])
            record(recorder, name, kernels, layers, operators, whole)
            listing[name] = [
                [layers.of(place), operators.of(kernel.name), kernel.name, kernel.microseconds, kernel.pause]
                for place, kernel in enumerate(kernels)
            ]
            options.listing.write_text(_one_kernel_a_line(listing))
        except BenchmarkError as error:
            recorder.fail(error)
        seconds = time.perf_counter() - began
        result_file.add_recorded(options.into, options.label, "kernels", recorder, seconds)
    device.close()


def _one_kernel_a_line(listing: dict[str, list[list[Any]]]) -> str:
    programs = (
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(kernel) for kernel in kernels) + "\n]"
        for name, kernels in listing.items()
    )
    return "{\n" + ",\n".join(programs) + "\n}\n"


def timeline(device: Any, name: str, lanes: int) -> tuple[list[Kernel], float]:
    """Kernels of a program in their order, and the graph's time without a profiler in microseconds."""
    graph = device._programs[name][1]
    runner, requests = _started(device, lanes)
    runner.decode(requests, name)

    def launch() -> None:
        graph.launch(device._stream)

    whole = 1000 * statistics.median(_milliseconds(device, launch, 20) for _ in range(3))
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(REPLAYS):
            launch()
            device._driver.call("cuStreamSynchronize", device._stream)
    events = profiler.profiler.kineto_results.events()
    seen = [
        (event.start_ns(), event.duration_ns(), event.name())
        for event in events
        if "CUDA" in str(event.device_type()) and event.duration_ns() > 0
    ]
    return _medians(sorted(seen)), whole


def _medians(seen: Sequence[tuple[int, int, str]]) -> list[Kernel]:
    """Of replays one after the other, the first one left out. Raises: BenchmarkError when they differ."""
    length, rest = divmod(len(seen), REPLAYS)
    replays = [seen[begin : begin + length] for begin in range(0, len(seen), length or 1)]
    names = [[name for *_, name in replay] for replay in replays]
    if rest or not length or any(other != names[0] for other in names):
        counts = sorted({name: sum(name == other for *_, other in seen) for *_, name in seen}.items())
        raise BenchmarkError(f"{len(seen)} kernels in {REPLAYS} replays that are not alike: {counts[:40]}")
    spans = [_spans(replay) for replay in replays[1:]]
    return [
        Kernel(name, *(round(statistics.median(values), 2) for values in zip(*measured, strict=True)))
        for name, *measured in zip(names[0], *spans, strict=True)
    ]


def _spans(replay: Sequence[tuple[int, int, str]]) -> list[tuple[float, float]]:
    """Of kernels by begin and duration in nanoseconds, in the order of their begin: see `Kernel`."""
    found = []
    ended = replay[0][0]
    for begin, duration, _ in replay:
        end = begin + duration
        found.append((max(end - max(begin, ended), 0) / 1000, (begin - ended) / 1000))
        ended = max(ended, end)
    return found


def record(
    recorder: Recorder,
    program: str,
    kernels: Sequence[Kernel],
    layers: Layers,
    operators: OperatorNames,
    whole: float,
) -> None:
    """Counts, sums, and the time of every operator."""
    total = sum(kernel.microseconds for kernel in kernels)
    recorder.add(program, "kernels per graph", len(kernels), "")
    recorder.add(program, "layers", layers.count, "")
    recorder.add(program, "kernels per layer", layers.length, "")
    recorder.add(program, "graph", whole, "µs", "lower")
    recorder.add(program, "sum of kernels", total, "µs", "lower")
    recorder.add(program, "graph over sum of kernels", whole / total, "")
    parts: dict[str, list[float]] = defaultdict(list)
    for kernel, label in zip(kernels, _labels(kernels, layers, operators), strict=True):
        parts[label].append(kernel.microseconds)
    for operator, times in sorted(parts.items(), key=lambda part: -sum(part[1])):
        recorder.add(f"{program}: {operator}", "time", sum(times), "µs", "lower")
        recorder.add(f"{program}: {operator}", "kernels", len(times), "")
    by_layer = [
        sum(k.microseconds for place, k in enumerate(kernels) if layers.of(place) == layer)
        for layer in range(layers.count)
    ]
    if by_layer:
        recorder.add(program, "layer, median", statistics.median(by_layer), "µs", "lower")
        recorder.add(program, "layer, slowest", max(by_layer), "µs", "lower")
        recorder.add(program, "outside layers", total - sum(by_layer), "µs", "lower")


def _labels(kernels: Sequence[Kernel], layers: Layers, operators: OperatorNames) -> list[str]:
    """The operator of every kernel; one that a layer has several times is numbered within the layer."""
    named = [operators.of(kernel.name) for kernel in kernels]
    labels = list(named)
    for first in range(layers.start, layers.start + layers.count * layers.length, layers.length or 1):
        inside = named[first : first + layers.length]
        for place, name in enumerate(inside):
            if (count := inside.count(name)) > 1:
                labels[first + place] = f"{name} {inside[: place + 1].count(name)} of {count}"
    return labels


if __name__ == "__main__":
    main()
