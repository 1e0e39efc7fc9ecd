"""Several residual streams around one layer, mixed by a doubly stochastic matrix."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from flare_components.modules.parameters import empty_parameter

flare = torch.ops.flare


@dataclass(frozen=True)
class Expansion:
    """The output of a layer that S streams have not taken yet: values [N, H], their measures post f32[N, S]
    and the mixture comb f32[N, S, S]. It is taken by the connection of the next layer, which is one operator
    with it, or by `take` behind the last."""

    values: Tensor
    post: Tensor
    comb: Tensor

    def take(self, residual: Tensor) -> None:
        """The streams [N, S * H] take it in place."""
        flare.expand_streams(residual, self.values, self.post, self.comb)


class BalancedHyperConnection(nn.Module):
    """Mixes S streams [N, S * H] to a layer's input, and says how they take its output.

    `weight` [S * (S + 2), S * H] projects all streams, normalised together, to S shares of the input, S
    measures of the output and the S * S mixture, which `iterations` of Sinkhorn and Knopp make doubly
    stochastic; `base` and `scale` (one of each kind) are FP32, and so is all arithmetic. weight_dtype: of
    `weight`, the type of the streams or FP32. eps: of the norm; balance_eps: added to shares, and to sums
    that are divided by. Source: Xie et al. (arXiv 2512.24880).
    """

    def __init__(
        self,
        *,
        hidden: int,
        streams: int,
        eps: float,
        balance_eps: float,
        iterations: int,
        weight_dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.settings = eps, balance_eps, iterations
        rows = streams * (streams + 2)
        self.weight = empty_parameter(rows, streams * hidden, dtype=weight_dtype)
        self.base = empty_parameter(rows, dtype=torch.float32)
        self.scale = empty_parameter(3, dtype=torch.float32)

    def forward(self, residual: Tensor, pending: Expansion | None) -> tuple[Tensor, Tensor, Tensor]:
        """The layer's input [N, H], and post and comb of the `Expansion` that its output is to become.

        residual [N, S * H] takes `pending` in place.
        """
        own = self.weight, self.base, self.scale, *self.settings
        made: tuple[Tensor, Tensor, Tensor]
        if pending is None:
            made = flare.collapse_streams(residual, *own)
        else:
            made = flare.expand_collapse_streams(residual, pending.values, pending.post, pending.comb, *own)
        return made
