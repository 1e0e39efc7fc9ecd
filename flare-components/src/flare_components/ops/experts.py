"""`flare::route_softmax` and `flare::routed_experts`: a few of many gated feed-forward networks per row.

Source: Shazeer et al., "Outrageously Large Neural Networks" (2017).
"""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.activation import silu_and_mul
from flare_components.ops.expert_sum import check_routing, sum_experts
from flare_components.ops.linear import linear
from flare_components.ops.schema import define


def route_softmax(logits: Tensor, lanes: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` best experts of every row, by descending logit, and their shares, which add up to one.

    logits [N, E], strided in N; lanes i32[N], -1 for padding, which gets no expert, so that no weights are
    read for it -> weights f32[N, count], experts i32[N, count]. Among equal logits the lower expert wins. The
    shares are a softmax over all experts, renormalised over the chosen ones, which is the softmax over these
    alone; FP32.
    """
    values, order = torch.sort(logits.float(), dim=1, descending=True, stable=True)
    experts = order[:, :count].to(torch.int32, copy=True)
    return torch.softmax(values[:, :count], 1), experts.masked_fill_(lanes.lt(0).unsqueeze(1), -1)


def routed_experts(x: Tensor, weights: Tensor, experts: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """`sum_k weights[k] * down[e_k] (silu(gate[e_k] x) * up[e_k] x)` for every row.

    x [N, H]; weights f32[N, K]; experts i32[N, K], different ones in a row, -1 for none; gate_up [E, 2 F, H]
    with gate rows first; down [E, H, F]. -> [N, H]; a row without experts is zero. Every expert's result is
    rounded to x's type; they are summed in FP32 in the order of their numbers, so that a row has the same
    bits beside any others.
    """

    def network(expert: int, rows: Tensor) -> Tensor:
        return linear(silu_and_mul(linear(rows, gate_up[expert], None)), down[expert], None)

    return sum_experts(x, weights, experts, network)


def _fake_route(logits: Tensor, lanes: Tensor, count: int) -> tuple[Tensor, Tensor]:
    torch._check(logits.dim() == 2 and 0 < count <= logits.shape[1], lambda: "logits are [N, E]")
    torch._check(lanes.shape == logits.shape[:1], lambda: "lanes is [N]")
    shape = logits.shape[0], count
    return logits.new_empty(shape, dtype=torch.float32), logits.new_empty(shape, dtype=torch.int32)


def _fake_experts(x: Tensor, weights: Tensor, experts: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    check_routing(x, weights, experts)
    number, twice, hidden = gate_up.shape
    torch._check(twice % 2 == 0 and hidden == x.shape[1], lambda: "gate_up is [E, 2 F, H]")
    torch._check(down.shape == (number, hidden, twice // 2), lambda: "down is [E, H, F]")
    torch._check(x.dtype == gate_up.dtype == down.dtype, lambda: "x and expert weights differ in type")
    return x.new_empty(x.shape)


define(
    "route_softmax(Tensor logits, Tensor lanes, int count) -> (Tensor, Tensor)",
    cpu=route_softmax,
    fake=_fake_route,
)
define(
    "routed_experts(Tensor x, Tensor weights, Tensor experts, Tensor gate_up, Tensor down) -> Tensor",
    cpu=routed_experts,
    fake=_fake_experts,
)
