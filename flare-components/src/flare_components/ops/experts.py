"""`flare::routed_experts`: a few of many gated feed-forward networks per row.

Source: Shazeer et al., "Outrageously Large Neural Networks" (2017).
"""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.activation import check_limit, silu_and_mul
from flare_components.ops.expert_sum import check_routing, sum_experts
from flare_components.ops.linear import linear
from flare_components.ops.schema import define


def routed_experts(
    x: Tensor, weights: Tensor, experts: Tensor, gate_up: Tensor, down: Tensor, limit: float | None = None
) -> Tensor:
    """`sum_k weights[k] * down[e_k] (silu(gate[e_k] x) * up[e_k] x)` for every row.

    x [N, H]; weights f32[N, K]; experts i32[N, K], different ones in a row, -1 for none; gate_up [E, 2 F, H]
    with gate rows first; down [E, H, F]; limit as in `flare::silu_and_mul`. -> [N, H]; a row without experts
    is zero. Every expert's result is rounded to x's type; they are summed in FP32 in the order of their
    numbers, so that a row has the same bits beside any others.
    """

    def network(expert: int, rows: Tensor) -> Tensor:
        return linear(silu_and_mul(linear(rows, gate_up[expert], None), limit), down[expert], None)

    return sum_experts(x, weights, experts, network)


def _fake_experts(
    x: Tensor, weights: Tensor, experts: Tensor, gate_up: Tensor, down: Tensor, limit: float | None = None
) -> Tensor:
    check_routing(x, weights, experts)
    check_limit(limit)
    number, twice, hidden = gate_up.shape
    torch._check(twice % 2 == 0 and hidden == x.shape[1], lambda: "gate_up is [E, 2 F, H]")
    torch._check(down.shape == (number, hidden, twice // 2), lambda: "down is [E, H, F]")
    torch._check(x.dtype == gate_up.dtype == down.dtype, lambda: "x and expert weights differ in type")
    return x.new_empty(x.shape)


define(
    "routed_experts(Tensor x, Tensor weights, Tensor experts, Tensor gate_up, Tensor down, "
    "float? limit=None) -> Tensor",
    cpu=routed_experts,
    fake=_fake_experts,
)
