"""The activation of image encoders."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Gelu(nn.Module):
    """`flare::gelu`."""

    def __init__(self, *, approximate: bool) -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """x [...] -> [...]."""
        activated: Tensor = torch.ops.flare.gelu(x, self.approximate)
        return activated
