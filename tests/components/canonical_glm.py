"""A tiny canonical model with channel-wise decay and balanced streams, and modules that hold its weights."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from canonical import F32, filled
from torch import nn
from transformers import Glm5NextTextConfig
from transformers.models.glm5_next.modeling_glm5_next import (
    Glm5NextTextHyperConnection,
    Glm5NextTextLinearAttention,
    Glm5NextTextMLP,
    Glm5NextTextModel,
    Glm5NextTextMoE,
)

from flare.contract import ConvHistoryScheme, DType, RecurrentScheme
from flare_components.modules import (
    BalancedHyperConnection,
    ChannelDeltaNet,
    ExpertMixture,
    PackedGatedMLP,
    RoutedExperts,
    SigmoidRouter,
)


def text_config(**changes: Any) -> Glm5NextTextConfig:
    """Five layers, the fourth with sparse attention; sixteen index heads, so that no scores tie."""
    fields: dict[str, Any] = {
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 96,
        "moe_intermediate_size": 32,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "n_shared_experts": 1,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "routed_scaling_factor": 2.5,
        "kv_lora_rank": 32,
        "q_lora_rank": 24,
        "qk_rope_head_dim": 0,
        "qk_nope_head_dim": 16,
        "v_head_dim": 16,
        "index_topk": 16,
        "index_head_dim": 16,
        "index_n_heads": 16,
        "index_kpool": 4,
        "layer_types": ["linear_attention"] * 3 + ["deepseek_sparse_attention", "linear_attention"],
        "mlp_layer_types": ["dense"] + ["sparse"] * 4,
        "indexer_types": ["full"] * 5,
        "linear_head_dim": 16,
        "linear_num_heads": 4,
        "linear_conv_kernel_dim": 4,
        "linear_lower_bound": -5.0,
        "hc_mult": 4,
        "max_position_embeddings": 4096,
        "pad_token_id": 0,
        "initializer_range": 0.15,
        "eos_token_id": [7],
    }
    return Glm5NextTextConfig(**(fields | changes))


def randomized(model: nn.Module, seed: int = 1) -> nn.Module:
    """Noise for every tensor that starts as one constant, so that all of them matter."""
    noise = torch.Generator().manual_seed(seed)
    biases = [b for name, b in model.named_buffers() if name.endswith("e_score_correction_bias")]
    for tensor in (*model.parameters(), *biases):
        tensor.requires_grad_(False)
        if float(tensor.min()) == float(tensor.max()):
            tensor.add_(torch.randn(tensor.shape, generator=noise) * 0.2)
    return model.eval()


@lru_cache(maxsize=1)
def canonical_glm() -> Glm5NextTextModel:
    """Random weights. A limit that many gates and ups exceed."""
    config = text_config(swiglu_limit=0.6)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    with torch.random.fork_rng():
        torch.manual_seed(11)
        return randomized(Glm5NextTextModel(config).float())


def linear_schemes(config: Glm5NextTextConfig, dtype: DType = DType.F32) -> tuple[Any, ...]:
    """The state of the layers with linear attention."""
    layers = config.layer_types.count("linear_attention")
    heads, width = config.linear_num_heads, config.linear_head_dim
    return (
        RecurrentScheme(name="memory", layers=layers, dtype=DType.F32, shape=(heads, width, width)),
        ConvHistoryScheme(
            name="conv",
            layers=layers,
            dtype=dtype,
            channels=3 * heads * width,
            taps=config.linear_conv_kernel_dim - 1,
        ),
    )


def channel_delta_net(
    source: Glm5NextTextLinearAttention, config: Glm5NextTextConfig, layer: int, dtype: torch.dtype = F32
) -> ChannelDeltaNet:
    module = ChannelDeltaNet(
        hidden=config.hidden_size,
        heads=config.linear_num_heads,
        width=config.linear_head_dim,
        rank=config.linear_head_dim,
        taps=config.linear_conv_kernel_dim,
        layer=layer,
        eps=config.rms_norm_eps,
        dtype=dtype,
        lower_bound=config.linear_lower_bound,
    )
    forget = source.forget_gate
    return filled(
        module,
        {
            "in_proj_qkv.weight": torch.cat(
                [part.weight for part in (source.q_proj, source.k_proj, source.v_proj)]
            ),
            "in_proj_low.weight": torch.cat(
                [part.weight for part in (forget.f_a_proj, source.g_a_proj, source.b_proj)]
            ),
            "decay_proj.weight": forget.f_b_proj.weight,
            "gate_proj.weight": source.g_b_proj.weight,
            "conv_weight": source.conv1d.weight,
            "a_log": forget.A_log,
            "dt_bias": forget.dt_bias,
            "norm_weight": source.o_norm.weight,
            "out_proj.weight": source.o_proj.weight,
        },
    )


def balanced_hyper_connection(
    source: Glm5NextTextHyperConnection, config: Glm5NextTextConfig, dtype: torch.dtype = F32
) -> BalancedHyperConnection:
    module = BalancedHyperConnection(
        hidden=config.hidden_size,
        streams=config.hc_mult,
        eps=config.rms_norm_eps,
        balance_eps=config.hc_eps,
        iterations=config.hc_sinkhorn_iters,
        weight_dtype=dtype,
    )
    return filled(module, {"weight": source.fn, "base": source.base, "scale": source.scale})


def gated_mlp(
    source: Glm5NextTextMLP, config: Glm5NextTextConfig, dtype: torch.dtype = F32
) -> PackedGatedMLP:
    inner = source.gate_proj.weight.shape[0]
    module = PackedGatedMLP(config.hidden_size, inner, dtype, limit=config.swiglu_limit)
    return filled(module, mlp_weights(source))


def mlp_weights(source: Glm5NextTextMLP, prefix: str = "") -> dict[str, torch.Tensor]:
    return {
        f"{prefix}gate_up_proj.weight": torch.cat((source.gate_proj.weight, source.up_proj.weight)),
        f"{prefix}down_proj.weight": source.down_proj.weight,
    }


def sigmoid_mixture(
    source: Glm5NextTextMoE, config: Glm5NextTextConfig, dtype: torch.dtype = F32
) -> ExpertMixture:
    hidden, inner, limit = config.hidden_size, config.moe_intermediate_size, config.swiglu_limit
    number, chosen = config.n_routed_experts, config.num_experts_per_tok
    module = ExpertMixture(
        SigmoidRouter(hidden, number, chosen, scale=config.routed_scaling_factor),
        RoutedExperts(number, hidden, inner, dtype, limit=limit),
        PackedGatedMLP(hidden, inner * config.n_shared_experts, dtype, limit=limit),
    )
    return filled(
        module,
        {
            "router.proj.weight": source.gate.weight,
            "router.bias": source.gate.e_score_correction_bias,
            "experts.gate_up": source.experts.gate_up_proj,
            "experts.down": source.experts.down_proj,
            **mlp_weights(source.shared_experts, "shared."),
        },
    )
