"""`flare::silu_and_mul`: the gate of a gated feed-forward layer."""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.schema import define


def silu_and_mul(gate_up: Tensor, limit: float | None = None) -> Tensor:
    """gate_up [N, 2F], gate first -> `silu(gate) * up` [N, F]; silu is rounded to the activation type.

    With a limit gates are at most `limit` before silu, and ups within `-limit` and `limit`.
    """
    if limit is not None:
        # Not halves of their own: silu's bits depend on where a row of its operand ends.
        gate_up = gate_up.clone()
    gate, up = gate_up.chunk(2, -1)
    if limit is not None:
        gate.clamp_(max=limit)
        up.clamp_(-limit, limit)
    return torch.nn.functional.silu(gate).mul_(up)


def _fake(gate_up: Tensor, limit: float | None = None) -> Tensor:
    torch._check(gate_up.dim() == 2 and gate_up.shape[1] % 2 == 0, lambda: "gate_up is [N, 2F]")
    check_limit(limit)
    return gate_up.new_empty(gate_up.shape[0], gate_up.shape[1] // 2)


def check_limit(limit: float | None) -> None:
    """For fake kernels of operators with this gate."""
    torch._check(limit is None or limit > 0, lambda: f"a limit is positive, not {limit}")


define("silu_and_mul(Tensor gate_up, float? limit=None) -> Tensor", cpu=silu_and_mul, fake=_fake)
