"""Routed experts beside a shared one."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flare_components.modules.parameters import empty_parameter

flare = torch.ops.flare


class RoutedExperts(nn.Module):
    """`number` gated feed-forward networks with plain weights: `gate_up` [E, 2 F, H], gate rows first, and
    `down` [E, H, F]. Called like those that keep a number format. limit: as in `flare::silu_and_mul`."""

    def __init__(
        self, number: int, hidden: int, inner: int, dtype: torch.dtype, *, limit: float | None = None
    ) -> None:
        super().__init__()
        self.limit = limit
        self.gate_up = empty_parameter(number, 2 * inner, hidden, dtype=dtype)
        self.down = empty_parameter(number, hidden, inner, dtype=dtype)

    def forward(self, x: Tensor, weights: Tensor, experts: Tensor) -> Tensor:
        """x [N, H]; weights f32[N, K]; experts i32[N, K], -1 for none -> the weighted sum [N, H]."""
        routed: Tensor = flare.routed_experts(x, weights, experts, self.gate_up, self.down, self.limit)
        return routed


class ExpertMixture(nn.Module):
    """`sum of the chosen experts, weighted + measure * shared(x)` for packed rows [N, hidden].

    `router` is one of `flare_components.modules.routers`; `experts` is a `RoutedExperts`, or what stands for
    one; `shared` a feed-forward network. Source of the shared expert: Dai et al. (arXiv 2401.06066).
    """

    def __init__(self, router: nn.Module, experts: nn.Module, shared: nn.Module) -> None:
        super().__init__()
        self.router, self.experts, self.shared = router, experts, shared

    def forward(self, x: Tensor, lanes: Tensor) -> Tensor:
        """x [N, hidden], lanes i32[N] (-1 padding) -> [N, hidden]."""
        weights, experts, measure = self.router(x, lanes)
        routed: Tensor = self.experts(x, weights, experts)
        shared: Tensor = self.shared(x)
        return routed + shared if measure is None else torch.addcmul(routed, shared, measure)
