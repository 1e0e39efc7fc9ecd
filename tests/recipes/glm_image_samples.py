"""What published checkpoints say of images, and a small encoder of the same structure."""

from __future__ import annotations

from typing import Any

PROCESSOR: dict[str, Any] = {
    "do_rescale": True,
    "patch_expand_factor": 1,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "temporal_patch_size": 2,
    "patch_size": 14,
    "min_image_tokens": 16,
    "max_image_tokens": 8000,
    "image_processor_type": "Glm5NextImageProcessor",
}
ENCODER: dict[str, Any] = {
    "model_type": "glm5_next_vision",
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "in_channels": 3,
    "image_size": 336,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": 64,
    "projection_intermediate_size": 96,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "swiglu_limit": 0.7,  # low enough to be reached by random weights
    "attention_bias": True,
}
IMAGE = 154854


def stored(**changes: Any) -> dict[str, Any]:
    """A configuration of a whole model, with `changes` of its encoder; None removes a field."""
    fields = {name: value for name, value in {**ENCODER, **changes}.items() if value is not None}
    return {"model_type": "glm5_next", "image_token_id": IMAGE, "vision_config": fields}
