"""Linear attention with a delta rule whose every channel has its own decay, behind a short convolution."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flare_components.modules.parameters import empty_parameter
from flare_components.serving.batch import Batch, ModelState

flare = torch.ops.flare


class ChannelDeltaNet(nn.Module):
    """`out(norm(delta_rule(conv(qkv))) * sigmoid(gate))` of packed rows [N, hidden].

    Decay and output gate come from low-rank projections of the input: rows of `in_proj_low` are the inner
    values of the decay (rank), those of the gate (rank), and b (heads); `decay_proj` and `gate_proj` bring
    them to all channels. Rows of `in_proj_qkv` are q, k, v. Convolution weights, `a_log`, `dt_bias` and the
    norm's gains are FP32. lower_bound: of the decays' logarithms, see `flare::gated_delta_rule`.

    State, layer `layer` of two schemes: `history` (convolution history over all q, k and v channels, taps - 1
    entries, the model's type) and `memory` (recurrent, FP32, [heads, width, width]).
    Source: Zhang et al. (arXiv 2510.26692).
    """

    def __init__(
        self,
        *,
        hidden: int,
        heads: int,
        width: int,
        rank: int,
        taps: int,
        layer: int,
        eps: float,
        dtype: torch.dtype,
        lower_bound: float | None = None,
        history: str = "conv",
        memory: str = "memory",
    ) -> None:
        super().__init__()
        self.layer, self.eps, self.lower_bound = layer, eps, lower_bound
        self.history, self.memory = history, memory
        self.heads, self.width, self.rank = heads, width, rank
        channels = heads * width
        self.in_proj_qkv = nn.Linear(hidden, 3 * channels, bias=False, device="meta", dtype=dtype)
        self.in_proj_low = nn.Linear(hidden, 2 * rank + heads, bias=False, device="meta", dtype=dtype)
        self.decay_proj = nn.Linear(rank, channels, bias=False, device="meta", dtype=dtype)
        self.gate_proj = nn.Linear(rank, channels, bias=False, device="meta", dtype=dtype)
        self.conv_weight = empty_parameter(3 * channels, 1, taps, dtype=torch.float32)
        self.a_log = empty_parameter(heads, dtype=torch.float32)
        self.dt_bias = empty_parameter(channels, dtype=torch.float32)
        self.norm_weight = empty_parameter(width, dtype=torch.float32)
        self.out_proj = nn.Linear(channels, hidden, bias=False, device="meta", dtype=dtype)

    def forward(self, x: Tensor, batch: Batch, state: ModelState) -> Tensor:
        """x [N, hidden] -> [N, hidden]."""
        qkv = self.in_proj_qkv(x)
        decay, gate, b = self.in_proj_low(x).split([self.rank, self.rank, self.heads], 1)
        lanes = batch.query_start, batch.live_rows
        mixed = flare.short_conv(qkv, self.conv_weight, state.rows[self.history][self.layer], *lanes, 1)
        memory = state.rows[self.memory][self.layer]
        read = flare.gated_delta_rule(
            mixed, self.decay_proj(decay), b, self.a_log, self.dt_bias, memory, *lanes, self.lower_bound
        )
        gates = self.gate_proj(gate).view(-1, self.heads, self.width)
        gated = flare.gated_rms_norm(read, gates, self.norm_weight, self.eps, "sigmoid")
        projected: Tensor = self.out_proj(gated.view(-1, self.heads * self.width))
        return projected
