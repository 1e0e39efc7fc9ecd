"""A tiny canonical image encoder, and the replacement module with its weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
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
    return randomised(Qwen4ExpVisionModel(config), seed)


def image_encoder(tower: Qwen4ExpVisionModel) -> ImageEncoder:
    """The replacement of `tower`, with its weights and its blocks."""
    config, dtype = tower.config, tower.dtype
    for block in tower.blocks:
        attention = FrameAttention(hidden=config.hidden_size, heads=config.num_heads, bias=True, dtype=dtype)
        attention.load_state_dict(block.attn.state_dict(), assign=True)
        block.attn, block.mlp.act_fn = attention, Gelu(approximate=True)
    tower.merger.act_fn = Gelu(approximate=False)
    return assembled(tower, tower.merger, {"position_table": tower.pos_embed.weight}, tower.num_grid_per_side)


def randomised(tower: Any, seed: int) -> Any:
    """Random weights, also where the class starts from constants."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in tower.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.2
    return tower.eval()


def assembled(
    tower: Any, merger: nn.Module, learned: dict[str, Tensor], side: int | None = None
) -> ImageEncoder:
    """An encoder of the blocks of `tower`, its patch embedding and what else is `learned`."""
    config = tower.config
    encoder = ImageEncoder(
        patch_elements=3 * config.temporal_patch_size * config.patch_size**2,
        hidden=config.hidden_size,
        width=config.out_hidden_size,
        side=side,
        frequencies=len(tower.rotary_pos_emb.inv_freq),
        merge=config.spatial_merge_size,
        blocks=tower.blocks,
        merger=merger,
        dtype=tower.dtype,
    )
    embedding = tower.patch_embed.proj
    stored = {
        "patch_proj.weight": embedding.weight.flatten(1),
        "patch_proj.bias": embedding.bias,
        "frequencies": tower.rotary_pos_emb.inv_freq,
        **learned,
    }
    encoder.load_state_dict(stored, strict=False, assign=True)
    assert not any(tensor.is_meta for tensor in encoder.state_dict().values())
    return encoder.eval()
