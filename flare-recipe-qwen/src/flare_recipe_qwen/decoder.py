"""The served model: the canonical module tree, its layers joined where one pending output is injected."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from transformers import Qwen4ExpForCausalLM

from flare.contract import TableResource
from flare_components.modules import ImageEncoder, Injection, NgramInjection
from flare_components.serving import Batch, ModelState


class ServedQwen(nn.Module):
    """`Forward` around the canonical tree, and the `image_encoder` that it may have. `tables` are those whose
    rows its batches must have.

    The streams of a row stay in one tensor that every layer's injection changes in place; an output waits
    until the next norm of the streams, which takes it in the same operator.
    """

    def __init__(
        self,
        canonical: Qwen4ExpForCausalLM,
        tables: Sequence[TableResource],
        image_encoder: ImageEncoder | None = None,
    ) -> None:
        super().__init__()
        self.model = canonical.model
        self.lm_head = canonical.lm_head
        self.streams: int = canonical.config.hc_count
        self.tables = tuple(tables)
        self.image_encoder = image_encoder

    def hidden(self, batch: Batch, state: ModelState) -> Tensor:
        """Rows [N, H] for the head: the mixed streams, which no final norm follows."""
        embedded = batch.with_features(self.model.embed_tokens(batch.ids.clamp(min=0)))
        residual = embedded.repeat(1, self.streams)
        turns = self.model.rotary_emb(batch.axial_positions(), batch, state)
        pending: Injection | None = None
        for layer in self.model.layers:
            if layer.ple is not None:
                layer.ple(residual, pending, batch, state)
                pending = None
            x, measures = layer.attn_hyper_connection(residual, pending)
            if layer.layer_type == "linear_attention":
                mixed = layer.linear_attn(x, batch, state)
            else:
                mixed = layer.self_attn(x, turns, batch, state)
            x, measures = layer.mlp_hyper_connection(residual, Injection(mixed, measures))
            pending = Injection(layer.mlp(x, batch.lanes), measures)
        last: Tensor = self.model.hyper_connection_mixer(residual, pending)[0]
        return last

    def logits(self, hidden: Tensor) -> Tensor:
        """Vocabulary logits [k, V]."""
        logits: Tensor = self.lm_head(hidden)
        return logits


class NgramLayer(nn.Module):
    """Rows of table `table`, decoded by `embedding`, injected into the streams."""

    def __init__(self, table: str, embedding: nn.Module, injection: NgramInjection) -> None:
        super().__init__()
        self.table, self.embedding, self.injection = table, embedding, injection

    def forward(self, residual: Tensor, pending: Injection | None, batch: Batch, state: ModelState) -> None:
        """residual [N, S * H] takes `pending`, then the injection, in place."""
        embeddings = self.embedding(batch.table_rows[self.table])
        self.injection(residual, pending, embeddings, batch, state)
