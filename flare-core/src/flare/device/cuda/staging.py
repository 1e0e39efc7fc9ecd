"""Host memory that the GPU reads directly, and the way of a core's bytes through it into buffers."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flare.contract import BufferSpec, Initial
from flare.device.base import Bytes
from flare.device.cuda.address_book import AddressBook
from flare.device.cuda.driver import Driver
from flare.errors import CoreError

if TYPE_CHECKING:
    from flare.device.cpu_memory import TensorSource

WINDOW_BYTES = 64 << 20
_ALIGNMENT = 64
_NO_TIMING, _BLOCKING_SYNC = 2, 1  # CUevent_flags


class PinnedBytes:
    """`nbytes` of page-locked host memory as `array` u8[nbytes], until `close`."""

    def __init__(self, driver: Driver, nbytes: int) -> None:
        self._driver = driver
        self.address = int(driver.call("cuMemHostAlloc", max(nbytes, 1), 0))
        block = (ctypes.c_uint8 * nbytes).from_address(self.address)
        self.array: Bytes = np.ctypeslib.as_array(block)

    def close(self) -> None:
        """Free. The array must not be used afterwards. Idempotent."""
        if self.address:
            self._driver.probe("cuMemFreeHost", self.address)
            self.address = 0
            self.array = np.empty(0, np.uint8)


def fill_buffers(
    driver: Driver,
    stream: Any,
    source: TensorSource,
    buffers: Sequence[BufferSpec],
    book: AddressBook,
    *,
    window_bytes: int = WINDOW_BYTES,
) -> None:
    """Give every buffer its initial contents: zeros, or verified bytes of the core. Waits for the copies.

    Two pinned windows alternate, so that reading and copying overlap. A tensor larger than a window passes
    through ordinary memory of its size. Raises CoreError for damaged contents or another size.
    """
    for buffer in buffers:
        if buffer.initial is Initial.ZERO and buffer.nbytes:
            driver.call("cuMemsetD8Async", book.span(buffer.name).start, 0, buffer.nbytes, stream)
    stored = [buffer for buffer in buffers if buffer.initial is Initial.BYTES and buffer.nbytes]
    for buffer in stored:
        _check_size(buffer, source)
    largest = max((buffer.nbytes for buffer in stored), default=0)
    total = sum(-(-buffer.nbytes // _ALIGNMENT) * _ALIGNMENT for buffer in stored)
    window = min(window_bytes, max(total, largest))
    windows = [_Window(driver, stream, window) for _ in range(2)] if stored else []
    try:
        for number, batch in enumerate(_batches(stored, window)):
            windows[number % 2].copy(batch, source, book, windows[(number + 1) % 2])
        driver.call("cuStreamSynchronize", stream)
    finally:
        driver.probe("cuStreamSynchronize", stream)
        for each in windows:
            each.close()


def _check_size(buffer: BufferSpec, source: TensorSource) -> None:
    assert buffer.tensor is not None
    have = len(source.bytes(buffer.tensor))
    if have != buffer.nbytes:
        raise CoreError(
            f"tensor {buffer.tensor} has {have} bytes and does not fill buffer {buffer.name}",
            field=buffer.name,
        )


def _batches(buffers: Iterable[BufferSpec], window: int) -> Iterator[list[BufferSpec]]:
    """Buffers that fit into one window together; a larger one by itself."""
    batch: list[BufferSpec] = []
    used = 0
    for buffer in buffers:
        nbytes = -(-buffer.nbytes // _ALIGNMENT) * _ALIGNMENT
        if batch and used + nbytes > window:
            yield batch
            batch, used = [], 0
        batch.append(buffer)
        used += nbytes
    if batch:
        yield batch


class _Window:
    def __init__(self, driver: Driver, stream: Any, nbytes: int) -> None:
        self._driver, self._stream = driver, stream
        self._pinned = PinnedBytes(driver, nbytes)
        self._copied = driver.call("cuEventCreate", _NO_TIMING | _BLOCKING_SYNC)

    def copy(self, batch: list[BufferSpec], source: TensorSource, book: AddressBook, other: _Window) -> None:
        if len(batch) == 1 and batch[0].nbytes > len(self._pinned.array):
            self._copy_large(batch[0], source, book, other)
            return
        self._await()
        requests, places = [], []
        cursor = 0
        for buffer in batch:
            assert buffer.tensor is not None
            requests.append((buffer.tensor, self._part(cursor, buffer.nbytes)))
            places.append((book.span(buffer.name).start, cursor, buffer.nbytes))
            cursor += -(-buffer.nbytes // _ALIGNMENT) * _ALIGNMENT
        source.upload(requests)
        for address, begin, nbytes in places:
            self._send(address, begin, nbytes)

    def _copy_large(
        self, buffer: BufferSpec, source: TensorSource, book: AddressBook, other: _Window
    ) -> None:
        assert buffer.tensor is not None
        data = np.empty(buffer.nbytes, np.uint8)
        source.upload([(buffer.tensor, data.data)])
        start = book.span(buffer.name).start
        step = len(self._pinned.array)
        for number, begin in enumerate(range(0, buffer.nbytes, step)):
            window = (self, other)[number % 2]
            part = data[begin : begin + step]
            window._await()
            window._pinned.array[: len(part)] = part
            window._send(start + begin, 0, len(part))

    def close(self) -> None:
        self._driver.probe("cuEventDestroy", self._copied)
        self._pinned.close()

    def _part(self, begin: int, nbytes: int) -> memoryview:
        return self._pinned.array[begin : begin + nbytes].data

    def _send(self, address: int, begin: int, nbytes: int) -> None:
        self._driver.call("cuMemcpyHtoDAsync", address, self._pinned.address + begin, nbytes, self._stream)
        self._driver.call("cuEventRecord", self._copied, self._stream)

    def _await(self) -> None:
        self._driver.call("cuEventSynchronize", self._copied)
