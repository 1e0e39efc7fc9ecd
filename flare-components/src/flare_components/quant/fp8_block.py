"""FP8 with square blocks: E4M3 codes and one scale for every block of rows and columns, usually 128 by 128.

    value = code * scale

The scales are FP32, BF16 or E8M0; checkpoints call them `weight_scale_inv`, yet they multiply.
"""
# Source: DeepSeek-AI, "DeepSeek-V3 Technical Report" (2024), section 3.3.

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from flare_components.quant import e4m3, e8m0
from flare_components.quant.blocks import largest, spread

BLOCK = (128, 128)


@dataclass(frozen=True)
class Fp8Block:
    """A matrix [..., R, C]: `codes` [..., R, C] E4M3, `scales` [..., ceil(R/rows), ceil(C/columns)], where
    `block` is (rows, columns)."""

    codes: Tensor
    scales: Tensor
    block: tuple[int, int] = BLOCK


def encode(
    values: Tensor, block: tuple[int, int] = BLOCK, scale_dtype: torch.dtype = torch.float32
) -> Fp8Block:
    """Encode `values` [..., R, C] with scales of `scale_dtype` (float32, bfloat16 or float8_e8m0fnu). A block
    of zeros has scale 1, or E8M0's smallest."""
    rows, columns = block
    wide = values.float()
    amounts = largest(largest(wide, columns).mT, rows).mT / e4m3.LARGEST
    if scale_dtype == torch.float8_e8m0fnu:
        scales = e8m0.encode_above(amounts)
    else:
        scales = torch.where(amounts == 0, 1.0, amounts.where(amounts.isfinite(), torch.nan)).to(scale_dtype)
    steps = _spread(scales, block, wide.shape[-2], wide.shape[-1])
    stored = scales.clone(memory_format=torch.contiguous_format)
    return Fp8Block(e4m3.encode(wide / steps), stored, block)


def decode(matrix: Fp8Block) -> Tensor:
    """The matrix in FP32 [..., R, C]."""
    values = e4m3.decode(matrix.codes)
    return values * _spread(matrix.scales, matrix.block, values.shape[-2], values.shape[-1])


def _spread(scales: Tensor, block: tuple[int, int], rows: int, columns: int) -> Tensor:
    across = spread(scales.float(), block[1], columns)
    return spread(across.mT, block[0], rows).mT
