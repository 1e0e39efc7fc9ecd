"""The sim device: operator lists over numpy, run asynchronously and unforgivingly.

It is for tests of everything above the device. Programs run on a worker thread in submission order;
upload bytes are read when the program runs and not when it is submitted; completions can be delayed;
storage that is undefined or was freed holds poison; faults are injected on request.
"""

from __future__ import annotations

import builtins
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from flare.contract import (
    CompletionField,
    OperatorList,
    PreparedContract,
    Program,
    Record,
    Region,
)
from flare.device.blocks import block_view
from flare.device.sim_memory import SimMemory
from flare.device.sim_program import SimProgram
from flare.device.tables import host_tables
from flare.errors import CoreError, DeviceError

Bytes = NDArray[np.uint8]


class CoreImage(Protocol):
    """What the device reads of a core: a file reader, or a model in memory."""

    @property
    def contract_json(self) -> bytes | str: ...

    def bytes(self, name: str) -> bytes | memoryview | Bytes: ...


class Payloads(Protocol):
    """Where programs and initial contents are read from by tensor name."""

    def bytes(self, name: str) -> bytes | memoryview | Bytes: ...


@dataclass(frozen=True, slots=True)
class StoredImage:
    """A contract with the open file that holds its tensors."""

    contract_json: bytes | str
    payloads: Payloads

    def bytes(self, name: str) -> builtins.bytes | memoryview | Bytes:
        """Stored bytes of a tensor."""
        return self.payloads.bytes(name)


@dataclass(frozen=True, slots=True)
class SimOptions:
    """Behaviour to simulate. Frame numbers count submissions from 1.

    `delay_s(frame, program)`: seconds a program takes besides its own work. `fail_at`: the frame whose
    program fails. `corrupt`: by frame, values written over fields of lane 0's completion record.
    """

    max_frames: int = 2
    delay_s: Callable[[int, str], float] | None = None
    fail_at: int | None = None
    corrupt: Mapping[int, Mapping[Record, int]] = field(default_factory=dict)


