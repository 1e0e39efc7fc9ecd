"""Streams of compressed block scales, made for comparisons: the bits in the order that the formats name."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def split_bits(scales: Array, base: Array) -> tuple[Array, Array]:
    """scales U8 [R, C] of codecs 1 and 2 -> (fixed, positions of exceptions I64 [n]). base U8 [R] holds the
    high five bits that a selector of 0 stands for; what is neither base nor base + 1 is an exception."""
    rows = len(scales)
    step = (scales >> 3).astype(np.int64) - base[:, None]
    outside = (step < 0) | (step > 1)
    bits = np.packbits(np.where(outside, 0, step).astype(np.uint8), axis=1, bitorder="little")
    planes = ((scales & 7)[..., None] >> np.arange(3)) & 1  # bit by bit, the first column lowest
    mantissas = np.packbits(planes.reshape(rows, -1).astype(np.uint8), axis=1, bitorder="little")
    slabs = (rows // 16, -1)
    parts = [part.reshape(slabs) for part in (base, bits, mantissas)]
    return np.concatenate(parts, axis=1), np.flatnonzero(outside)


def one_bit(scales: Array, base: Array) -> tuple[Array, Array]:
    """scales U8 [R, C] of MXFP4-CSF -> (fixed, exceptions U32 [n]); base U8 [R]."""
    rows = len(scales)
    step = scales.astype(np.int64) - base[:, None]
    outside = (step < 0) | (step > 1)
    bits = np.packbits(np.where(outside, 0, step).astype(np.uint8), axis=1, bitorder="little")
    fixed = np.concatenate([base.reshape(rows // 16, 16), bits.reshape(rows // 16, -1)], axis=1)
    return fixed, words(scales.ravel(), np.flatnonzero(outside), 24)


def words(content: Array, positions: Array, places: int) -> Array:
    """Exceptions U32 [n]: the position in the low bits, `content` of it above `places` of them."""
    found = content[positions].astype(np.int64) << places | positions
    return found.astype(np.uint32)


def narrow(exceptions: Array) -> Array:
    """Words U32 [n] as three bytes each, U8 [3n]."""
    return exceptions.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :3].reshape(-1).copy()
