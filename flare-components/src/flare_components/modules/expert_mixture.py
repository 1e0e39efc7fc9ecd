"""Routed experts beside one shared expert."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flare_components.modules.mlp import PackedGatedMLP
from flare_components.modules.parameters import empty_parameter

flare = torch.ops.flare


class ExpertMixture(nn.Module):
    """`sum of the best experts, weighted + sigmoid(gate(x)) * shared(x)` for packed rows [N, hidden].

    Rows of `router_proj` are the logits of the experts, then the shared expert's gate. `gate_up` stacks gate
    and up rows of every expert. Source of the shared expert: Dai et al. (arXiv 2401.06066).
    """

    def __init__(
        self,
        *,
        hidden: int,
        experts: int,
        chosen: int,
        intermediate: int,
        shared_intermediate: int,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.experts, self.chosen = experts, chosen
        self.router_proj = nn.Linear(hidden, experts + 1, bias=False, device="meta", dtype=dtype)
        self.gate_up = empty_parameter(experts, 2 * intermediate, hidden, dtype=dtype)
        self.down = empty_parameter(experts, hidden, intermediate, dtype=dtype)
        self.shared = PackedGatedMLP(hidden, shared_intermediate, dtype)

    def forward(self, x: Tensor, lanes: Tensor) -> Tensor:
        """x [N, hidden], lanes i32[N] (-1 padding) -> [N, hidden]."""
        logits, gate = self.router_proj(x).split([self.experts, 1], 1)
        weights, experts = flare.route_softmax(logits, lanes, self.chosen)
        routed = flare.routed_experts(x, weights, experts, self.gate_up, self.down)
        return torch.addcmul(routed, self.shared(x), torch.sigmoid(gate))
