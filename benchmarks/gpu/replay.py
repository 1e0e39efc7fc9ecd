"""The device alone: replay.py CORE --into FILE

What graphs and memory allow: decode graphs back to back, alone and with the copies and events of serving;
prefill chunk after chunk; and the bandwidth of a copy on this GPU, of which the time to read a step's bytes
follows. Sampling and lengths are those of the decode scenario. No torch.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import result_file

from flare.bench.recorder import Recorder
from flare.contract import PreparedContract, Program, ProgramKind, Region, ValueSource
from flare.corefile import CoreReader, read_contract
from flare.device import load_device
from flare.device.direct import DirectRequest, DirectRunner

PROMPT, STEPS = 512, 256
SAMPLING = {ValueSource.TOP_K: [20], ValueSource.TOP_P: [0.95]}


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("core", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--label", required=True)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--prefill", type=int, action="append", help="prompt lengths")
    parser.add_argument("--only-prefill", action="store_true")
    options = parser.parse_args()
    with CoreReader(options.core) as reader:
        device: Any = load_device(read_contract(reader), reader)
    assert "torch" not in sys.modules
    recorder = Recorder()
    began = time.perf_counter()

    def keep() -> None:
        nonlocal recorder, began
        now = time.perf_counter()
        result_file.add_recorded(options.into, options.label, "replay", recorder, now - began)
        recorder, began = Recorder(), now

    try:
        if not options.only_prefill:
            for part, milliseconds in device.load_ms.items():
                recorder.add("load", part, milliseconds, "ms", "lower")
            bandwidth = max(copy_bandwidth(device, nbytes) for nbytes in (1 << 29, 1 << 30, 1 << 31))
            recorder.add("machine", "copy bandwidth", bandwidth / 1e9, "GB/s", "higher")
            keep()
            for program in device.contract.of_kind(ProgramKind.DECODE):
                if program.lanes <= device.contract.capacities.concurrency:
                    decode(device, program, bandwidth, recorder, options.repeat)
                    keep()
        for tokens in options.prefill or ():
            prefill(device, tokens, recorder, options.repeat)
            keep()
    finally:
        device.close()


def copy_bandwidth(device: Any, nbytes: int) -> float:
    """Bytes read and written per second by a copy of `nbytes` on the GPU."""
    call = device._driver.call
    source, target = (call("cuMemAlloc", nbytes) for _ in range(2))
    try:

        def copy() -> None:
            call("cuMemcpyDtoDAsync", target, source, nbytes, device._stream)

        copy()
        return 2 * nbytes / (_milliseconds(device, copy, 20) / 1000)
    finally:
        for memory in (source, target):
            call("cuMemFree", memory)


def decode(device: Any, program: Program, bandwidth: float, recorder: Recorder, repeat: int) -> None:
    """One decode program: back to back, and with the copies of serving."""
    case = f"{program.lanes} stream{'' if program.lanes == 1 else 's'}"
    graph = device._programs[program.name][1]
    nbytes = step_bytes(device.contract, program.lanes, PROMPT + STEPS / 2)
    recorder.add(case, "bytes read", nbytes / 1e9, "GB")
    floor = 1000 * nbytes / bandwidth
    recorder.add(case, "time to read them", floor, "ms", "lower")
    for _ in range(repeat):
        runner, requests = _started(device, program.lanes)
        runner.decode(requests, program.name)  # the upload is there from now on
        step = _milliseconds(device, lambda: graph.launch(device._stream), STEPS - 1)
        recorder.add(case, "graphs back to back", step, "ms", "lower")
        recorder.add(case, "graphs back to back over reading", step / floor, "", "lower")
        runner, requests = _started(device, program.lanes)
        served, alone = _served(runner, requests, program)
        recorder.add(case, "with uploads and completions", served, "ms", "lower")
        recorder.add(case, "graph by its events", alone, "ms", "lower")


def step_bytes(contract: PreparedContract, lanes: int, context: float) -> float:
    """Bytes that a decode step has to read: all weights once (a tied embedding is the vocabulary head), and
    the pages' entries of `context` tokens per lane."""
    weights = sum(b.nbytes for b in contract.buffers if b.region is Region.WEIGHTS and b.rank == 0)
    return weights + lanes * context * contract.page.nbytes / contract.page.page_tokens


def prefill(device: Any, tokens: int, recorder: Recorder, repeat: int) -> None:
    """A prompt of `tokens`, chunk by chunk, with the largest chunk and with 512: time on the device."""
    programs = {p.tokens: p.name for p in device.contract.of_kind(ProgramKind.PREFILL)}
    for chunk in sorted({512, max(programs)} & set(programs)):
        for _ in range(min(repeat, 3)):
            runner = DirectRunner(device)
            prompt = _prompt(tokens)
            request = runner.start(0, prompt, temperature=1.0, seed=1, extra=SAMPLING)
            total = 0.0
            for begin in range(0, tokens, chunk):
                part = prompt[begin : begin + chunk]
                runner.prefill(request, part, sample=begin + chunk >= tokens, name=programs[chunk])
                total += runner.elapsed_us
            case = f"{tokens} tokens in chunks of {chunk}"
            recorder.add(case, "on the device", total / 1000, "ms", "lower")
            recorder.add(case, "prefill", tokens / total * 1e6, "tok/s", "higher")


def _prompt(tokens: int) -> list[int]:
    return [random.randrange(10, 40000) for _ in range(tokens)]


def _started(device: Any, lanes: int) -> tuple[DirectRunner, list[DirectRequest | None]]:
    """`lanes` requests whose prompt is consumed and whose first token is drawn."""
    runner = DirectRunner(device)
    requests: list[DirectRequest | None] = []
    for slot in range(lanes):
        prompt = _prompt(PROMPT)
        request = runner.start(slot, prompt, temperature=1.0, seed=slot, extra=SAMPLING)
        runner.prefill_all(request, prompt)
        requests.append(request)
    return runner, requests


def _served(
    runner: DirectRunner, requests: list[DirectRequest | None], program: Program
) -> tuple[float, float]:
    """Milliseconds per step with as many frames in flight as serving has, and of the graph in it."""
    bound = {binding.source for binding in program.bindings}
    values = {source: v for source, v in runner.decode_values(requests).items() if source in bound}
    upload = runner.staging(program, values)
    flying: deque[Any] = deque()
    alone: list[float] = []
    began = 0.0
    for step in range(STEPS):
        if len(flying) == runner.device.max_frames:
            frame = flying.popleft()
            frame.wait()
            alone.append(frame.elapsed_us / 1000)
        if step == runner.device.max_frames:
            began = time.perf_counter()
        flying.append(runner.device.submit(program.name, upload))
    while flying:
        flying.popleft().wait()
    steps = STEPS - runner.device.max_frames
    return 1000 * (time.perf_counter() - began) / steps, statistics.median(alone)


def _milliseconds(device: Any, work: Any, count: int) -> float:
    """Milliseconds of each of `count` times `work` enqueued without a pause, by two events."""
    call = device._driver.call
    began, ended = (call("cuEventCreate", 0) for _ in range(2))
    call("cuEventRecord", began, device._stream)
    for _ in range(count):
        work()
    call("cuEventRecord", ended, device._stream)
    call("cuEventSynchronize", ended)
    elapsed = float(call("cuEventElapsedTime", began, ended))
    for event in (began, ended):
        call("cuEventDestroy", event)
    return elapsed / count


if __name__ == "__main__":
    main()
