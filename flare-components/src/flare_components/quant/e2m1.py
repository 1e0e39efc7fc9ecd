"""E2M1: four-bit floating point. Bit 3 is the sign, the rest one of 0, 0.5, 1, 1.5, 2, 3, 4, 6.

Source: OCP Microscaling Formats (MX) Specification 1.0, section 5.3.3. Two codes share a byte, the element of
the even column in the low nibble.
"""

from __future__ import annotations

import torch
from torch import Tensor

MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
LARGEST = MAGNITUDES[-1]

_VALUES = (*MAGNITUDES, *(-magnitude for magnitude in MAGNITUDES))
_PAIRS = torch.tensor([(_VALUES[byte & 15], _VALUES[byte >> 4]) for byte in range(256)])
"""Both values of every byte [256, 2] FP32."""


def encode(values: Tensor) -> Tensor:
    """values [..., C], C even -> bytes [..., C/2] U8. Larger magnitudes become 6; NaN, which the format
    lacks, becomes 0. Raises ValueError for an odd C."""
    if values.shape[-1] % 2:
        raise ValueError(f"E2M1 codes are packed in pairs; {values.shape[-1]} columns are odd")
    size = values.abs()
    # A tie goes to the even code: a bound counts itself where the code above it is even.
    code = (size > 0.25).to(torch.uint8)
    for bound, from_bound in ((0.75, 1), (1.25, 0), (1.75, 1), (2.5, 0), (3.5, 1), (5.0, 0)):
        code += size >= bound if from_bound else size > bound
    code |= torch.signbit(values).to(torch.uint8) << 3
    return code[..., ::2] | (code[..., 1::2] << 4)


def decode(packed: Tensor) -> Tensor:
    """bytes [..., C/2] U8 -> values [..., C] FP32, exact."""
    pairs = torch.nn.functional.embedding(packed.int(), _PAIRS)
    return pairs.flatten(-2)
