"""Several residual streams around one layer: a gated mean in, a measured injection out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from flare_components.modules.parameters import CENTRED_GAIN, empty_parameter

flare = torch.ops.flare


@dataclass(frozen=True)
class Injection:
    """The output of a layer that the streams have not taken yet: values [N, H] and measures [N, S]. It is
    taken by the next norm of the streams, which is one operator with it."""

    values: Tensor
    measures: Tensor


def norm_streams(
    residual: Tensor, pending: Injection | None, weight: Tensor, hidden: int, eps: float
) -> Tensor:
    """The streams [N, S * H], each normalised after they took `pending` in place."""
    if pending is None:
        normed: Tensor = flare.group_rms_norm(residual, weight, hidden, eps, CENTRED_GAIN)
        return normed
    taken: Tensor = flare.inject_group_rms_norm(
        residual, pending.values, pending.measures, weight, eps, CENTRED_GAIN
    )
    return taken


class HyperConnection(nn.Module):
    """Mixes S streams [N, S * H] to a layer's input [N, H], and measures how much of its output each takes.

    `mixed = mean over streams of sigmoid(up(silu(down(n) / S))) * n` for the normalised streams n; stream s
    takes `2 * sigmoid(inject(n)_s / S)` of the output. Rows of `down_proj` are down (rank), then inject (S);
    with `injects` false there are no inject rows (the mixer behind the last layer). Source: Zhu et al.,
    "Hyper-Connections" (2024), here with a low-rank gate.
    """

    def __init__(
        self, *, hidden: int, streams: int, rank: int, eps: float, dtype: torch.dtype, injects: bool = True
    ) -> None:
        super().__init__()
        self.hidden, self.streams, self.rank, self.eps, self.injects = hidden, streams, rank, eps, injects
        width = streams * hidden
        self.norm_weight = empty_parameter(width, dtype=dtype)
        rows = rank + streams if injects else rank
        self.down_proj = nn.Linear(width, rows, bias=False, device="meta", dtype=dtype)
        self.up_proj = nn.Linear(rank, width, bias=False, device="meta", dtype=dtype)

    def forward(self, residual: Tensor, pending: Injection | None) -> tuple[Tensor, Tensor]:
        """The layer's input [N, H] and the measures [N, S] ([N, 0] without injection) of its output.

        residual [N, S * H] takes `pending` in place.
        """
        normed = norm_streams(residual, pending, self.norm_weight, self.hidden, self.eps)
        down = self.down_proj(normed)
        gate = self.up_proj(flare.scaled_silu(down[:, : self.rank], 1 / self.streams))
        return flare.gated_stream_mean(gate, normed, self.streams), down[:, self.rank :]
