"""E4M3: eight-bit floating point of safetensors' `F8_E4M3`, without infinities. The largest value is 448.

Source: OCP 8-bit Floating Point Specification 1.0, table 2.
"""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST = 448.0


def encode(values: Tensor) -> Tensor:
    """FP32 values -> E4M3 of the same shape. Larger magnitudes and infinities become 448, NaN stays."""
    return values.clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)


def decode(codes: Tensor) -> Tensor:
    """E4M3 -> FP32 of the same shape, exact."""
    return codes.float()
