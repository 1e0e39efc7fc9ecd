"""Routed experts beside one shared expert."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flare_components.modules.mlp import PackedGatedMLP
from flare_components.modules.parameters import empty_parameter

flare = torch.ops.flare


class RoutedExperts(nn.Module):
    """`number` gated feed-forward networks with plain weights: `gate_up` [E, 2 F, H], gate rows first, and
    `down` [E, H, F]. Called like those that keep a number format."""

    def __init__(self, number: int, hidden: int, inner: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.gate_up = empty_parameter(number, 2 * inner, hidden, dtype=dtype)
        self.down = empty_parameter(number, hidden, inner, dtype=dtype)

    def forward(self, x: Tensor, weights: Tensor, experts: Tensor) -> Tensor:
        """x [N, H]; weights f32[N, K]; experts i32[N, K], -1 for none -> the weighted sum [N, H]."""
        routed: Tensor = flare.routed_experts(x, weights, experts, self.gate_up, self.down)
        return routed


class ExpertMixture(nn.Module):
    """`sum of the best experts, weighted + sigmoid(gate(x)) * shared(x)` for packed rows [N, hidden].

    Rows of `router_proj` are the logits of the `number` experts, then the shared expert's gate. `experts` is
    a `RoutedExperts`, or what stands for one. Source of the shared expert: Dai et al. (arXiv 2401.06066).
    """

    def __init__(
        self,
        experts: nn.Module,
        *,
        hidden: int,
        number: int,
        chosen: int,
        shared_inner: int,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.number, self.chosen = number, chosen
        self.router_proj = nn.Linear(hidden, number + 1, bias=False, device="meta", dtype=dtype)
        self.experts = experts
        self.shared = PackedGatedMLP(hidden, shared_inner, dtype)

    def forward(self, x: Tensor, lanes: Tensor) -> Tensor:
        """x [N, hidden], lanes i32[N] (-1 padding) -> [N, hidden]."""
        logits, gate = self.router_proj(x).split([self.number, 1], 1)
        routed = self.experts(x, *flare.route_softmax(logits, lanes, self.chosen))
        return torch.addcmul(routed, self.shared(x), torch.sigmoid(gate))
