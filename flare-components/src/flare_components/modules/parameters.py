"""Weights that a module holds beside its projections."""

from __future__ import annotations

import torch
from torch import nn

CENTRED_GAIN = 1.0
"""Offset of norms whose gains are stored as their difference from one."""


def empty_parameter(*shape: int, dtype: torch.dtype) -> nn.Parameter:
    """A weight on the meta device, to be read from a checkpoint."""
    return nn.Parameter(torch.empty(shape, dtype=dtype, device="meta"), requires_grad=False)
