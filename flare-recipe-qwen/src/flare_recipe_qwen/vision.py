"""Replacement: the canonical image encoder on the meta device, its attention and activations exchanged."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers.models.qwen4_exp.modeling_qwen4_exp import (
    Qwen4ExpVisionAttention,
    Qwen4ExpVisionBlock,
    Qwen4ExpVisionMLP,
    Qwen4ExpVisionModel,
    Qwen4ExpVisionPatchEmbed,
    Qwen4ExpVisionPatchMerger,
    Qwen4ExpVisionRotaryEmbedding,
)

from flare_components.modules import FrameAttention, Gelu, ImageEncoder
from flare_recipe_qwen.image_config import ImageConfig

RETAINED: tuple[type[nn.Module], ...] = (
    Qwen4ExpVisionBlock,
    Qwen4ExpVisionMLP,
    Qwen4ExpVisionPatchMerger,
    nn.LayerNorm,
)
REPLACED = {
    Qwen4ExpVisionModel.__name__: "ImageEncoder: one image, positions from its grid in the program",
    Qwen4ExpVisionPatchEmbed.__name__: "Linear: patches come as rows",
    Qwen4ExpVisionAttention.__name__: "FrameAttention: frames from the grid, whatever the program's capacity",
}


def image_encoder(config: ImageConfig, dtype: torch.dtype) -> tuple[ImageEncoder, Tensor]:
    """The encoder without weights, and the constant `frequencies`."""
    settings = config.encoder
    with torch.device("meta"):
        canonical = Qwen4ExpVisionModel(settings).to(dtype).eval()
    for block in canonical.blocks:
        block.attn = FrameAttention(
            hidden=settings.hidden_size, heads=settings.num_heads, bias=True, dtype=dtype
        )
        block.mlp.act_fn = Gelu(approximate=True)
    canonical.merger.act_fn = Gelu(approximate=False)
    # Frequencies are computed, not read: they need real storage.
    frequencies = Qwen4ExpVisionRotaryEmbedding(canonical.config).inv_freq
    encoder = ImageEncoder(
        patch_elements=config.patch_elements,
        hidden=settings.hidden_size,
        width=settings.out_hidden_size,
        side=canonical.num_grid_per_side,
        frequencies=len(frequencies),
        merge=settings.spatial_merge_size,
        blocks=canonical.blocks,
        merger=canonical.merger,
        dtype=dtype,
    )
    return encoder, frequencies
