"""The served model: the canonical module tree, its layers joined where the streams take a pending output."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import Glm5NextTextModel

from flare_components.modules import Expansion, ImageEncoder
from flare_components.serving import Batch, ModelState
from flare_recipe_glm.schemes import CONSUMED


class ServedGlm(nn.Module):
    """`Forward` around the canonical tree, and the `image_encoder` that it may have.

    The streams of a row stay in one tensor that every layer's connection changes in place; an output waits
    until the next connection, which takes it in the same operator.
    """

    def __init__(
        self, model: Glm5NextTextModel, lm_head: nn.Module, image_encoder: ImageEncoder | None = None
    ) -> None:
        super().__init__()
        self.model, self.lm_head = model, lm_head
        self.streams: int = model.config.hc_mult
        self.kinds: list[str] = model.config.mlp_layer_types
        self.image_encoder = image_encoder

    def hidden(self, batch: Batch, state: ModelState) -> Tensor:
        """Rows [N, H] for the head: the mean of the streams, normalised."""
        embedded = batch.with_features(self.model.embed_tokens(batch.ids.clamp(min=0)))
        residual = embedded.repeat(1, self.streams)
        pending: Expansion | None = None
        for layer, kind in zip(self.model.layers, self.kinds, strict=True):
            x, *measures = layer.attn_hc(residual, pending)
            mixed = layer.self_attn(layer.input_layernorm(x), batch, state)
            x, *measures = layer.ffn_hc(residual, Expansion(mixed, *measures))
            x = layer.post_attention_layernorm(x)
            fed = layer.mlp(x, batch.lanes) if kind == "sparse" else layer.mlp(x)
            pending = Expansion(fed, *measures)
        assert pending is not None, "a model has layers"
        pending.take(residual)
        torch.ops.flare.scatter_rows(
            state.rows[CONSUMED][0], batch.live_rows, batch.context_lens.unsqueeze(1)
        )
        last: Tensor = self.model.norm(torch.ops.flare.stream_mean(residual, self.streams))
        return last

    def logits(self, hidden: Tensor) -> Tensor:
        """Vocabulary logits [k, V]."""
        logits: Tensor = self.lm_head(hidden)
        return logits
