"""Pages and rows of a GPU copied to and from the host beside running programs, on a stream of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import numpy as np

from flare.contract import PreparedContract, Region
from flare.device.base import Bytes
from flare.device.cuda.address_book import AddressBook
from flare.device.cuda.context import Context
from flare.device.cuda.driver import Driver
from flare.errors import CoreError

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING


class BlockCopies:
    """See `read_blocks` and `write_blocks` of `flare.device.base.Device`; one copy at a time, any thread."""

    def __init__(
        self, driver: Driver, context: Context, contract: PreparedContract, book: AddressBook
    ) -> None:
        self._driver, self._context, self._contract, self._book = driver, context, contract, book
        self._stream = driver.call("cuStreamCreate", _NON_BLOCKING)
        self._lock = threading.Lock()

    def read(self, region: Region, blocks: Sequence[int]) -> Bytes:
        """u8[len(blocks), block bytes]. Raises CoreError when the region is not one buffer."""
        start, nbytes = self._place(region)
        out = np.empty((len(blocks), nbytes), np.uint8)
        with self._lock:
            self._context.make_current()
            for first, block, count in _runs(blocks if out.size else ()):
                target, source = out.ctypes.data + first * nbytes, start + block * nbytes
                self._driver.call("cuMemcpyDtoHAsync", target, source, count * nbytes, self._stream)
            self._driver.call("cuStreamSynchronize", self._stream)
        return out

    def write(self, region: Region, blocks: Sequence[int], data: Bytes) -> None:
        """Fill blocks from u8[len(blocks), block bytes]. Raises CoreError as `read`."""
        start, nbytes = self._place(region)
        assert data.shape == (len(blocks), nbytes), "data of another size"
        kept = np.ascontiguousarray(data)
        with self._lock:
            self._context.make_current()
            for first, block, count in _runs(blocks if kept.size else ()):
                target, source = start + block * nbytes, kept.ctypes.data + first * nbytes
                self._driver.call("cuMemcpyHtoDAsync", target, source, count * nbytes, self._stream)
            self._driver.call("cuStreamSynchronize", self._stream)

    def close(self) -> None:
        """Wait for a copy that is running, and give the stream back."""
        with self._lock:
            self._driver.probe("cuStreamDestroy", self._stream)

    def _place(self, region: Region) -> tuple[int, int]:
        geometry = {Region.PAGES: self._contract.page, Region.ROWS: self._contract.row}[region]
        names = [b.name for b in self._contract.buffers if b.region is region and b.rank == 0]
        if len(names) != 1:
            raise CoreError(f"{len(names)} {region.value} buffers, expected one", field="buffers")
        return self._book.span(names[0]).start, geometry.nbytes


def _runs(blocks: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(index of its first, first block, count) of every run of consecutive blocks."""
    first = 0
    for index in range(1, len(blocks) + 1):
        if index == len(blocks) or blocks[index] != blocks[index - 1] + 1:
            yield first, blocks[first], index - first
            first = index
