"""A thousand programs of a core with changing inputs, in changing orders, and every bit that they report."""

from __future__ import annotations

import hashlib
import random
from collections import Counter, deque
from typing import Any, Protocol

import numpy as np
from tiny_steps import HOLD, drive

from flare.contract import BufferSpec, Initial, PreparedContract, Program, ProgramKind
from flare.device.base import Bytes, Device, Frame
from flare.device.direct import DirectRequest, DirectRunner
from flare.device.options import LoadOptions

COUNT = 1000
OPTIONS = LoadOptions(cache_tokens=1024, snapshot_rows=12)
"""As many pages and rows wherever programs run: their numbers and bytes are compared."""
Step = tuple[str, Bytes]
"""A program and its upload bytes."""


class Inspected(Device, Protocol):
    """A device whose buffers a test reads and writes."""

    def read(self, buffer: str) -> Bytes: ...
    def write(self, buffer: str, contents: Bytes) -> None: ...


class Recorder:
    """`device`, keeping what is submitted and a digest of every completion; one program at a time."""

    def __init__(self, device: Device) -> None:
        self._device, self.contract, self.tables = device, device.contract, device.tables
        self.steps: list[Step] = []
        self.digests: list[str] = []

    def submit(self, program: str, upload: Bytes) -> Frame:
        frame = self._device.submit(program, upload)
        frame.wait()
        self.steps.append((program, upload.copy()))
        self.digests.append(digest(frame.completion))
        return frame


def digest(data: Any) -> str:
    return hashlib.sha256(bytes(data)).hexdigest()[:16]


def state_buffers(contract: PreparedContract) -> list[BufferSpec]:
    """Everything that begins as zeros and outlives programs: pages, rows with the saved hidden vectors,
    state of requests."""
    return [buffer for buffer in contract.buffers if buffer.initial is Initial.ZERO]


def state(device: Inspected) -> dict[str, str]:
    return {buffer.name: digest(device.read(buffer.name)) for buffer in state_buffers(device.contract)}


def clear(device: Inspected) -> None:
    """As after loading, with poison where contents are undefined."""
    for buffer in device.contract.buffers:
        if buffer.initial is not Initial.BYTES:
            value = 0 if buffer.initial is Initial.ZERO else 0xA5
            device.write(buffer.name, np.full(buffer.nbytes, value, np.uint8))


def replay(device: Inspected) -> tuple[dict[str, Any], list[Step]]:
    """Every program by hand, then requests at random until `COUNT` programs ran."""
    clear(device)
    recorder = Recorder(device)
    drive(recorder)
    _Requests(recorder).run()
    programs = Counter(name for name, _ in recorder.steps)
    found = {"completions": recorder.digests, "state": state(device), "programs": dict(programs)}
    return found, recorder.steps


def replay_queued(device: Inspected, steps: list[Step]) -> dict[str, Any]:
    """The same steps without waiting for each: as many in flight as the device takes."""
    clear(device)
    flying: deque[Frame] = deque()
    digests: list[str] = []

    def collect() -> None:
        frame = flying.popleft()
        frame.wait()
        digests.append(digest(frame.completion))

    for name, upload in steps:
        if len(flying) == device.max_frames:
            collect()
        flying.append(device.submit(name, upload))
    while flying:
        collect()
    return {"completions": digests, "state": state(device)}


class _Requests:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._runner = DirectRunner(recorder)
        self._numbers = random.Random(11)
        self._live: dict[int, DirectRequest] = {}
        contract = recorder.contract
        self._slots = range(contract.capacities.concurrency)
        self._prefill = contract.of_kind(ProgramKind.PREFILL)
        self._decode = contract.of_kind(ProgramKind.DECODE)

    def run(self) -> None:
        while len(self._recorder.steps) < COUNT:
            slot = self._numbers.choice(self._slots)
            if slot not in self._live or self._numbers.random() < 0.05:
                self._begin(slot)
            else:
                self._step(self._numbers.choice(self._decode))

    def _begin(self, slot: int) -> None:
        numbers, contract = self._numbers, self._recorder.contract
        self._runner._next_page = 1 + slot * contract.pages_per_request
        length = numbers.randint(1, contract.capacities.context // 2)
        prompt = [numbers.randrange(contract.frontend.vocab_size) for _ in range(length)]
        request = self._runner.start(slot, prompt, seed=numbers.getrandbits(32), logprobs=20, extra=HOLD)
        while prompt:
            program: Program = numbers.choice(self._prefill)
            chunk = prompt[: numbers.randint(1, program.tokens)]
            prompt = prompt[len(chunk) :]
            self._runner.prefill(request, chunk, sample=not prompt, name=program.name)
        self._live[slot] = request

    def _step(self, program: Program) -> None:
        room = self._recorder.contract.capacities.context - 1
        self._live = {slot: r for slot, r in self._live.items() if r.consumed < room}
        lanes: list[DirectRequest | None] = [*self._live.values()]
        self._numbers.shuffle(lanes)
        lanes = lanes[: self._numbers.randint(1, program.lanes)]
        lanes += [None] * (program.lanes - len(lanes))
        self._numbers.shuffle(lanes)
        if any(lanes):
            self._runner.decode(lanes, program.name)
