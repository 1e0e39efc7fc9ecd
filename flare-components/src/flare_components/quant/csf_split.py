"""Compressed E4M3 block scales, codecs 1 and 2: exponent and mantissa bits apart.

A scale's byte is `(base + bit) << 3 | mantissa`. Per slab of 16 rows `fixed` U8 [R/16, 16 * (1 + C/2)] holds
16 row bases, then 16 rows of C/8 bytes with one bit per scale (the first column lowest), then 16 rows of 3C/8
bytes with three bits per scale (24 bits for 8 columns, little-endian, the first column lowest). Exceptions
replace the five high bits:

* codec 1: U32 words, position in the low 24 bits, the high bits' value in the high 8;
* codec 2: three bytes, little-endian: position in the low 19 bits, the value in the high 5.

Source: `b12x` in FlashInfer 0.7. Checkpoints are written with codec 0 (`csf`), so there is no encoder here.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.quant.csf import SLAB
from flare_components.quant.csf_exceptions import check, split

SHORT_POSITIONS = 1 << 19
_PLACES = torch.arange(8)


def decode_wide(fixed: Tensor, exceptions: Tensor) -> Tensor:
    """Codec 1: the bytes of the scales, U8 [R, C], from `fixed` and `exceptions` U32 [n]. Raises ValueError
    for streams of another form."""
    scales = _decode_fixed(fixed)
    positions, high = split(exceptions, scales.numel())
    return _replace_high(scales, positions, high.long())


def decode_narrow(fixed: Tensor, exceptions: Tensor) -> Tensor:
    """Codec 2: the bytes of the scales, U8 [R, C], from `fixed` and `exceptions` U8 [3n]. Raises ValueError
    for streams of another form."""
    scales = _decode_fixed(fixed)
    if exceptions.dtype != torch.uint8 or exceptions.dim() != 1 or exceptions.numel() % 3:
        raise ValueError(f"exceptions are U8 [3n], not {exceptions.dtype} {list(exceptions.shape)}")
    part = exceptions.view(-1, 3).long()
    words = part[:, 0] | part[:, 1] << 8 | part[:, 2] << 16
    positions = words & (SHORT_POSITIONS - 1)
    check(positions, min(scales.numel(), SHORT_POSITIONS))
    return _replace_high(scales, positions, words >> 19)


def _decode_fixed(fixed: Tensor) -> Tensor:
    if fixed.dim() != 2 or fixed.dtype != torch.uint8 or fixed.shape[1] % (4 * SLAB) != SLAB:
        raise ValueError(
            f"a fixed stream is U8 [R/16, 16 * (1 + C/2)], not {fixed.dtype} {list(fixed.shape)}"
        )
    rows, eighths = fixed.shape[0] * SLAB, fixed.shape[1] // SLAB // 4
    base, bits, mantissas = fixed.split([SLAB, SLAB * eighths, SLAB * 3 * eighths], 1)
    selected = bits.reshape(rows, eighths, 1).long() >> _PLACES & 1
    part = mantissas.reshape(rows, eighths, 3).long()
    words = part[..., 0] | part[..., 1] << 8 | part[..., 2] << 16
    mantissa = words.unsqueeze(-1) >> 3 * _PLACES & 7
    scales = (base.reshape(rows, 1, 1) + selected) << 3 | mantissa
    return scales.to(torch.uint8).flatten(1)


def _replace_high(scales: Tensor, positions: Tensor, high: Tensor) -> Tensor:
    if high.numel() and int(high.max()) > 31:
        raise ValueError("an exception has more than five high bits")
    flat = scales.view(-1)
    flat[positions] = (high << 3).to(torch.uint8) | flat[positions] & 7
    return scales
