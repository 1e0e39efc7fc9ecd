"""Which routed experts a row goes to, and how much of the shared one it takes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flare_components.modules.parameters import empty_parameter

flare = torch.ops.flare

Routing = tuple[Tensor, Tensor, Tensor | None]
"""weights f32[N, K]; experts i32[N, K], -1 for none; the shared expert's measure [N, 1], or None for one."""


class SoftmaxRouter(nn.Module):
    """The `chosen` best of `number` experts with their shares of a softmax over these, and a gated shared
    expert: rows of `proj` are the logits of the experts, then that of the shared one's gate."""

    def __init__(self, hidden: int, number: int, chosen: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.number, self.chosen = number, chosen
        self.proj = nn.Linear(hidden, number + 1, bias=False, device="meta", dtype=dtype)

    def forward(self, x: Tensor, lanes: Tensor) -> Routing:
        """x [N, hidden], lanes i32[N] (-1 padding)."""
        logits, gate = self.proj(x).split([self.number, 1], 1)
        weights, experts = flare.route_softmax(logits, lanes, self.chosen)
        return weights, experts, torch.sigmoid(gate)


class SigmoidRouter(nn.Module):
    """The `chosen` of `number` experts whose score + `bias` is highest, weighted by `scale` times their
    shares of the scores without it; all of the shared expert.

    Scores are sigmoids of FP32 logits from FP32 weights (`proj`). Source: arXiv 2412.19437, section 2.1.2.
    """

    def __init__(self, hidden: int, number: int, chosen: int, *, scale: float) -> None:
        super().__init__()
        self.chosen, self.scale = chosen, scale
        self.proj = nn.Linear(hidden, number, bias=False, device="meta", dtype=torch.float32)
        self.bias = empty_parameter(number, dtype=torch.float32)

    def forward(self, x: Tensor, lanes: Tensor) -> Routing:
        """x [N, hidden], lanes i32[N] (-1 padding)."""
        logits = self.proj(x.float())
        weights, experts = flare.route_sigmoid(logits, self.bias, lanes, self.chosen, self.scale)
        return weights, experts, None
