"""The served model: Transformers' Llama with attention, MLP and norms replaced."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import (
    LlamaAttention,
    LlamaDecoderLayer,
    LlamaMLP,
    LlamaModel,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)

from flare.contract import DType
from flare.prepare import serving_dtype
from flare.recipes import BuiltModel
from flare_components.modules import PackedGatedMLP, PagedAttention, RMSNorm
from flare_components.modules.attention import PagedContext
from flare_components.serving import Batch, ModelState


class ServedLlama(nn.Module):
    """`Forward` around the canonical module tree. The decoder layers, embedding, rotary frequencies and
    head are Transformers'; `LlamaModel.forward` is not called because it builds masks and grows caches."""

    def __init__(self, canonical: LlamaForCausalLM) -> None:
        super().__init__()
        self.model = canonical.model
        self.lm_head = canonical.lm_head

    def hidden(self, batch: Batch, state: ModelState) -> Tensor:
        """Final normalized hidden vectors [N, H]."""
        hidden: Tensor = self.model.embed_tokens(batch.ids.clamp(min=0))
        rotary = self.model.rotary_emb(hidden, position_ids=batch.positions)
        context = PagedContext(batch, state)
        for layer in self.model.layers:
            hidden = layer(hidden, position_embeddings=rotary, cache=context)
        normed: Tensor = self.model.norm(hidden)
        return normed

    def logits(self, hidden: Tensor) -> Tensor:
        """Vocabulary logits [k, V]."""
        logits: Tensor = self.lm_head(hidden)
        return logits


class LlamaReplacements:
    """The replacements part of the recipe."""

    def build(self, config: LlamaConfig, dtype: DType) -> BuiltModel:
        """`LlamaForCausalLM` on the meta device, smallest modules replaced."""
        torch_dtype = serving_dtype(dtype)
        with torch.device("meta"):
            canonical = LlamaForCausalLM(config).to(torch_dtype).eval()
        # Frequencies are computed, not read: they need real storage.
        rotary = LlamaRotaryEmbedding(config)
        constants = {"model.rotary_emb.inv_freq": rotary.inv_freq}
        canonical.model.rotary_emb = _without_spare_buffers(rotary).to("meta")
        for index, layer in enumerate(canonical.model.layers):
            layer.self_attn = _attention(config, index, torch_dtype)
            layer.mlp = PackedGatedMLP(config.hidden_size, config.intermediate_size, torch_dtype)
            layer.input_layernorm = _norm(config, torch_dtype)
            layer.post_attention_layernorm = _norm(config, torch_dtype)
        canonical.model.norm = _norm(config, torch_dtype)
        canonical.tie_weights()
        return BuiltModel(
            module=ServedLlama(canonical),
            context=config.max_position_embeddings,
            constants=constants,
            retained=(LlamaDecoderLayer, LlamaRotaryEmbedding, nn.Embedding, nn.Linear),
            replaced={
                LlamaAttention.__name__: "PagedAttention: packed rows, paged cache, stacked q/k/v",
                LlamaMLP.__name__: "PackedGatedMLP: stacked gate/up projection",
                LlamaRMSNorm.__name__: "RMSNorm: one operator, fused with the residual sum",
                LlamaModel.__name__: "ServedLlama: no mask building, no cache object",
            },
        )


def _attention(config: LlamaConfig, layer: int, dtype: torch.dtype) -> PagedAttention:
    return PagedAttention(
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=head_dim(config),
        layer=layer,
        bias=config.attention_bias,
        dtype=dtype,
    )


def _norm(config: LlamaConfig, dtype: torch.dtype) -> RMSNorm:
    return RMSNorm(config.hidden_size, config.rms_norm_eps, dtype)


def _without_spare_buffers(rotary: LlamaRotaryEmbedding) -> LlamaRotaryEmbedding:
    # original_inv_freq serves dynamic rescaling, which a fixed context does not use.
    if rotary.rope_type != "default":
        raise ValueError(f"rope type {rotary.rope_type!r} is not read by this recipe")
    del rotary.original_inv_freq
    return rotary


def head_dim(config: Any) -> int:
    """Elements per attention head."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
