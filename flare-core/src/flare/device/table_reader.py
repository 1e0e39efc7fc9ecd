"""Reading rows of a table that stays in its file.

Rows are far apart and small, so a mapping is told not to read ahead, and lets go of the pages that rows were
read from: they stay in the system's cache as long as it has room, and are no memory of this process.
"""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray

from flare.device.base import Bytes

ROWS_BETWEEN = 1024
"""Rows that are read before pages are let go: a row may bring sixteen pages with it."""


class TableReader:
    """`contents` are the bytes u8[rows * row_bytes] of a table, as `host_tables` has them."""

    def __init__(self, contents: Bytes, row_bytes: int) -> None:
        self._rows = contents.reshape(-1, row_bytes)
        self._pages = TablePages(contents)

    def __call__(self, rows: NDArray[np.int64]) -> Bytes:
        """Rows of any shape [...] -> u8[..., row bytes]."""
        wanted = rows.reshape(-1)
        found = np.empty((len(wanted), self._rows.shape[1]), dtype=np.uint8)
        for begin in range(0, len(wanted), ROWS_BETWEEN):
            part = wanted[begin : begin + ROWS_BETWEEN]
            found[begin : begin + len(part)] = self._rows[part]
            self._pages.read(len(part))
        return found.reshape(*rows.shape, found.shape[1])


class TablePages:
    """Of a table in a mapped file, the pages that reading its rows brings into memory; nothing of one that is
    elsewhere."""

    def __init__(self, contents: Bytes) -> None:
        self._mapping = _mapping_of(contents)
        self._rows = 0
        if self._mapping is not None:
            self._mapping.advise("MADV_RANDOM")

    def read(self, rows: int) -> None:
        """So many rows have been read: let go of the pages when they are many."""
        self._rows += rows
        if self._mapping is not None and self._rows >= ROWS_BETWEEN:
            self._mapping.advise("MADV_DONTNEED")
            self._rows = 0


class _Mapping:
    """The whole pages of a mapped file that a table covers."""

    def __init__(self, file: mmap.mmap, start: int, end: int) -> None:
        self._file = file
        self._start = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        self._length = end // mmap.PAGESIZE * mmap.PAGESIZE - self._start

    def advise(self, option: str) -> None:
        """Nothing where the system has no such advice."""
        if self._length > 0 and (code := getattr(mmap, option, None)) is not None:
            self._file.madvise(code, self._start, self._length)


def _mapping_of(contents: Bytes) -> _Mapping | None:
    """The mapping that `contents` is a part of; None for memory of another kind."""
    owner: object = contents.base
    while isinstance(owner, np.ndarray):
        owner = owner.base
    file = owner.obj if isinstance(owner, memoryview) else owner
    if not isinstance(file, mmap.mmap):
        return None
    start = contents.ctypes.data - np.frombuffer(file, dtype=np.uint8).ctypes.data
    return _Mapping(file, start, start + contents.nbytes)
