"""Embeddings of the last few tokens, injected into every residual stream."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flare_components.modules.hyper_connection import Injection, norm_streams
from flare_components.modules.parameters import CENTRED_GAIN, empty_parameter
from flare_components.serving.batch import Batch, ModelState

flare = torch.ops.flare


class NgramInjection(nn.Module):
    """`streams += v + silu(conv(norm(v)))` with `v = sigmoid(root(norm(key(e)) . norm(stream))) * value(e)`.

    e [N, embed] are the concatenated table rows of a position (`NgramHash` says which). Rows of `kv_proj` are
    the keys of all streams, then the value. State, layer `layer` of scheme `history`: convolution history
    over all S * hidden channels, (taps - 1) * dilation entries. Source: "Conditional Memory via Scalable
    Lookup" (arXiv 2601.07372), here with a gate for every residual stream.
    """

    def __init__(
        self,
        *,
        embed: int,
        hidden: int,
        streams: int,
        taps: int,
        dilation: int,
        layer: int,
        eps: float,
        dtype: torch.dtype,
        history: str = "ngram_conv",
    ) -> None:
        super().__init__()
        self.hidden, self.dilation, self.layer, self.eps, self.history = hidden, dilation, layer, eps, history
        self.width = streams * hidden
        self.kv_proj = nn.Linear(embed, self.width + hidden, bias=False, device="meta", dtype=dtype)
        self.key_norm_weight = empty_parameter(self.width, dtype=dtype)
        self.query_norm_weight = empty_parameter(self.width, dtype=dtype)
        self.conv_norm_weight = empty_parameter(self.width, dtype=dtype)
        self.conv_weight = empty_parameter(self.width, 1, taps, dtype=dtype)

    def forward(
        self, residual: Tensor, pending: Injection | None, embeddings: Tensor, batch: Batch, state: ModelState
    ) -> None:
        """residual [N, S * hidden] takes `pending`, then the injection, in place. embeddings [N, embed]."""
        query = norm_streams(residual, pending, self.query_norm_weight, self.hidden, self.eps)
        key, value = self.kv_proj(embeddings).split([self.width, self.hidden], 1)
        gated = flare.gated_streams(self._norm(key, self.key_norm_weight), query, value)
        convolved = flare.short_conv(
            self._norm(gated, self.conv_norm_weight),
            self.conv_weight,
            state.rows[self.history][self.layer],
            batch.query_start,
            batch.live_rows,
            self.dilation,
        )
        residual.add_(convolved.add_(gated))

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        normed: Tensor = flare.group_rms_norm(x, weight, self.hidden, self.eps, CENTRED_GAIN)
        return normed
