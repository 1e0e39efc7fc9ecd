"""A tiny canonical image encoder with normalised heads, gated networks and a convolution before its merger,
and the replacement module with its weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from towers import assembled, randomised
from transformers.models.glm5_next.configuration_glm5_next import Glm5NextVisionConfig
from transformers.models.glm5_next.modeling_glm5_next import Glm5NextVisionModel

from flare_components.modules import ConvolutionMerger, FrameAttention, ImageEncoder, PackedGatedMLP, RMSNorm


def canonical_tower(hidden: int = 32, heads: int = 2, width: int = 64, seed: int = 0) -> Glm5NextVisionModel:
    """Random weights, also where the class starts from constants, that reach the limit of the gates."""
    config = Glm5NextVisionConfig(
        depth=2,
        hidden_size=hidden,
        num_heads=heads,
        intermediate_size=2 * hidden,
        out_hidden_size=width,
        projection_intermediate_size=3 * width,
        patch_size=4,
        temporal_patch_size=2,
        spatial_merge_size=2,
        swiglu_limit=0.7,
    )
    return randomised(Glm5NextVisionModel(config), seed)


def image_encoder(tower: Glm5NextVisionModel) -> ImageEncoder:
    """The replacement of `tower`, with its weights and its blocks."""
    config, dtype = tower.config, tower.dtype
    hidden, limit = config.hidden_size, config.swiglu_limit
    for block in tower.blocks:
        for name in ("norm1", "norm2"):
            setattr(block, name, filled(RMSNorm(hidden, config.rms_norm_eps, dtype), getattr(block, name)))
        attention = FrameAttention(
            hidden=hidden, heads=config.num_heads, bias=True, dtype=dtype, norm_eps=config.rms_norm_eps
        )
        block.attn = filled(attention, block.attn)
        gated = PackedGatedMLP(hidden, config.intermediate_size, dtype, limit=limit, bias=True)
        gated.load_state_dict(stacked(block.mlp), assign=True)
        block.mlp = gated
    merger = ConvolutionMerger(
        hidden=hidden,
        width=config.out_hidden_size,
        inner=config.projection_intermediate_size,
        merge=config.spatial_merge_size,
        eps=config.rms_norm_eps,
        limit=limit,
        dtype=dtype,
    )
    convolution, projection = tower.downsample, tower.merger
    merger.load_state_dict(
        {
            "norm.weight": tower.post_layernorm.weight,
            "downsample.weight": convolution.weight.permute(0, 2, 3, 1).flatten(1),
            "downsample.bias": convolution.bias,
            "proj.weight": projection.proj.weight,
            "proj_norm.weight": projection.post_projection_norm.weight,
            "proj_norm.bias": projection.post_projection_norm.bias,
            **{f"mlp.{name}": tensor for name, tensor in stacked(projection).items()},
        },
        assign=True,
    )
    return assembled(tower, merger, {})


def filled(module: nn.Module, source: nn.Module) -> nn.Module:
    """`module` with the weights of `source`, which has them by the same names."""
    module.load_state_dict(source.state_dict(), assign=True)
    return module


def stacked(source: nn.Module) -> dict[str, Tensor]:
    """The weights of a gated network, gate and up as one layer."""
    state = source.state_dict()
    found = {
        f"down_proj.{part}": state[f"down_proj.{part}"]
        for part in ("weight", "bias")
        if f"down_proj.{part}" in state
    }
    for part in ("weight", "bias"):
        if f"gate_proj.{part}" in state:
            found[f"gate_up_proj.{part}"] = torch.cat(
                [state[f"{half}_proj.{part}"] for half in ("gate", "up")]
            )
    return found
