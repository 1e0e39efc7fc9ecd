"""Gated feed-forward network with one packed input projection."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PackedGatedMLP(nn.Module):
    """`down(silu(gate(x)) * up(x))`; the rows of gate and up are stacked in `gate_up_proj`.

    With a limit gates are at most `limit` before silu, and ups within `-limit` and `limit`.

    Source: Shazeer, "GLU Variants Improve Transformer" (2020), SwiGLU.
    """

    def __init__(
        self,
        hidden: int,
        intermediate: int,
        dtype: torch.dtype,
        *,
        limit: float | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.limit = limit
        self.gate_up_proj = nn.Linear(hidden, 2 * intermediate, bias=bias, device="meta", dtype=dtype)
        self.down_proj = nn.Linear(intermediate, hidden, bias=bias, device="meta", dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """x [N, hidden] -> [N, hidden]."""
        opened = torch.ops.flare.silu_and_mul(self.gate_up_proj(x), self.limit)
        projected: Tensor = self.down_proj(opened)
        return projected
