"""A core's bytes on their way into a GPU: threads read, verify and copy them, all at the same time.

Every thread has two parts of host memory: while the GPU takes one, the thread reads and hashes into the
other. Reading begins before there is a context, as far as that memory goes. Weights are never in the memory
of the process as a whole.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flare.contract import BufferSpec, Initial
from flare.device.base import Bytes
from flare.device.cuda.address_book import AddressBook
from flare.device.cuda.context import Context
from flare.device.cuda.driver import Driver
from flare.errors import CoreError

if TYPE_CHECKING:
    from flare.device.cpu_memory import TensorSource

HOST_BYTES = 256 << 20
"""Most host memory that loading takes, unless one block of a core is larger."""
_RUN_BYTES = 8 << 20
"""What a thread reads at a time: every turn of a thread delays those that run Python code."""
_MOST_THREADS = 16  # memory is the limit of more
_PAGE = 4096
_NO_TIMING, _BLOCKING_SYNC = 2, 1  # CUevent_flags


@dataclass(frozen=True, slots=True)
class ContentRun:
    """`count` checked blocks of a tensor from the `first` on: bytes from `begin` of a buffer."""

    tensor: str
    first: int
    count: int
    buffer: str
    begin: int
    nbytes: int


class _Target(NamedTuple):
    driver: Driver
    context: Context
    stream: Any
    book: AddressBook


class ContentUpload:
    """The stored contents of `buffers`, from `source`; begins to read at once, with `threads` threads.

    `open` says where they go, `wait` returns when they are there, `close` must follow whatever happened.
    Raises CoreError for a tensor of another size than its buffer.
    """

    def __init__(
        self,
        source: TensorSource,
        buffers: Sequence[BufferSpec],
        *,
        threads: int | None = None,
        host_bytes: int = HOST_BYTES,
    ) -> None:
        runs = [run for buffer in buffers for run in _runs(source, buffer)]
        self._source = source
        self._left = iter(runs)
        self._lock = threading.Lock()
        self._opened = threading.Event()
        self._target: _Target | None = None
        self._failure: BaseException | None = None
        self._stopped = False
        room = -(-max((run.nbytes for run in runs), default=1) // _PAGE) * _PAGE
        depth = 2 if 2 * room <= host_bytes else 1
        # One processor is left to whoever loads kernels and graphs meanwhile.
        threads = threads or min(max(len(os.sched_getaffinity(0)) - 1, 1), _MOST_THREADS)
        count = min(threads, max(host_bytes // (depth * room), 1), len(runs))
        self._memory = _host_memory(max(count, 1) * depth * room)
        self._pinned = False
        parts = [self._memory[n * room : (n + 1) * room] for n in range(count * depth)]
        self._threads = [
            threading.Thread(target=self._work, args=(parts[n::count],), name=f"contents-{n}", daemon=True)
            for n in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def open(self, driver: Driver, context: Context, stream: Any, book: AddressBook) -> None:
        """Copy to the buffers of `book`, in the order of `stream`."""
        if self._threads:
            driver.call("cuMemHostRegister", self._memory.ctypes.data, self._memory.nbytes, 0)
            self._pinned = True
        self._target = _Target(driver, context, stream, book)
        self._opened.set()

    def wait(self) -> None:
        """Wait until everything arrived. Raises CoreError naming a damaged tensor, DeviceError for a failed
        copy."""
        assert self._target is not None, "opened before"
        self._join()
        if self._failure is not None:
            raise self._failure
        self._target.driver.call("cuStreamSynchronize", self._target.stream)

    def close(self) -> None:
        """Stop, and free the host memory. Idempotent."""
        self._stopped = True
        self._opened.set()
        self._join()
        if self._target is not None and self._pinned:
            self._target.driver.probe("cuStreamSynchronize", self._target.stream)
            self._target.driver.probe("cuMemHostUnregister", self._memory.ctypes.data)
            self._pinned = False
        self._memory = np.empty(0, np.uint8)

    def _join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _next(self) -> ContentRun | None:
        with self._lock:
            return None if self._stopped else next(self._left, None)

    def _work(self, parts: Sequence[Bytes]) -> None:
        lane: _Lane | None = None
        try:
            # What can be read before there is a GPU to take it.
            early = []
            for part in parts:
                if (run := self._next()) is None:
                    break
                self._read(run, part)
                early.append(run)
            self._opened.wait()
            if self._target is None or self._stopped:
                return
            lane = _Lane(self._target, parts)
            for run in early:
                lane.send(run)
            while (run := self._next()) is not None:
                self._read(run, lane.free())
                lane.send(run)
        except BaseException as error:
            self._failure = self._failure or error
            self._stopped = True
        finally:
            if lane is not None:
                lane.close()

    def _read(self, run: ContentRun, part: Bytes) -> None:
        self._source.read_blocks(run.tensor, run.first, run.count, part[: run.nbytes].data)


class _Lane:
    """The parts of host memory of one thread, in turn."""

    def __init__(self, target: _Target, parts: Sequence[Bytes]) -> None:
        target.context.make_current()
        self._target, self._parts, self._turn = target, parts, 0
        self._copied: list[Any] = []
        for _ in parts:
            self._copied.append(target.driver.call("cuEventCreate", _NO_TIMING | _BLOCKING_SYNC))

    def free(self) -> Bytes:
        """The next part, once the GPU has taken what was in it."""
        self._target.driver.call("cuEventSynchronize", self._copied[self._turn])
        return self._parts[self._turn]

    def send(self, run: ContentRun) -> None:
        """Copy the next part, which holds `run`."""
        driver, _, stream, book = self._target
        source = self._parts[self._turn].ctypes.data
        target = book.span(run.buffer).start + run.begin
        driver.call("cuMemcpyHtoDAsync", target, source, run.nbytes, stream)
        driver.call("cuEventRecord", self._copied[self._turn], stream)
        self._turn = (self._turn + 1) % len(self._parts)

    def close(self) -> None:
        for event in self._copied:
            self._target.driver.probe("cuEventSynchronize", event)
            self._target.driver.probe("cuEventDestroy", event)


def _host_memory(nbytes: int) -> Bytes:
    block = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)  # fewer pages to pin
    return np.frombuffer(block, np.uint8)


def _runs(source: TensorSource, buffer: BufferSpec) -> Iterator[ContentRun]:
    if buffer.initial is not Initial.BYTES or not buffer.nbytes:
        return
    assert buffer.tensor is not None
    parts = source.blocks(buffer.tensor)
    have = parts[-1][1] if parts else 0
    if have != buffer.nbytes:
        raise CoreError(
            f"tensor {buffer.tensor} has {have} bytes and does not fill buffer {buffer.name}",
            field=buffer.name,
        )
    step = max(_RUN_BYTES // parts[0][1], 1)
    for first in range(0, len(parts), step):
        run = parts[first : first + step]
        begin, end = run[0][0], run[-1][1]
        yield ContentRun(buffer.tensor, first, len(run), buffer.name, begin, end - begin)
