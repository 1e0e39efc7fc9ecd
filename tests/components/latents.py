"""A canonical layer of latent attention with a pooled indexer, and modules that hold its weights."""

from __future__ import annotations

from functools import lru_cache

import torch
from canonical import filled
from torch import Tensor
from transformers.models.glm5_next.configuration_glm5_next import Glm5NextTextConfig
from transformers.models.glm5_next.modeling_glm5_next import Glm5NextTextAttention

from flare.contract import CacheScheme, DType, GroupedScheme, PagedScheme
from flare_components.modules import LatentAttention, PooledIndexer

HIDDEN, GROUP, BUDGET = 64, 4, 16

TINY = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 0,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "index_topk": BUDGET,
    "index_head_dim": 16,
    "index_n_heads": 16,
    "index_kpool": GROUP,
    "rms_norm_eps": 1e-5,
}


@lru_cache(maxsize=4)
def canonical_layer(seed: int = 11, **changes: int | bool) -> Glm5NextTextAttention:
    """Random weights, also where the class starts from constants. Sixteen index heads: then no scores tie."""
    config = Glm5NextTextConfig(**{**TINY, **changes})
    config._attn_implementation = "eager"
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layer = Glm5NextTextAttention(config, 1).eval().requires_grad_(False)
        for name, weight in layer.named_parameters():
            scale = 0.3 if weight.dim() == 1 or "ape" in name else weight.shape[-1] ** -0.5
            weight.normal_(std=scale)
            if "norm.weight" in name or "layernorm.weight" in name:
                weight.add_(1)
    return layer


def expected(layer: Glm5NextTextAttention, x: Tensor) -> Tensor:
    """Outputs [T, hidden] of one sequence x [T, hidden], in one call."""
    mask = torch.ones(1, x.shape[0], dtype=torch.bool)
    out: Tensor = layer(x.unsqueeze(0), mask)[0][0]
    return out


def replacement(source: Glm5NextTextAttention, dtype: torch.dtype = torch.float32) -> LatentAttention:
    """The module for serving."""
    config = source.config
    indexer = PooledIndexer(
        hidden=config.hidden_size,
        query_rank=config.q_lora_rank,
        heads=config.index_n_heads,
        head_dim=config.index_head_dim,
        group=config.index_kpool,
        budget=config.index_topk,
        layer=0,
        eps=source.indexer.k_norm.eps,
        dtype=dtype,
    )
    module = LatentAttention(
        indexer,
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        query_rank=config.q_lora_rank,
        rank=config.kv_lora_rank,
        key_dim=config.qk_nope_head_dim,
        value_dim=config.v_head_dim,
        layer=0,
        eps=config.rms_norm_eps,
        bias=config.attention_bias,
        dtype=dtype,
    )
    index, up = source.indexer, source.kv_b_proj.weight.unflatten(0, (config.num_attention_heads, -1))
    weights = {
        "qkv_a_proj.weight": torch.cat((source.q_a_proj.weight, source.kv_a_proj_with_mqa.weight)),
        "q_a_norm_weight": source.q_a_layernorm.weight,
        "kv_a_norm_weight": source.kv_a_layernorm.weight,
        "q_b_proj.weight": source.q_b_proj.weight,
        "key_up": up[:, : config.qk_nope_head_dim],
        "value_up": up[:, config.qk_nope_head_dim :],
        "o_proj.weight": source.o_proj.weight,
        "indexer.q_proj.weight": index.wq_b.weight,
        "indexer.k_proj.weight": index.wk.weight,
        "indexer.gate_proj.weight": torch.cat((index.index_kpool_compress_gate, index.weights_proj.weight)),
        "indexer.k_norm_weight": index.k_norm.weight,
        "indexer.k_norm_bias": index.k_norm.bias,
        "indexer.gate_bias": index.index_kpool_compress_ape,
    }
    if config.attention_bias:
        weights["qkv_a_proj.bias"] = torch.cat((source.q_a_proj.bias, source.kv_a_proj_with_mqa.bias))
        weights["o_proj.bias"] = source.o_proj.bias
    return filled(module, {name: weight.to(dtype).contiguous() for name, weight in weights.items()})


def schemes(source: Glm5NextTextAttention, dtype: DType = DType.F32) -> tuple[CacheScheme, ...]:
    """The state of the one layer."""
    config = source.config
    width = config.index_head_dim
    return (
        PagedScheme(name="latent", dtype=dtype, shape=(config.kv_lora_rank,)),
        GroupedScheme(
            name="selector",
            dtype=dtype,
            shape=(width,),
            group=config.index_kpool,
            open_shape=(2, width),
            open_dtype=dtype,
        ),
    )
