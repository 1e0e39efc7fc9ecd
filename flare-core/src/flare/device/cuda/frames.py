"""Programs in flight: pinned upload and completion bytes, and the events that bound a program's time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from flare.device.base import Bytes
from flare.device.cuda.driver import CudaError, Driver
from flare.device.cuda.graph_load import LoadedGraph
from flare.device.cuda.staging import PinnedBytes
from flare.errors import DeviceError

_TIMING, _BLOCKING_SYNC, _NO_TIMING = 0, 1, 2  # CUevent_flags
_NOT_READY = 600
_POLL_S = 50e-6  # between looks at an event when a wait has a timeout


class FrameSlot:
    """What one program in flight needs on the host; used by one frame at a time."""

    def __init__(self, driver: Driver, upload_bytes: int, completion_bytes: int) -> None:
        self._driver = driver
        self.upload = PinnedBytes(driver, upload_bytes)
        self.completion = PinnedBytes(driver, completion_bytes)
        self.done = driver.call("cuEventCreate", _NO_TIMING | _BLOCKING_SYNC)

    @property
    def nbytes(self) -> int:
        """Pinned bytes held."""
        return len(self.upload.array) + len(self.completion.array)

    def close(self) -> None:
        """Free everything; no program may be in flight."""
        self._driver.probe("cuEventDestroy", self.done)
        self.upload.close()
        self.completion.close()


class ProgramSpan:
    """The events at the begin and the end of one program on the device."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.began, self.ended = (driver.call("cuEventCreate", _TIMING) for _ in range(2))

    def close(self) -> None:
        """Give the events back."""
        for event in (self.began, self.ended):
            self._driver.probe("cuEventDestroy", event)


class ProgramSpans:
    """Spans for programs that follow one another, of which `frames` can be in flight: one more than those,
    because the pause before a program begins with the end of the one before."""

    def __init__(self, driver: Driver, frames: int) -> None:
        self._spans = [ProgramSpan(driver) for _ in range(frames + 1)]
        self._count = 0

    def next(self) -> tuple[ProgramSpan, ProgramSpan | None]:
        """The span of the next program, and that of the program before it."""
        size = len(self._spans)
        before = self._spans[(self._count - 1) % size] if self._count else None
        self._count += 1
        return self._spans[(self._count - 1) % size], before

    def close(self) -> None:
        """Give everything back; no program may be in flight."""
        for span in self._spans:
            span.close()


class CudaFrame:
    """See `flare.device.base.Frame`. Keeps a copy of the completion once done, and gives its slot back."""

    def __init__(
        self,
        driver: Driver,
        slot: FrameSlot,
        spans: tuple[ProgramSpan, ProgramSpan | None],
        program: str,
        completion_bytes: int,
    ) -> None:
        self._driver, self._program = driver, program
        self._slot: FrameSlot | None = slot
        self._span, self._before = spans
        self._completion = np.empty(completion_bytes, np.uint8)
        self._elapsed_us = self._gap_us = 0.0
        self._error: DeviceError | None = None

    def enqueue(self, graph: LoadedGraph, stream: Any, upload: Bytes, addresses: tuple[int, int]) -> None:
        """Copy `upload` to the first address, run, copy the completion from the second."""
        slot, call = self._slot, self._driver.call
        assert slot is not None
        slot.upload.array[: len(upload)] = upload
        if len(upload):
            call("cuMemcpyHtoDAsync", addresses[0], slot.upload.address, len(upload), stream)
        call("cuEventRecord", self._span.began, stream)
        graph.launch(stream)
        call("cuEventRecord", self._span.ended, stream)
        if len(self._completion):
            size = len(self._completion)
            call("cuMemcpyDtoHAsync", slot.completion.address, addresses[1], size, stream)
        call("cuEventRecord", slot.done, stream)

    @property
    def slot(self) -> FrameSlot | None:
        """The slot in use; None once the frame is done."""
        return self._slot

    def done(self) -> bool:
        """See `flare.device.base.Frame`."""
        if self._error is not None:
            raise self._error
        if self._slot is not None:
            status, _ = self._driver.probe("cuEventQuery", self._slot.done)
            if status == _NOT_READY:
                return False
            self._settle(self._slot)
        return True

    def wait(self, timeout: float | None = None) -> bool:
        """See `flare.device.base.Frame`. Without `timeout` the driver wakes this thread."""
        if self._slot is not None and timeout is None:
            self._driver.probe("cuEventSynchronize", self._slot.done)  # `done` reports what it found
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.done():
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True

    @property
    def completion(self) -> Bytes:
        """u8[program.completion_bytes]"""
        assert self._slot is None, "read after done() only"
        return self._completion

    @property
    def elapsed_us(self) -> float:
        """Time of the graph between two events, copies excluded."""
        assert self._slot is None, "read after done() only"
        return self._elapsed_us

    @property
    def gap_us(self) -> float:
        """Time between the program before and this one: copies, and nothing to do."""
        assert self._slot is None, "read after done() only"
        return self._gap_us

    def _settle(self, slot: FrameSlot) -> None:
        try:
            self._driver.call("cuEventSynchronize", slot.done)
            elapsed = self._driver.call("cuEventElapsedTime", self._span.began, self._span.ended)
            self._elapsed_us = 1000 * elapsed
            if self._before is not None:
                gap = self._driver.call("cuEventElapsedTime", self._before.ended, self._span.began)
                self._gap_us = 1000 * gap
        except CudaError as error:
            self._error = DeviceError(f"program {self._program} failed: {error}", field=self._program)
            raise self._error from error
        self._completion[:] = slot.completion.array[: len(self._completion)]
        self._slot = None
