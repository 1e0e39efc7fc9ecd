"""Replay of programs, with the CPU's device in the place of a GPU's: what is submitted, how it is counted."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import replay

from flare.bench.errors import BenchmarkError
from flare.bench.recorder import Recorder
from flare.bench.result import Figure
from flare.corefile import CoreReader, read_contract
from flare.device import LoadOptions, load_device


class AsGpu:
    """A device of the CPU with what `replay` takes from a GPU's: graphs run what was submitted last."""

    def __init__(self, device: Any) -> None:
        self.device, self.contract, self.max_frames = device, device.contract, device.max_frames
        self.load_ms = {"contents": 12.0}
        self.launched: list[str] = []
        self.copies: list[int] = []
        self._driver, self._stream = self, None
        self._programs = {p.name: (p, Graph(self, p.name)) for p in self.contract.programs}
        self._handles = itertools.count(1)
        self._recorded: dict[int, float] = {}
        self._last: np.ndarray[Any, Any] = np.zeros(0, np.uint8)

    def submit(self, name: str, upload: np.ndarray[Any, Any]) -> Any:
        self._last = upload
        return self.device.submit(name, upload)

    def launch(self, name: str) -> None:
        self.launched.append(name)
        self.device.submit(name, self._last).wait()

    def call(self, operation: str, *arguments: Any) -> Any:
        match operation:
            case "cuEventCreate" | "cuMemAlloc":
                return next(self._handles)
            case "cuEventRecord":
                self._recorded[arguments[0]] = time.perf_counter()
            case "cuEventElapsedTime":
                return 1000 * (self._recorded[arguments[1]] - self._recorded[arguments[0]])
            case "cuMemcpyDtoDAsync":
                self.copies.append(arguments[2])
                time.sleep(0.0002)
        return None


class Graph:
    def __init__(self, device: AsGpu, name: str) -> None:
        self._device, self._name = device, name

    def launch(self, stream: Any) -> None:
        self._device.launch(self._name)


@pytest.fixture
def device(tiny_core: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AsGpu]:
    monkeypatch.setattr(replay, "PROMPT", 20)
    monkeypatch.setattr(replay, "STEPS", 12)
    with CoreReader(tiny_core) as reader:
        loaded = load_device(read_contract(reader), reader, LoadOptions(threads=1))
    monkeypatch.setattr(replay, "_prompt", lambda tokens: [3 + n % 200 for n in range(tokens)])
    yield AsGpu(loaded)
    loaded.close()


def figures(recorder: Recorder) -> dict[tuple[str, str], Figure]:
    return {(figure.case, figure.measure): figure for figure in recorder.result(0.0).figures}


def test_decode_runs_with_and_without_the_copies(device: AsGpu) -> None:
    recorder = Recorder()
    program = next(p for p in device.contract.programs if p.name == "decode.2")
    replay.decode(device, program, 1e9, recorder, 2)
    found = figures(recorder)
    # The last of twelve was submitted to have the upload in place.
    assert device.launched == ["decode.2"] * 11 * 2
    step = found["2 streams", "graphs back to back"]
    assert len(step.values) == 2
    assert found["2 streams", "with uploads and completions"].median >= 0.5 * step.median
    floor = found["2 streams", "time to read them"].median
    assert floor == pytest.approx(replay.step_bytes(device.contract, 2, 26) / 1e6)
    over = found["2 streams", "graphs back to back over reading"]
    assert over.values == [value / floor for value in step.values]


def test_prefill_takes_every_chunk(device: AsGpu) -> None:
    recorder = Recorder()
    replay.prefill(device, 100, recorder, 1)
    (case,) = {case for case, _ in figures(recorder)}
    assert case == "100 tokens in chunks of 64"
    rate = figures(recorder)[case, "prefill"].median
    assert rate == pytest.approx(100 / figures(recorder)[case, "on the device"].median * 1000)


def test_bandwidth_counts_reads_and_writes(device: AsGpu) -> None:
    found = replay.copy_bandwidth(device, 1 << 20)
    assert set(device.copies) == {1 << 20}
    assert 0 < found <= 2 * (1 << 20) / 0.0002


def test_kernels_are_medians_of_replays_that_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = pytest.importorskip("kernels")
    names = ["embed", *["norm", "gemm", "attend"] * 3, "draw"]
    clock = itertools.count(step=10_000)
    seen = [
        (next(clock), 1000 * (replayed + 1), name) for replayed in range(kernels.REPLAYS) for name in names
    ]
    medians = kernels._medians(seen)
    assert [kernel.name for kernel in medians] == names
    assert {kernel.microseconds for kernel in medians} == {1 + kernels.REPLAYS / 2}
    assert medians[1].pause == 10 - (1 + kernels.REPLAYS / 2)
    with pytest.raises(BenchmarkError, match="not alike"):
        kernels._medians([*seen[:-1], (seen[-1][0], 5, "another")])
    with pytest.raises(BenchmarkError, match="0 kernels"):
        kernels._medians([])

    recorder = Recorder()
    layers = kernels.find_layers(names)
    named = type("Names", (), {"of": staticmethod(lambda name: name)})()
    kernels.record(recorder, "decode.1", medians, layers, named, 100.0)
    found = figures(recorder)
    assert found["decode.1", "kernels per graph"].values == [11]
    assert (layers.length, layers.count) == (3, 3)
    assert found["decode.1: gemm", "time"].median == pytest.approx(3 * (1 + kernels.REPLAYS / 2))
    assert found["decode.1: gemm", "kernels"].values == [3]
    assert found["decode.1", "outside layers"].median == pytest.approx(2 * (1 + kernels.REPLAYS / 2))
    assert found["decode.1", "layer, median"].median == pytest.approx(3 * (1 + kernels.REPLAYS / 2))