class SimFrame:
    """See `flare.device.base.Frame`."""

    def __init__(self, number: int, program: str, upload: Bytes) -> None:
        self.number = number
        self.program = program
        self.upload = upload
        self._done = threading.Event()
        self._error: DeviceError | None = None
        self._completion: Bytes | None = None
        self._elapsed_us = 0.0
        self.gap_us = 0.0

    def finish(
        self, completion: Bytes | None, elapsed_us: float, gap_us: float, error: DeviceError | None
    ) -> None:
        """Called once by the worker."""
        self._completion, self._elapsed_us, self._error = completion, elapsed_us, error
        self.gap_us = gap_us
        self._done.set()

    def done(self) -> bool:
        """Whether the completion is valid. Raises DeviceError when the program failed."""
        return self.wait(0)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until done or `timeout` seconds passed."""
        if not self._done.wait(timeout):
            return False
        if self._error is not None:
            raise self._error
        return True

    @property
    def completion(self) -> Bytes:
        """u8[program.completion_bytes]"""
        assert self._completion is not None, "read after done() only"
        return self._completion

    @property
    def elapsed_us(self) -> float:
        """Time of the program, simulated delay included."""
        return self._elapsed_us


class SimDevice:
    """See `flare.device.base.Device`. Raises CoreError when the image cannot run here."""

    growth: int | None = None

    def __init__(self, image: CoreImage, options: SimOptions | None = None) -> None:
        self.contract = PreparedContract.model_validate_json(image.contract_json)
        if self.contract.identity.device != "sim":
            raise CoreError(
                f"core is for device {self.contract.identity.device!r}, not 'sim'", field="identity.device"
            )
        self._options = options or SimOptions()
        self.load_spans: dict[str, tuple[float, float]] = {}
        self.max_frames = self._options.max_frames
        self._memory = SimMemory(self.contract.buffers, image.bytes)
        self.ledger = self._memory.ledger()
        self.tables = host_tables(self.contract, image.bytes)
        self.tokenizer = np.frombuffer(image.bytes(self.contract.frontend.tokenizer_asset), np.uint8)
        self._programs = {program.name: self._load(program, image) for program in self.contract.programs}
        self._upload = self._io(Region.UPLOAD)
        self._completion = self._io(Region.COMPLETION)
        self._submitted = 0
        self._outstanding: list[SimFrame] = []
        self._queue: queue.SimpleQueue[SimFrame | None] = queue.SimpleQueue()
        self._worker = threading.Thread(target=self._work, name="sim-device", daemon=True)
        self._worker.start()
        self._closed = False

    def _load(self, program: Program, image: CoreImage) -> tuple[Program, SimProgram]:
        payload = program.payloads[0]
        if payload.format != "oplist":
            raise CoreError(
                f"program {program.name}: payload format {payload.format!r} on a sim device",
                field=f"programs.{program.name}.payloads",
            )
        listing = OperatorList.model_validate_json(bytes(image.bytes(payload.tensor)))
        return program, SimProgram(program.name, listing, self._memory)

    def _io(self, region: Region) -> Bytes:
        names = [b.name for b in self.contract.buffers if b.region is region and b.offset == 0]
        if len(names) != 1:
            raise CoreError(f"region {region.value} has {len(names)} first buffers", field="buffers")
        return self._memory.storage(names[0])

    def submit(self, program: str, upload: Bytes) -> SimFrame:
        """See `flare.device.base.Device`. Submitting beyond `max_frames` is a bug of the caller."""
        self._outstanding = [frame for frame in self._outstanding if not frame._done.is_set()]
        assert len(self._outstanding) < self.max_frames, "too many frames in flight"
        assert len(upload) == self._programs[program][0].upload_bytes, "upload of another size"
        self._submitted += 1
        frame = SimFrame(self._submitted, program, upload)
        self._outstanding.append(frame)
        self._queue.put(frame)
        return frame

    def read_blocks(self, region: Region, blocks: Sequence[int]) -> Bytes:
        """See `flare.device.base.Device`."""
        return block_view(self.contract, region, self._memory.storage)[list(blocks)]

    def write_blocks(self, region: Region, blocks: Sequence[int], data: Bytes) -> None:
        """See `flare.device.base.Device`."""
        block_view(self.contract, region, self._memory.storage)[list(blocks)] = data

    def poison(self, region: Region, block_bytes: int, blocks: Sequence[int]) -> None:
        """Overwrite freed blocks (pages or rows) of a region: a use after free changes every output."""
        self._memory.poison(region, block_bytes, blocks)

    def peek(self, buffer: str) -> Bytes:
        """The bytes of a buffer, for assertions while nothing runs."""
        return self._memory.storage(buffer)

    def close(self) -> None:
        """Run what was submitted, then stop the worker."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._worker.join()

    def _work(self) -> None:
        ended = 0.0
        while (frame := self._queue.get()) is not None:
            begin = time.perf_counter()
            gap = begin - (ended or begin)
            completion, error = None, None
            try:
                completion = self._run(frame)
            except Exception as failure:
                error = DeviceError(f"program {frame.program} failed: {failure}")
                error.__cause__ = failure
            ended = time.perf_counter()
            frame.finish(completion, (ended - begin) * 1e6, gap * 1e6, error)

    def _run(self, frame: SimFrame) -> Bytes:
        program, code = self._programs[frame.program]
        if self._options.delay_s is not None:
            time.sleep(self._options.delay_s(frame.number, frame.program))
        if frame.number == self._options.fail_at:
            raise RuntimeError("injected fault")
        self._upload[: len(frame.upload)] = frame.upload
        code.run()
        completion = self._completion[: program.completion_bytes].copy()
        for record_field, value in self._options.corrupt.get(frame.number, {}).items():
            (binding,) = (b for b in program.completion if b.field is CompletionField.RECORDS)
            completion[binding.view.offset :].view(np.int32)[record_field] = value
        return completion
