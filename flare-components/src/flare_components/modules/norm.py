"""Root mean square normalization as one operator."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """`x * rsqrt(mean(x^2) + eps) * weight` over the last dimension, statistics in fp32.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019); the order of rounding is
    that of Transformers' implementations (cast back before the product with the weight).
    """

    def __init__(self, size: int, eps: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, dtype=dtype, device="meta"), requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x [..., size] -> [..., size]."""
        normed: Tensor = torch.ops.flare.rms_norm(x, self.weight, self.eps)
        return normed
