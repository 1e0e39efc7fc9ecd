"""The sum over a row's experts, whatever the experts' weights look like."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def sum_experts(
    x: Tensor, weights: Tensor, experts: Tensor, network: Callable[[int, Tensor], Tensor]
) -> Tensor:
    """`sum_k weights[k] * network(e_k, x)` for every row.

    x [N, H]; weights f32[N, K]; experts i32[N, K], different ones in a row, -1 for none -> [N, H]; a row
    without experts is zero. `network(e, rows)` gives the results of expert e for rows [n, H] in x's type; it
    is called once for every expert that any row chose. Results are summed in FP32 in the order of the
    experts' numbers, so that a row has the same bits beside any others.
    """
    out = torch.zeros(x.shape)
    chosen: dict[int, list[int]] = {}
    width = experts.shape[1]
    for place, expert in enumerate(experts.flatten().tolist()):
        if expert >= 0:
            chosen.setdefault(expert, []).append(place)
    shares = weights.flatten()
    for expert in sorted(chosen):
        places = torch.tensor(chosen[expert])
        rows = places // width
        result = network(expert, x.index_select(0, rows)).float()
        out.index_add_(0, rows, result * shares.index_select(0, places).unsqueeze(1))
    return out.to(x.dtype)


def check_routing(x: Tensor, weights: Tensor, experts: Tensor) -> None:
    """For fake kernels: shapes and types of what `sum_experts` takes."""
    torch._check(x.dim() == 2 and experts.dim() == 2, lambda: "x is [N, H], experts are [N, K]")
    torch._check(weights.shape == experts.shape, lambda: "weights and experts are [N, K]")
    torch._check(experts.shape[0] == x.shape[0], lambda: "experts has other rows than x")
