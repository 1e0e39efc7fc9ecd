"""Random bytes that are valid for what they stand for, and numbers of moderate size: nothing overflows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from large_entries import EXCEPTIONS, Entry
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

PIECE_BYTES = 16 << 20


def pieces(entry: Entry, generator: np.random.Generator) -> Iterator[Bytes]:
    """The bytes of a tensor, a piece at a time."""
    if entry.content == "exceptions":
        places = np.arange(entry.shape[0], dtype=np.uint32) * EXCEPTIONS
        places += generator.integers(0, EXCEPTIONS, entry.shape[0], dtype=np.uint32)
        yield (np.uint32(0x60 << 24) | places).view(np.uint8)  # far above any window
        return
    # Rows of a shape stay together: what a byte is may depend on its column.
    row = entry.nbytes // entry.shape[0] if entry.shape else entry.nbytes
    step = max(PIECE_BYTES // row, 1) * row
    for start in range(0, entry.nbytes, step):
        count = min(step, entry.nbytes - start)
        yield _CONTENTS[entry.content](np.frombuffer(generator.bytes(count), np.uint8).copy(), row)


def _bf16(drawn: Bytes, row: int) -> Bytes:
    words = drawn.view(np.uint16)
    exponent = 118 + (words >> 7 & 3)
    return ((words & 0x807F) | exponent << 7).astype(np.uint16).view(np.uint8)


def _e4m3(drawn: Bytes, row: int) -> Bytes:
    return drawn & 0xBF  # below 2, and never NaN


def _e4m3_scale(drawn: Bytes, row: int) -> Bytes:
    return 0x28 + (drawn & 15)


def _e8m0(drawn: Bytes, row: int) -> Bytes:
    return 118 + (drawn & 3)


def _csf(drawn: Bytes, row: int) -> Bytes:
    slabs = drawn.reshape(-1, row)
    slabs[:, :16] = 0x28 + (slabs[:, :16] & 7)
    return drawn


def _scale(drawn: Bytes, row: int) -> Bytes:
    return np.full(len(drawn) // 4, 2.0**-6, np.float32).view(np.uint8)


def _any(drawn: Bytes, row: int) -> Bytes:
    return drawn


_CONTENTS: dict[str, Callable[[Bytes, int], Bytes]] = {
    "bf16": _bf16,
    "e4m3": _e4m3,
    "e4m3 scale": _e4m3_scale,
    "e8m0": _e8m0,
    "csf": _csf,
    "scale": _scale,
    "bytes": _any,
}
