"""Linear attention with a gated delta rule, behind a short convolution."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flare_components.modules.parameters import empty_parameter
from flare_components.serving.batch import Batch, ModelState

flare = torch.ops.flare


class GatedDeltaNet(nn.Module):
    """`out(norm(delta_rule(conv(qkv))) * gate(z))` of packed rows [N, hidden].

    State, layer `layer` of two schemes: `history` (convolution history over all q, k and v channels, taps - 1
    entries, the model's type) and `memory` (recurrent, FP32, [value_heads, key_width, value_width]). Rows of
    `in_proj_qkvz` are q, k, v, z; of `in_proj_ba` b, a. `gate` names the activation of z ("sigmoid", "silu").
    Source: Yang, Kautz, Hatamizadeh, "Gated Delta Networks" (2024).
    """

    def __init__(
        self,
        *,
        hidden: int,
        key_heads: int,
        value_heads: int,
        key_width: int,
        value_width: int,
        taps: int,
        layer: int,
        eps: float,
        gate: str,
        dtype: torch.dtype,
        history: str = "conv",
        memory: str = "memory",
    ) -> None:
        super().__init__()
        self.layer, self.eps, self.gate, self.history, self.memory = layer, eps, gate, history, memory
        self.value_heads, self.value_width = value_heads, value_width
        values = value_heads * value_width
        self.mixed = 2 * key_heads * key_width + values
        self.in_proj_qkvz = nn.Linear(hidden, self.mixed + values, bias=False, device="meta", dtype=dtype)
        self.in_proj_ba = nn.Linear(hidden, 2 * value_heads, bias=False, device="meta", dtype=dtype)
        self.conv_weight = empty_parameter(self.mixed, 1, taps, dtype=dtype)
        self.a_log = empty_parameter(value_heads, dtype=dtype)
        self.dt_bias = empty_parameter(value_heads, dtype=dtype)
        self.norm_weight = empty_parameter(value_width, dtype=dtype)
        self.out_proj = nn.Linear(values, hidden, bias=False, device="meta", dtype=dtype)

    def forward(self, x: Tensor, batch: Batch, state: ModelState) -> Tensor:
        """x [N, hidden] -> [N, hidden]."""
        qkv, z = self.in_proj_qkvz(x).split([self.mixed, self.value_heads * self.value_width], 1)
        b, a = self.in_proj_ba(x).split([self.value_heads, self.value_heads], 1)
        lanes = batch.query_start, batch.live_rows
        mixed = flare.short_conv(qkv, self.conv_weight, state.rows[self.history][self.layer], *lanes, 1)
        memory = state.rows[self.memory][self.layer]
        read = flare.gated_delta_rule(mixed, a, b, self.a_log, self.dt_bias, memory, *lanes)
        gate = z.view(-1, self.value_heads, self.value_width)
        gated = flare.gated_rms_norm(read, gate, self.norm_weight, self.eps, self.gate)
        projected: Tensor = self.out_proj(gated.view(-1, self.value_heads * self.value_width))
        return projected
