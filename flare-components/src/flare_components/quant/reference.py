"""The formats' definitions as slow, plain NumPy in FP64: the oracle of their tests. Nothing else imports
this.

Codes are integers here; every function spells out bits where the encoders use torch's conversions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def minifloat(code: int, exponent_bits: int, mantissa_bits: int, bias: int) -> float:
    """The value of a sign, exponent and mantissa, with subnormal numbers, without infinities and NaN."""
    mantissa = code & ((1 << mantissa_bits) - 1)
    exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1)
    sign = -1.0 if code >> (mantissa_bits + exponent_bits) & 1 else 1.0
    if exponent == 0:
        return sign * math.ldexp(mantissa, 1 - bias - mantissa_bits)
    return sign * math.ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits)


def e2m1(code: int) -> float:
    """The value of a four-bit code."""
    return minifloat(code, 2, 1, 1)


def e4m3(code: int) -> float:
    """The value of a byte; all ones in exponent and mantissa is NaN."""
    return math.nan if code & 127 == 127 else minifloat(code, 4, 3, 7)


def e8m0(code: int) -> float:
    """The value of a byte; 255 is NaN."""
    return math.nan if code == 255 else math.ldexp(1.0, code - 127)


def nearest(value: float, magnitudes: list[float]) -> int:
    """The index of the nearest magnitude to |value|; of two equally near ones the even index."""
    distances = [abs(abs(value) - magnitude) for magnitude in magnitudes]
    return min(range(len(magnitudes)), key=lambda index: (distances[index], index % 2))


def e2m1_code(value: float) -> int:
    """The code nearest to `value`."""
    return nearest(value, [e2m1(code) for code in range(8)]) | (8 if math.copysign(1, value) < 0 else 0)


def e4m3_code(value: float) -> int:
    """The byte nearest to `value`, at most 448 in magnitude; 127 for NaN."""
    if math.isnan(value):
        return 127
    code = nearest(min(abs(value), 448.0), [e4m3(code) for code in range(127)])
    return code | (128 if math.copysign(1, value) < 0 else 0)


def e8m0_code_above(value: float) -> int:
    """The byte of the smallest power of two that is not below `value` >= 0; 255 for what is not finite."""
    if not math.isfinite(value):
        return 255
    return next(code for code in range(255) if e8m0(code) >= value or code == 254)


def decode_nvfp4(packed: Array, scales: Array, global_scale: float) -> Array:
    """packed [R, C/2] and scales [R, ceil(C/16)] bytes -> FP64 [R, C]."""
    out = np.empty((packed.shape[0], packed.shape[1] * 2))
    for (row, column), _ in np.ndenumerate(out):
        code = int(packed[row, column // 2]) >> 4 * (column % 2) & 15
        out[row, column] = e2m1(code) * e4m3(int(scales[row, column // 16])) * global_scale
    return out


def decode_mxfp8(codes: Array, scales: Array) -> Array:
    """codes [R, C] and scales [R, ceil(C/32)] bytes -> FP64 [R, C]."""
    out = np.empty(codes.shape)
    for (row, column), code in np.ndenumerate(codes):
        out[row, column] = e4m3(int(code)) * e8m0(int(scales[row, column // 32]))
    return out


def decode_fp8_block(codes: Array, scales: Array, block: tuple[int, int]) -> Array:
    """codes [R, C] bytes and scales [ceil(R/rows), ceil(C/columns)] FP64 -> FP64 [R, C]."""
    out = np.empty(codes.shape)
    for (row, column), code in np.ndenumerate(codes):
        out[row, column] = e4m3(int(code)) * scales[row // block[0], column // block[1]]
    return out


def decode_csf(fixed: Array, exceptions: Array) -> Array:
    """The scales' bytes [R, C] of codec 0, one by one."""
    slabs, columns = fixed.shape[0], (fixed.shape[1] // 16 - 1) * 2
    out = np.empty((slabs * 16, columns), np.uint8)
    for (row, column), _ in np.ndenumerate(out):
        slab, line = fixed[row // 16], row % 16
        pair = int(slab[16 + line * (columns // 2) + column // 2])
        out[row, column] = int(slab[line]) + (pair >> 4 * (column % 2) & 15)
    for word in exceptions.tolist():
        out[divmod(word & 0xFFFFFF, columns)] = word >> 24
    return out


def _bit(data: Array, place: int) -> int:
    return int(data[place // 8]) >> place % 8 & 1


def decode_csf_split(fixed: Array, exceptions: list[tuple[int, int]]) -> Array:
    """The scales' bytes [R, C] of codecs 1 and 2; exceptions are (position, high bits)."""
    slabs, columns = fixed.shape[0], (fixed.shape[1] // 16 - 1) * 2
    out = np.empty((slabs * 16, columns), np.uint8)
    for (row, column), _ in np.ndenumerate(out):
        slab, scale = fixed[row // 16], row % 16 * columns + column
        bits, mantissas = slab[16 : 16 + 2 * columns], slab[16 + 2 * columns :]
        high = int(slab[row % 16]) + _bit(bits, scale)
        out[row, column] = high << 3 | sum(_bit(mantissas, 3 * scale + place) << place for place in range(3))
    for position, high in exceptions:
        place = divmod(position, columns)
        out[place] = high << 3 | int(out[place]) & 7
    return out


def decode_csf_bit(fixed: Array, exceptions: Array, columns: int) -> Array:
    """The scales' bytes [R, columns] of the one-bit codec, one by one."""
    width = -(-columns // 8)
    out = np.empty((fixed.shape[0] * 16, columns), np.uint8)
    for (row, column), _ in np.ndenumerate(out):
        slab, line = fixed[row // 16], row % 16
        out[row, column] = int(slab[line]) + _bit(slab[16 + line * width : 16 + (line + 1) * width], column)
    for word in exceptions.tolist():
        out[divmod(word & 0xFFFFFF, columns)] = word >> 24
    return out
