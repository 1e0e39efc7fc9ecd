"""Replacement: the canonical causal model on the meta device, its layers' modules exchanged."""

from __future__ import annotations

import torch
from torch import nn
from transformers import Qwen4ExpForCausalLM
from transformers.models.qwen4_exp.modeling_qwen4_exp import (
    Qwen4ExpTextAttention,
    Qwen4ExpTextDecoderLayer,
    Qwen4ExpTextGatedDeltaNet,
    Qwen4ExpTextGatedResidual,
    Qwen4ExpTextModel,
    Qwen4ExpTextPLELayer,
    Qwen4ExpTextRotaryEmbedding,
    Qwen4ExpTextSparseMoeBlock,
)

from flare.contract import DType
from flare.prepare import serving_dtype
from flare.recipes import BuiltModel
from flare_components.modules import (
    ExpertMixture,
    GatedDeltaNet,
    GroupRotary,
    HyperConnection,
    NgramInjection,
    PackedGatedMLP,
    SelectedAttention,
    SoftmaxRouter,
    TableEmbedding,
    experts_for,
    keep_formats,
)
from flare_recipe_qwen.config import ModelConfig
from flare_recipe_qwen.decoder import NgramLayer, ServedQwen
from flare_recipe_qwen.tables import NgramTable, ngram_tables
from flare_recipe_qwen.tensors import experts_name, linear_sources
from flare_recipe_qwen.vision import REPLACED, RETAINED, image_encoder


class QwenReplacements:
    """The replacements part of the recipe."""

    def build(self, config: ModelConfig, dtype: DType) -> BuiltModel:
        """The model for serving, without weights."""
        tables = ngram_tables(config)
        text = config.text
        with torch.device("meta"):
            canonical = Qwen4ExpForCausalLM(text).to(serving_dtype(dtype)).eval()
        # Frequencies are computed, not read: they need real storage.
        rotary = Qwen4ExpTextRotaryEmbedding(text)
        parts = _Parts(config, serving_dtype(dtype))
        model = canonical.model
        model.rotary_emb = parts.rotary(rotary)
        model.hyper_connection_mixer = parts.hyper_connection(injects=False)
        by_layer = {table.layer: (index, table) for index, table in enumerate(tables)}
        for index, layer in enumerate(model.layers):
            if layer.layer_type == "linear_attention":
                layer.linear_attn = parts.delta_net(_place(text.layer_types, index))
            else:
                layer.self_attn = parts.attention(_place(text.layer_types, index))
            layer.mlp = parts.experts(index)
            layer.attn_hyper_connection = parts.hyper_connection()
            layer.mlp_hyper_connection = parts.hyper_connection()
            if index in by_layer:
                layer.ple = parts.ngrams(*by_layer[index])
        constants = {"model.rotary_emb.frequencies": rotary.inv_freq}
        retained: tuple[type[nn.Module], ...] = (nn.Embedding,)
        replaced, encoder = _REPLACED, None
        if config.images is not None:
            encoder, frequencies = image_encoder(config.images, parts.dtype)
            constants["image_encoder.frequencies"] = frequencies
            retained, replaced = retained + RETAINED, {**replaced, **REPLACED}
        served = ServedQwen(canonical, [table.resource for table in tables], encoder)
        keep_formats(served, config.formats, linear_sources(config))
        return BuiltModel(
            module=served,
            context=text.max_position_embeddings,
            constants=constants,
            retained=retained,
            replaced=replaced,
        )


_REPLACED = {
    Qwen4ExpTextModel.__name__: "ServedQwen: packed rows, no masks, no cache object",
    Qwen4ExpTextDecoderLayer.__name__: "ServedQwen: outputs are injected by the next norm of the streams",
    Qwen4ExpTextGatedResidual.__name__: "HyperConnection: injection, norm and measures in few operators",
    Qwen4ExpTextGatedDeltaNet.__name__: "GatedDeltaNet: state of the caller, stacked projections",
    Qwen4ExpTextAttention.__name__: "SelectedAttention: paged keys, pooled index keys, stacked projections",
    Qwen4ExpTextRotaryEmbedding.__name__: "GroupRotary: tables of rows and of their groups",
    Qwen4ExpTextSparseMoeBlock.__name__: "ExpertMixture: weights stay in the format they are stored in",
    Qwen4ExpTextPLELayer.__name__: "NgramLayer: rows come in the batch, the table is never in memory",
}


def _place(kinds: list[str], index: int) -> int:
    """Number of layer `index` among those of its kind."""
    return kinds[:index].count(kinds[index])


class _Parts:
    """Builds the modules of one model, on the meta device."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype) -> None:
        self.config, self.text, self.dtype = config, config.text, dtype

    def rotary(self, canonical: Qwen4ExpTextRotaryEmbedding) -> GroupRotary:
        return GroupRotary(
            frequencies=len(canonical.inv_freq),
            shares=canonical.mrope_section,
            group=self.text.indexer_compress_ratio,
            dtype=self.dtype,
            scale=canonical.attention_scaling,
        )

    def hyper_connection(self, *, injects: bool = True) -> HyperConnection:
        text = self.text
        return HyperConnection(
            hidden=text.hidden_size,
            streams=text.hc_count,
            rank=text.hc_lowrank,
            eps=text.rms_norm_eps,
            dtype=self.dtype,
            injects=injects,
        )

    def delta_net(self, place: int) -> GatedDeltaNet:
        text = self.text
        return GatedDeltaNet(
            hidden=text.hidden_size,
            key_heads=text.linear_num_key_heads,
            value_heads=text.linear_num_value_heads,
            key_width=text.linear_key_head_dim,
            value_width=text.linear_value_head_dim,
            taps=text.linear_conv_kernel_dim,
            layer=place,
            eps=text.rms_norm_eps,
            gate=text.output_gate_type,
            dtype=self.dtype,
        )

    def attention(self, place: int) -> SelectedAttention:
        text = self.text
        return SelectedAttention(
            hidden=text.hidden_size,
            heads=text.num_attention_heads,
            kv_heads=text.num_key_value_heads,
            head_dim=text.head_dim,
            index_heads=text.indexer_n_heads,
            index_dim=text.indexer_head_dim,
            group=text.indexer_compress_ratio,
            budget=text.indexer_budget,
            layer=place,
            eps=text.rms_norm_eps,
            bias=text.attention_bias,
            dtype=self.dtype,
        )

    def experts(self, layer: int) -> ExpertMixture:
        text = self.text
        name = experts_name(self.config, layer)
        sizes = text.num_experts, text.hidden_size, text.moe_intermediate_size
        return ExpertMixture(
            SoftmaxRouter(text.hidden_size, text.num_experts, text.num_experts_per_tok, self.dtype),
            experts_for(self.config.formats, name, *sizes, self.dtype),
            PackedGatedMLP(text.hidden_size, text.shared_expert_intermediate_size, self.dtype),
        )

    def ngrams(self, place: int, table: NgramTable) -> NgramLayer:
        text = self.text
        injection = NgramInjection(
            embed=text.ple_embed_dim,
            hidden=text.hidden_size,
            streams=text.hc_count,
            taps=text.ple_conv_kernel_size,
            dilation=text.ngram_size,
            layer=place,
            eps=text.rms_norm_eps,
            dtype=self.dtype,
        )
        stored = None if table.packed else table.stored
        return NgramLayer(table.resource.name, TableEmbedding(stored, self.dtype), injection)
