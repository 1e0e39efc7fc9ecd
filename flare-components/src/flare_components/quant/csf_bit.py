"""Compressed E8M0 block scales of MXFP4 weights: a base byte per row and one bit per scale.

Per slab of 16 rows `fixed` U8 [R/16, 16 * (1 + ceil(C/8))] holds 16 row bases, then 16 rows of one bit per
scale (the first column lowest). A scale's byte is base plus bit. `exceptions` U32 [n] are those of `csf`. C
is at most 255. Source: `b12x` in FlashInfer 0.7 (MXFP4-CSF).
"""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.quant.csf import SLAB
from flare_components.quant.csf_exceptions import patch, split

MOST_COLUMNS = 255


def decode(fixed: Tensor, exceptions: Tensor, columns: int) -> Tensor:
    """The bytes of the scales, U8 [R, columns]. Raises ValueError for streams of another form."""
    width = SLAB * (1 + -(-columns // 8))
    if not 1 <= columns <= MOST_COLUMNS:
        raise ValueError(f"{columns} columns; there are 1 to {MOST_COLUMNS}")
    if fixed.dim() != 2 or fixed.dtype != torch.uint8 or fixed.shape[1] != width:
        raise ValueError(
            f"a fixed stream of {columns} columns is U8 [R/16, {width}], not {list(fixed.shape)}"
        )
    rows = fixed.shape[0] * SLAB
    base = fixed[:, :SLAB].reshape(rows, 1)
    places = torch.arange(8, dtype=torch.uint8)
    bits = fixed[:, SLAB:].reshape(rows, -1, 1) >> places & 1
    scales = bits.flatten(1)[:, :columns] + base
    positions, content = split(exceptions, rows * columns)
    return patch(scales.contiguous(), positions, content)
