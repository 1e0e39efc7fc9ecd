"""A tiny canonical image encoder, and the replacement module with its weights."""

from __future__ import annotations

import torch
from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpVisionConfig
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpVisionModel

from flare_components.modules import FrameAttention, Gelu, ImageEncoder


def canonical_tower(hidden: int = 32, heads: int = 2, width: int = 64, seed: int = 0) -> Qwen4ExpVisionModel:
    """Random weights, also where the class starts from constants."""
    config = Qwen4ExpVisionConfig(
        depth=2,
        hidden_size=hidden,
        num_heads=heads,
        intermediate_size=2 * hidden,
        out_hidden_size=width,
        num_position_embeddings=64,
        patch_size=4,
        temporal_patch_size=2,
        spatial_merge_size=2,
    )
    tower = Qwen4ExpVisionModel(config).eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter in tower.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.2
    return tower


def image_encoder(tower: Qwen4ExpVisionModel) -> ImageEncoder:
    """The replacement of `tower`, with its weights and its blocks."""
    config, dtype = tower.config, tower.dtype
    for block in tower.blocks:
        attention = FrameAttention(hidden=config.hidden_size, heads=config.num_heads, bias=True, dtype=dtype)
        attention.load_state_dict(block.attn.state_dict(), assign=True)
        block.attn, block.mlp.act_fn = attention, Gelu(approximate=True)
    tower.merger.act_fn = Gelu(approximate=False)
    encoder = ImageEncoder(
        patch_elements=3 * config.temporal_patch_size * config.patch_size**2,
        hidden=config.hidden_size,
        width=config.out_hidden_size,
        side=tower.num_grid_per_side,
        frequencies=len(tower.rotary_pos_emb.inv_freq),
        merge=config.spatial_merge_size,
        blocks=tower.blocks,
        merger=tower.merger,
        dtype=dtype,
    )
    embedding = tower.patch_embed.proj
    stored = {
        "patch_proj.weight": embedding.weight.flatten(1),
        "patch_proj.bias": embedding.bias,
        "position_table": tower.pos_embed.weight,
        "frequencies": tower.rotary_pos_emb.inv_freq,
    }
    encoder.load_state_dict(stored, strict=False, assign=True)
    return encoder.eval()
