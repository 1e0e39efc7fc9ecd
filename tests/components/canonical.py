"""A tiny canonical model, and replacement modules that hold its weights."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import Qwen4ExpForCausalLM, Qwen4ExpTextConfig
from transformers.models.qwen4_exp.modeling_qwen4_exp import (
    Qwen4ExpTextAttention,
    Qwen4ExpTextGatedDeltaNet,
    Qwen4ExpTextGatedResidual,
    Qwen4ExpTextPLELayer,
    Qwen4ExpTextSparseMoeBlock,
)

from flare.contract import (
    ConvHistoryScheme,
    CounterScheme,
    DType,
    GroupedScheme,
    PagedScheme,
    RecurrentScheme,
    SavedHiddenScheme,
    TokenHistoryScheme,
)
from flare_components.modules import (
    ExpertMixture,
    GatedDeltaNet,
    GroupRotary,
    HyperConnection,
    NgramInjection,
    PackedGatedMLP,
    RoutedExperts,
    SelectedAttention,
    SoftmaxRouter,
)
from flare_components.serving import NgramHash

F32 = torch.float32

M = TypeVar("M", bound=nn.Module)


@lru_cache(maxsize=2)
def canonical(vocabulary: int = 512) -> Qwen4ExpForCausalLM:
    """Random weights, also where the class starts from constants. Sixteen index heads: then no scores tie."""
    config = Qwen4ExpTextConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=4096,
        linear_num_key_heads=2,
        linear_num_value_heads=6,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        linear_conv_kernel_dim=4,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=48,
        num_experts=8,
        num_experts_per_tok=3,
        layer_types=["linear_attention"] * 3 + ["full_attention"],
        hc_count=4,
        hc_lowrank=16,
        ple_layer_ids=[2],
        ple_embed_dim=64,
        ple_conv_kernel_size=4,
        ngram_size=3,
        heads_per_ngram=4,
        ngram_vocab_size_base=97,
        make_ngram_vocab_size_divisible_by=16,
        split_ngram_parts=4,
        indexer_n_heads=16,
        indexer_kv_heads=1,
        indexer_head_dim=16,
        indexer_budget=16,
        indexer_compress_ratio=4,
        output_gate_type="sigmoid",
        initializer_range=0.15,
        eos_token_id=7,
        bos_token_id=7,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 1e4,
            "partial_rotary_factor": 0.5,
            "mrope_section": [3, 3, 2],
            "mrope_interleaved": True,
        },
    )
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    with torch.random.fork_rng():
        torch.manual_seed(11)
        model = Qwen4ExpForCausalLM(config).eval()
        for weight in model.parameters():
            weight.requires_grad_(False)
            if float(weight.min()) == float(weight.max()):
                weight.add_(torch.randn(weight.shape) * 0.2)
    return model


def schemes(config: Qwen4ExpTextConfig, dtype: DType = DType.F32) -> tuple[Any, ...]:
    """The state of the tiny model; recurrent state is FP32 always."""
    linear = sum(kind == "linear_attention" for kind in config.layer_types)
    indexed = config.num_hidden_layers - linear
    key, value = config.linear_key_head_dim, config.linear_value_head_dim
    channels = 2 * config.linear_num_key_heads * key + config.linear_num_value_heads * value
    entry = (config.num_key_value_heads, config.head_dim)
    return (
        PagedScheme(name="key", layers=indexed, dtype=dtype, shape=entry),
        PagedScheme(name="value", layers=indexed, dtype=dtype, shape=entry),
        GroupedScheme(
            name="selector",
            layers=indexed,
            dtype=dtype,
            shape=(config.indexer_head_dim,),
            group=config.indexer_compress_ratio,
            open_shape=(config.indexer_head_dim,),
            open_dtype=dtype,
        ),
        RecurrentScheme(
            name="memory", layers=linear, dtype=DType.F32, shape=(config.linear_num_value_heads, key, value)
        ),
        ConvHistoryScheme(
            name="conv",
            layers=linear,
            dtype=dtype,
            channels=channels,
            taps=config.linear_conv_kernel_dim - 1,
        ),
        ConvHistoryScheme(
            name="ngram_conv",
            dtype=dtype,
            channels=config.hc_count * config.hidden_size,
            taps=(config.ple_conv_kernel_size - 1) * config.ngram_size,
        ),
        TokenHistoryScheme(name="tokens", length=config.ngram_size - 1),
        CounterScheme(name="group_position", count=3),
        SavedHiddenScheme(name="hidden", dtype=dtype, shape=(config.hidden_size,)),
    )


def delta_net(source: Qwen4ExpTextGatedDeltaNet, config: Qwen4ExpTextConfig, layer: int) -> GatedDeltaNet:
    module = GatedDeltaNet(
        hidden=config.hidden_size,
        key_heads=config.linear_num_key_heads,
        value_heads=config.linear_num_value_heads,
        key_width=config.linear_key_head_dim,
        value_width=config.linear_value_head_dim,
        taps=config.linear_conv_kernel_dim,
        layer=layer,
        eps=config.rms_norm_eps,
        gate=config.output_gate_type,
        dtype=F32,
    )
    return filled(
        module,
        {
            "in_proj_qkvz.weight": torch.cat((source.in_proj_qkv.weight, source.in_proj_z.weight)),
            "in_proj_ba.weight": torch.cat((source.in_proj_b.weight, source.in_proj_a.weight)),
            "conv_weight": source.conv1d.weight,
            "a_log": source.A_log,
            "dt_bias": source.dt_bias,
            "norm_weight": source.norm.weight,
            "out_proj.weight": source.out_proj.weight,
        },
    )


def hyper_connection(source: Qwen4ExpTextGatedResidual, config: Qwen4ExpTextConfig) -> HyperConnection:
    injects = source.block_inject_weight is not None
    module = HyperConnection(
        hidden=config.hidden_size,
        streams=config.hc_count,
        rank=config.hc_lowrank,
        eps=config.rms_norm_eps,
        dtype=F32,
        injects=injects,
    )
    rows = [source.input_mix_weight_down.weight] + ([source.block_inject_weight.weight] if injects else [])
    return filled(
        module,
        {
            "norm_weight": source.hc_norm.weight,
            "down_proj.weight": torch.cat(rows),
            "up_proj.weight": source.input_mix_weight_up.weight,
        },
    )


def ngram_injection(source: Qwen4ExpTextPLELayer, config: Qwen4ExpTextConfig) -> NgramInjection:
    module = NgramInjection(
        embed=config.ple_embed_dim,
        hidden=config.hidden_size,
        streams=config.hc_count,
        taps=config.ple_conv_kernel_size,
        dilation=config.ngram_size,
        layer=0,
        eps=config.rms_norm_eps,
        dtype=F32,
    )
    return filled(
        module,
        {
            "kv_proj.weight": torch.cat((source.key_proj.weight, source.value_proj.weight)),
            "key_norm_weight": source.norm_key.weight,
            "query_norm_weight": source.norm_query.weight,
            "conv_norm_weight": source.norm_conv.weight,
            "conv_weight": source.conv1d.weight,
        },
    )


def ngram_hash(source: Qwen4ExpTextPLELayer, config: Qwen4ExpTextConfig) -> NgramHash:
    module = NgramHash(
        order=config.ngram_size, heads=config.heads_per_ngram, boundary=source.ple_embedding.eos_token_id
    )
    return filled(
        module,
        {
            "multipliers": source.ple_embedding.layer_multipliers.unsqueeze(0),
            "moduli": source.ple_embedding.ngram_heads_vocab_sizes.unsqueeze(0),
            "offsets": source.ple_embedding.ngram_heads_offsets.unsqueeze(0),
        },
    )


def group_rotary(model: Qwen4ExpForCausalLM) -> GroupRotary:
    rotary, config = model.model.rotary_emb, model.config
    module = GroupRotary(
        frequencies=len(rotary.inv_freq),
        shares=rotary.mrope_section,
        group=config.indexer_compress_ratio,
        dtype=F32,
        scale=rotary.attention_scaling,
    )
    return filled(module, {"frequencies": rotary.inv_freq})


def selected_attention(
    source: Qwen4ExpTextAttention, config: Qwen4ExpTextConfig, budget: int | None = None
) -> SelectedAttention:
    module = SelectedAttention(
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        index_heads=config.indexer_n_heads,
        index_dim=config.indexer_head_dim,
        group=config.indexer_compress_ratio,
        budget=budget or config.indexer_budget,
        layer=0,
        eps=config.rms_norm_eps,
        bias=config.attention_bias,
        dtype=F32,
    )
    indexer = source.indexer
    return filled(
        module,
        {
            "qkv_proj.weight": torch.cat((source.q_proj.weight, source.k_proj.weight, source.v_proj.weight)),
            "o_proj.weight": source.o_proj.weight,
            "index_proj.weight": indexer.index_qk_proj.weight,
            "q_norm_weight": source.q_norm.weight,
            "k_norm_weight": source.k_norm.weight,
            "index_q_norm_weight": indexer.q_layernorm.weight,
            "index_k_norm_weight": indexer.k_layernorm.weight,
        },
    )


def expert_mixture(source: Qwen4ExpTextSparseMoeBlock, config: Qwen4ExpTextConfig) -> ExpertMixture:
    module = ExpertMixture(
        SoftmaxRouter(config.hidden_size, config.num_experts, config.num_experts_per_tok, F32),
        RoutedExperts(config.num_experts, config.hidden_size, config.moe_intermediate_size, F32),
        PackedGatedMLP(config.hidden_size, config.shared_expert_intermediate_size, F32),
    )
    shared = source.shared_expert
    return filled(
        module,
        {
            "router.proj.weight": torch.cat((source.gate.weight, source.shared_expert_gate.weight)),
            "experts.gate_up": source.experts.gate_up_proj,
            "experts.down": source.experts.down_proj,
            "shared.gate_up_proj.weight": torch.cat((shared.gate_proj.weight, shared.up_proj.weight)),
            "shared.down_proj.weight": shared.down_proj.weight,
        },
    )


class ProgramLinear(nn.Linear):
    """What a program makes of a projection: one operator, whose rows do not depend on their number."""

    def forward(self, x: Tensor) -> Tensor:
        product: Tensor = torch.ops.flare.linear(x, self.weight, self.bias)
        return product


def filled(module: M, weights: dict[str, Tensor]) -> M:
    types = {name: tensor.dtype for name, tensor in module.state_dict().items()}
    given = {name: weight.detach().to(types.get(name, weight.dtype)) for name, weight in weights.items()}
    module.load_state_dict(given, assign=True)
    for part in module.modules():
        if type(part) is nn.Linear:
            part.__class__ = ProgramLinear
    return module.requires_grad_(False)
