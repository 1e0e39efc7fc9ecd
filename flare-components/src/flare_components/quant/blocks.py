"""Blocks along the last dimension: their largest magnitudes, and scales spread over their elements."""

from __future__ import annotations

import torch
from torch import Tensor


def largest(values: Tensor, size: int) -> Tensor:
    """values [..., C] -> the largest magnitude of every block of `size` columns [..., ceil(C / size)]; the
    last block may be short. A block with a NaN has NaN, one with an infinity has infinity."""
    padded = torch.nn.functional.pad(values.abs(), (0, -values.shape[-1] % size))
    return padded.unflatten(-1, (-1, size)).amax(-1)


def spread(scales: Tensor, size: int, columns: int) -> Tensor:
    """scales [..., ceil(columns / size)] -> [..., columns]: each repeated over its block."""
    return scales.repeat_interleave(size, -1)[..., :columns]
