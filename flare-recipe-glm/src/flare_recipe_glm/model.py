"""Replacement: the canonical text model on the meta device, its layers' modules exchanged."""

from __future__ import annotations

import torch
from torch import nn
from transformers import Glm5NextTextModel
from transformers.models.glm5_next.modeling_glm5_next import (
    Glm5NextTextAttention,
    Glm5NextTextDecoderLayer,
    Glm5NextTextHyperConnection,
    Glm5NextTextHyperHead,
    Glm5NextTextLinearAttention,
    Glm5NextTextMLP,
    Glm5NextTextMoE,
    Glm5NextTextRMSNorm,
)

from flare.contract import DType
from flare.prepare import serving_dtype
from flare.recipes import BuiltModel
from flare_components.modules import (
    BalancedHyperConnection,
    ChannelDeltaNet,
    ExpertMixture,
    LatentAttention,
    PackedGatedMLP,
    PooledIndexer,
    RMSNorm,
    SigmoidRouter,
    experts_for,
    keep_formats,
)
from flare_recipe_glm.config import ModelConfig
from flare_recipe_glm.decoder import ServedGlm
from flare_recipe_glm.names import LayerNames
from flare_recipe_glm.tensors import experts_name, linear_sources
from flare_recipe_glm.vision import REPLACED, RETAINED, image_encoder

INDEX_NORM_EPS = 1e-6
"""Of the norm of index keys, which has one of its own in Transformers' class."""


class GlmReplacements:
    """The replacements part of the recipe."""

    def build(self, config: ModelConfig, dtype: DType) -> BuiltModel:
        """The model for serving, without weights."""
        text, parts = config.text, _Parts(config, serving_dtype(dtype))
        with torch.device("meta"):
            model = Glm5NextTextModel(text).to(parts.dtype).eval()
            head = nn.Linear(text.hidden_size, text.vocab_size, bias=False, dtype=parts.dtype)
        del model.hc_head
        model.norm = parts.norm()
        for index, layer in enumerate(model.layers):
            place = text.layer_types[:index].count(text.layer_types[index])
            linear = text.layer_types[index] == "linear_attention"
            layer.self_attn = parts.delta_net(place) if linear else parts.attention(place)
            sparse = text.mlp_layer_types[index] == "sparse"
            layer.mlp = parts.experts(index) if sparse else parts.network(text.intermediate_size)
            layer.input_layernorm, layer.post_attention_layernorm = parts.norm(), parts.norm()
            layer.attn_hc, layer.ffn_hc = (parts.hyper_connection(index, site) for site in ("attn", "ffn"))
        constants, retained, replaced = {}, (nn.Embedding,), _REPLACED
        encoder = None
        if config.images is not None:
            encoder, frequencies = image_encoder(config.images, parts.dtype)
            constants["image_encoder.frequencies"] = frequencies
            retained, replaced = retained + RETAINED, {**replaced, **REPLACED}
        served = ServedGlm(model, head, encoder)
        keep_formats(served, config.formats, linear_sources(config))
        return BuiltModel(
            module=served,
            context=text.max_position_embeddings,
            constants=constants,
            retained=retained,
            replaced=replaced,
        )


_REPLACED = {
    Glm5NextTextModel.__name__: "ServedGlm: packed rows, no masks, no cache object",
    Glm5NextTextDecoderLayer.__name__: "ServedGlm: outputs are taken by the next connection of the streams",
    Glm5NextTextHyperConnection.__name__: "BalancedHyperConnection: taking, norm and mixture in one operator",
    Glm5NextTextHyperHead.__name__: "ServedGlm: the mean of streams that lie in one row",
    Glm5NextTextRMSNorm.__name__: "RMSNorm: one operator",
    Glm5NextTextLinearAttention.__name__: "ChannelDeltaNet: state of the caller, stacked projections",
    Glm5NextTextAttention.__name__: "LatentAttention: paged latents, pooled index keys, nothing expanded",
    Glm5NextTextMLP.__name__: "PackedGatedMLP: stacked projections",
    Glm5NextTextMoE.__name__: "ExpertMixture: weights stay in the format they are stored in",
}


class _Parts:
    """Builds the modules of one model, on the meta device."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype) -> None:
        self.config, self.text, self.dtype = config, config.text, dtype

    def norm(self) -> RMSNorm:
        return RMSNorm(self.text.hidden_size, self.text.rms_norm_eps, self.dtype)

    def hyper_connection(self, layer: int, site: str) -> BalancedHyperConnection:
        text = self.text
        names = LayerNames(f"{self.config.prefix}.layers.{layer}", self.config.tensors)
        stored = self.config.tensors.get(names.tensor(f"hc_{site}_fn"))
        exact = stored is not None and stored.dtype == DType.F32.value
        return BalancedHyperConnection(
            hidden=text.hidden_size,
            streams=text.hc_mult,
            eps=text.rms_norm_eps,
            balance_eps=text.hc_eps,
            iterations=text.hc_sinkhorn_iters,
            weight_dtype=torch.float32 if exact else self.dtype,
        )

    def delta_net(self, place: int) -> ChannelDeltaNet:
        text = self.text
        return ChannelDeltaNet(
            hidden=text.hidden_size,
            heads=text.linear_num_heads,
            width=text.linear_head_dim,
            rank=text.linear_head_dim,
            taps=text.linear_conv_kernel_dim,
            layer=place,
            eps=text.rms_norm_eps,
            dtype=self.dtype,
            lower_bound=text.linear_lower_bound,
        )

    def attention(self, place: int) -> LatentAttention:
        text = self.text
        indexer = PooledIndexer(
            hidden=text.hidden_size,
            query_rank=text.q_lora_rank,
            heads=text.index_n_heads,
            head_dim=text.index_head_dim,
            group=text.index_kpool,
            budget=text.index_topk,
            layer=place,
            eps=INDEX_NORM_EPS,
            dtype=self.dtype,
        )
        return LatentAttention(
            indexer,
            hidden=text.hidden_size,
            heads=text.num_attention_heads,
            query_rank=text.q_lora_rank,
            rank=text.kv_lora_rank,
            key_dim=text.qk_nope_head_dim,
            value_dim=text.v_head_dim,
            layer=place,
            eps=text.rms_norm_eps,
            bias=False,
            dtype=self.dtype,
        )

    def network(self, inner: int) -> PackedGatedMLP:
        return PackedGatedMLP(self.text.hidden_size, inner, self.dtype, limit=self.text.swiglu_limit)

    def experts(self, layer: int) -> ExpertMixture:
        text = self.text
        number, hidden = text.n_routed_experts, text.hidden_size
        routed = experts_for(
            self.config.formats,
            experts_name(self.config, layer),
            number,
            hidden,
            text.moe_intermediate_size,
            self.dtype,
            limit=text.swiglu_limit,
        )
        return ExpertMixture(
            SigmoidRouter(hidden, number, text.num_experts_per_tok, scale=text.routed_scaling_factor),
            routed,
            self.network(text.moe_intermediate_size * text.n_shared_experts),
        )
