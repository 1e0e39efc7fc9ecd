"""`flare::silu_and_mul`: the gate of a gated feed-forward layer."""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.schema import define


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """gate_up [N, 2F], gate first -> `silu(gate) * up` [N, F]; silu is rounded to the activation type."""
    gate, up = gate_up.chunk(2, -1)
    return torch.nn.functional.silu(gate).mul_(up)


def _fake(gate_up: Tensor) -> Tensor:
    torch._check(gate_up.dim() == 2 and gate_up.shape[1] % 2 == 0, lambda: "gate_up is [N, 2F]")
    return gate_up.new_empty(gate_up.shape[0], gate_up.shape[1] // 2)


define("silu_and_mul(Tensor gate_up) -> Tensor", cpu=silu_and_mul, fake=_fake)
