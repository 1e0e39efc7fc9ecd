"""MXFP8: E4M3 codes and an E8M0 scale for every 32 columns.

    value = code * scale

Source: OCP Microscaling Formats (MX) Specification 1.0, section 5.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from flare_components.quant import e4m3, e8m0
from flare_components.quant.blocks import largest, spread

BLOCK = 32


@dataclass(frozen=True)
class Mxfp8:
    """A matrix [..., R, C]: `codes` [..., R, C] E4M3, `scales` [..., R, ceil(C/32)] E8M0."""

    codes: Tensor
    scales: Tensor


def encode(values: Tensor) -> Mxfp8:
    """Encode `values` [..., R, C]. The scale is the smallest that does not saturate its block."""
    wide = values.float()
    scales = e8m0.encode_above(largest(wide, BLOCK) / e4m3.LARGEST)
    steps = spread(e8m0.decode(scales), BLOCK, wide.shape[-1])
    return Mxfp8(e4m3.encode(wide / steps), scales)


def decode(matrix: Mxfp8) -> Tensor:
    """The matrix in FP32 [..., R, C], exact unless it leaves FP32's range."""
    values = e4m3.decode(matrix.codes)
    return values * spread(e8m0.decode(matrix.scales), BLOCK, values.shape[-1])
