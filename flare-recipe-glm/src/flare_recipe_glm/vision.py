"""Replacement: the canonical image encoder on the meta device, everything in its blocks exchanged."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers.models.glm5_next.modeling_glm5_next import (
    Glm5NextRMSNorm,
    Glm5NextVisionAttention,
    Glm5NextVisionBlock,
    Glm5NextVisionMLP,
    Glm5NextVisionModel,
    Glm5NextVisionPatchEmbed,
    Glm5NextVisionPatchMerger,
    Glm5NextVisionRotaryEmbedding,
)

from flare_components.modules import ConvolutionMerger, FrameAttention, ImageEncoder, PackedGatedMLP, RMSNorm
from flare_recipe_glm.image_config import ImageConfig

RETAINED: tuple[type[nn.Module], ...] = (Glm5NextVisionBlock,)
REPLACED = {
    Glm5NextVisionModel.__name__: "ImageEncoder: one image, positions from its grid in the program",
    Glm5NextVisionPatchEmbed.__name__: "Linear: patches come as rows",
    Glm5NextVisionAttention.__name__: "FrameAttention: frames from the grid, whatever the program's capacity",
    Glm5NextVisionMLP.__name__: "PackedGatedMLP: gate and up in one projection",
    Glm5NextVisionPatchMerger.__name__: "ConvolutionMerger: with the convolution before it, in few products",
    Glm5NextRMSNorm.__name__: "RMSNorm: one operator",
}


def image_encoder(config: ImageConfig, dtype: torch.dtype) -> tuple[ImageEncoder, Tensor]:
    """The encoder without weights, and the constant `frequencies`."""
    settings = config.encoder
    hidden, eps, limit = settings.hidden_size, settings.rms_norm_eps, settings.swiglu_limit
    with torch.device("meta"):
        canonical = Glm5NextVisionModel(settings).to(dtype).eval()
    for block in canonical.blocks:
        block.norm1, block.norm2 = RMSNorm(hidden, eps, dtype), RMSNorm(hidden, eps, dtype)
        block.attn = FrameAttention(
            hidden=hidden, heads=settings.num_heads, bias=True, dtype=dtype, norm_eps=eps
        )
        block.mlp = PackedGatedMLP(hidden, settings.intermediate_size, dtype, limit=limit, bias=True)
    merger = ConvolutionMerger(
        hidden=hidden,
        width=settings.out_hidden_size,
        inner=settings.projection_intermediate_size,
        merge=settings.spatial_merge_size,
        eps=eps,
        limit=limit,
        dtype=dtype,
    )
    # Frequencies are computed, not read: they need real storage.
    frequencies = Glm5NextVisionRotaryEmbedding(settings).inv_freq
    encoder = ImageEncoder(
        patch_elements=config.patch_elements,
        hidden=hidden,
        width=settings.out_hidden_size,
        frequencies=len(frequencies),
        merge=settings.spatial_merge_size,
        blocks=canonical.blocks,
        merger=merger,
        dtype=dtype,
    )
    return encoder, frequencies
