"""What published checkpoints say of images, and a small encoder of the same structure."""

from __future__ import annotations

from typing import Any

from flare_recipe_glm.tiny import VISION

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
ENCODER: dict[str, Any] = {**VISION, "swiglu_limit": 0.7}  # low enough to be reached by random weights
IMAGE = 154854


def stored(**changes: Any) -> dict[str, Any]:
    """A configuration of a whole model, with `changes` of its encoder; None removes a field."""
    fields = {name: value for name, value in {**ENCODER, **changes}.items() if value is not None}
    return {"model_type": "glm5_next", "image_token_id": IMAGE, "vision_config": fields}
