"""E8M0: a power of two as its biased exponent, safetensors' `F8_E8M0`. Byte b is 2^(b - 127), 255 is NaN.

Source: OCP Microscaling Formats (MX) Specification 1.0, section 5.4.1.
"""

from __future__ import annotations

import torch
from torch import Tensor

BIAS = 127
NOT_A_NUMBER = 255


def encode_above(values: Tensor) -> Tensor:
    """FP32 values >= 0 -> the smallest power of two that is not below each, as E8M0 of the same shape.

    0 becomes 2^-127, the smallest; infinities and NaN become NaN. With this rounding the largest element of
    a block never saturates (NVIDIA's conversion `cvt.rp.satfinite.ue8m0x2`; the specification's own example
    rounds down).
    """
    mantissa, exponent = torch.frexp(values)  # mantissa in [0.5, 1): only 0.5 is a power of two itself
    biased = torch.where(mantissa == 0.5, exponent - 1, exponent) + BIAS
    biased = torch.where(values == 0, 0, biased.clamp(0, 254))
    biased = torch.where(values.isfinite(), biased, NOT_A_NUMBER)
    return biased.to(torch.uint8).view(torch.float8_e8m0fnu)


def decode(codes: Tensor) -> Tensor:
    """E8M0 -> FP32 of the same shape, exact (2^-127 is a subnormal number)."""
    return codes.float()
