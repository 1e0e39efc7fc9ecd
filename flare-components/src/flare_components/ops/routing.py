"""`flare::route_softmax` and `flare::route_sigmoid`: which experts of many a row goes to, and their weights.

Both take FP32 or narrower logits and compute in FP32. Among equal scores the lower expert wins. A padding
row, whose lane is -1, gets no expert, so that no weights are read for it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.elementwise import sigmoid
from flare_components.ops.schema import define

_SMALLEST_SUM = 1e-20


def route_softmax(logits: Tensor, lanes: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` best experts of every row, by descending logit, and their shares, which add up to one.

    logits [N, E], strided in N; lanes i32[N], -1 for padding -> weights f32[N, count], experts i32[N, count].
    The shares are a softmax over all experts, renormalised over the chosen ones, which is the softmax over
    these alone.
    """
    values, order = torch.sort(logits.float(), dim=1, descending=True, stable=True)
    return torch.softmax(values[:, :count], 1), _experts(order[:, :count], lanes)


def route_sigmoid(
    logits: Tensor, bias: Tensor, lanes: Tensor, count: int, scale: float
) -> tuple[Tensor, Tensor]:
    """The `count` experts of every row whose `sigmoid(logit) + bias` is highest, in descending order, and
    `scale` times their shares of the chosen sigmoids, which the bias does not change.

    logits [N, E], strided in N; bias f32[E]; lanes i32[N], -1 for padding -> weights f32[N, count], experts
    i32[N, count]. Shares are divided by the sum + 1e-20. Source of the bias: Wang et al.
    (arXiv 2408.15664).
    """
    scores = sigmoid(logits)
    order = torch.sort(scores + bias, dim=1, descending=True, stable=True)[1][:, :count]
    chosen = scores.gather(1, order)
    total = chosen.sum(1, keepdim=True).add_(_SMALLEST_SUM)
    return chosen.div_(total).mul_(scale), _experts(order, lanes)


def _experts(order: Tensor, lanes: Tensor) -> Tensor:
    return order.to(torch.int32, copy=True).masked_fill_(lanes.lt(0).unsqueeze(1), -1)


def _fake_softmax(logits: Tensor, lanes: Tensor, count: int) -> tuple[Tensor, Tensor]:
    torch._check(logits.dim() == 2 and 0 < count <= logits.shape[1], lambda: "logits are [N, E]")
    torch._check(lanes.shape == logits.shape[:1], lambda: "lanes is [N]")
    shape = logits.shape[0], count
    return logits.new_empty(shape, dtype=torch.float32), logits.new_empty(shape, dtype=torch.int32)


def _fake_sigmoid(
    logits: Tensor, bias: Tensor, lanes: Tensor, count: int, scale: float
) -> tuple[Tensor, Tensor]:
    routed = _fake_softmax(logits, lanes, count)
    torch._check(bias.shape == logits.shape[1:] and bias.dtype == torch.float32, lambda: "bias is f32[E]")
    return routed


define(
    "route_softmax(Tensor logits, Tensor lanes, int count) -> (Tensor, Tensor)",
    cpu=route_softmax,
    fake=_fake_softmax,
)
define(
    "route_sigmoid(Tensor logits, Tensor bias, Tensor lanes, int count, float scale) -> (Tensor, Tensor)",
    cpu=route_sigmoid,
    fake=_fake_sigmoid,
)
