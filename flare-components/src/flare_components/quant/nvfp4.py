"""NVFP4: E2M1 codes, an E4M3 scale for every 16 columns, and one FP32 scale for the whole matrix.

    value = code * scale * global_scale

Source: NVIDIA, "Introducing NVFP4" (2025), and the tensors that ModelOpt writes (`weight`, `weight_scale`,
`weight_scale_2`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from flare_components.quant import e2m1, e4m3
from flare_components.quant.blocks import largest, spread

BLOCK = 16


@dataclass(frozen=True)
class Nvfp4:
    """A matrix [..., R, C]: `codes` [..., R, C/2] U8, `scales` [..., R, ceil(C/16)] E4M3, `global_scale`
    FP32, a scalar or of a shape that multiplies [..., R, C]."""

    codes: Tensor
    scales: Tensor
    global_scale: Tensor


def encode(values: Tensor, given: Tensor | None = None) -> Nvfp4:
    """Encode `values` [..., R, C], C even.

    given: a global scale, FP32; by default that of `global_scale`. A block whose scale rounds to zero becomes
    zero.
    Raises ValueError for an odd C.
    """
    wide = values.float()
    scale = global_scale(wide) if given is None else given
    amounts = largest(wide, BLOCK) / (e2m1.LARGEST * scale)
    scales = e4m3.encode(torch.where(amounts.isfinite(), amounts, torch.nan))
    steps = spread(scales.float() * scale, BLOCK, wide.shape[-1])
    codes = e2m1.encode(torch.where(steps == 0, 0.0, wide / steps))
    return Nvfp4(codes, scales, scale)


def decode(matrix: Nvfp4) -> Tensor:
    """The matrix in FP32 [..., R, C]. The product of code and scale is exact, so it is rounded once."""
    return decode_unscaled(matrix.codes, matrix.scales) * matrix.global_scale


def decode_unscaled(codes: Tensor, scales: Tensor) -> Tensor:
    """`code * scale` in FP32 [..., R, C], exact: without the global scale."""
    values = e2m1.decode(codes)
    return values.mul_(spread(e4m3.decode(scales), BLOCK, values.shape[-1]))


def global_scale(values: Tensor) -> Tensor:
    """The FP32 scalar that maps the largest magnitude of `values` to the largest code times the largest
    scale."""
    amount = values.abs().max() if values.numel() else values.new_zeros(())
    scale = amount / (e2m1.LARGEST * e4m3.LARGEST)
    return torch.where((scale > 0) & scale.isfinite(), scale, 1.0)
