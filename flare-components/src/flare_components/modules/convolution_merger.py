"""Patches to features: a convolution over neighbours, then a projection and a gated feed-forward network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flare_components.modules.gelu import Gelu
from flare_components.modules.mlp import PackedGatedMLP
from flare_components.modules.norm import RMSNorm


class ConvolutionMerger(nn.Module):
    """The `merger` of an `ImageEncoder` that makes one feature of `merge` x `merge` patches by a convolution
    whose stride is its extent.

    Patches are normalised (`norm`), convolved to `width` (`downsample`, with a bias), projected (`proj`) and
    normalised again (`proj_norm`, with a bias); what GELU leaves of them goes through a gated network of
    `inner` width, whose gates and ups are limited (see `PackedGatedMLP`). `downsample` is the linear layer of
    `merge`^2 rows after each other: its columns are in the order patch row, patch column, channel, where the
    convolution's weight has the channel first.
    """

    def __init__(
        self,
        *,
        hidden: int,
        width: int,
        inner: int,
        merge: int,
        eps: float,
        limit: float | None,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.extent = merge**2 * hidden
        self.norm = RMSNorm(hidden, eps, dtype)
        self.downsample = nn.Linear(self.extent, width, device="meta", dtype=dtype)
        self.proj = nn.Linear(width, width, bias=False, device="meta", dtype=dtype)
        self.proj_norm = nn.LayerNorm(width, device="meta", dtype=dtype)
        self.activation = Gelu(approximate=False)
        self.mlp = PackedGatedMLP(width, inner, dtype, limit=limit)

    def forward(self, x: Tensor) -> Tensor:
        """x [N, hidden] -> features [N / merge^2, width]."""
        joined = self.downsample(self.norm(x).view(-1, self.extent))
        features: Tensor = self.mlp(self.activation(self.proj_norm(self.proj(joined))))
        return features
