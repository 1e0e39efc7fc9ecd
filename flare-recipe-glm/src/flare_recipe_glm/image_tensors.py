"""Where every tensor of the image encoder comes from."""

from __future__ import annotations

from flare.prepare import FlattenRows, TensorRule, WeightFormats, linear_rules
from flare_recipe_glm.image_config import ImageConfig

VISUAL = "model.visual"
"""What the checkpoint calls the image encoder."""

_BLOCK = {
    "attn.qkv": ("attn.qkv",),
    "attn.proj": ("attn.proj",),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
    "mlp.down_proj": ("mlp.down_proj",),
}
_MERGER = {
    "proj": ("proj",),
    "mlp.gate_up_proj": ("gate_proj", "up_proj"),
    "mlp.down_proj": ("down_proj",),
}
_BLOCK_NORMS = ("norm1", "norm2", "attn.q_norm", "attn.k_norm")
_PLAIN = {
    "patch_proj.bias": "patch_embed.proj.bias",
    "merger.norm.weight": "post_layernorm.weight",
    "merger.downsample.bias": "downsample.bias",
    "merger.proj_norm.weight": "merger.post_projection_norm.weight",
    "merger.proj_norm.bias": "merger.post_projection_norm.bias",
}


def encoder_sources(images: ImageConfig) -> dict[str, tuple[str, ...]]:
    """For every linear layer of `image_encoder` whose weight may have a number format, the modules of the
    checkpoint whose rows are stacked. Those of blocks have biases."""
    parts = [(f"blocks.{block}", _BLOCK) for block in range(images.encoder.depth)]
    return {
        f"image_encoder.{owner}.{target}": tuple(f"{VISUAL}.{owner}.{module}" for module in modules)
        for owner, stacks in [*parts, ("merger", _MERGER)]
        for target, modules in stacks.items()
    }


def encoder_rules(formats: WeightFormats, images: ImageConfig) -> dict[str, TensorRule]:
    """The complete map of `image_encoder`. Raises CheckpointError for formats that are not served."""
    rules: dict[str, TensorRule] = {}
    for target, modules in encoder_sources(images).items():
        biased = target.startswith("image_encoder.blocks.")
        rules |= linear_rules(formats, target, modules, bias=biased)
    same = {
        f"blocks.{block}.{norm}.weight": f"blocks.{block}.{norm}.weight"
        for block in range(images.encoder.depth)
        for norm in _BLOCK_NORMS
    }
    for target, source in {**same, **_PLAIN}.items():
        rules[f"image_encoder.{target}"] = TensorRule((f"{VISUAL}.{source}",))
    rules["image_encoder.patch_proj.weight"] = TensorRule(
        (f"{VISUAL}.patch_embed.proj.weight",), FlattenRows()
    )
    rules["image_encoder.merger.downsample.weight"] = TensorRule(
        (f"{VISUAL}.downsample.weight",), FlattenRows(channels_last=True)
    )
    return rules
