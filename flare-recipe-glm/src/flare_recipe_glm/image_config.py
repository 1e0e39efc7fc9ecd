"""What a checkpoint says of images: the encoder, the token that stands for a feature, and the processor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers.models.glm5_next.configuration_glm5_next import Glm5NextVisionConfig

from flare import prepare
from flare.contract import ImageFit, ImageProfile
from flare.prepare import ImageConfig, check_served

__all__ = ["ImageConfig", "image_profile", "read_image_config"]

REQUIRED = (
    "depth",
    "hidden_size",
    "intermediate_size",
    "num_heads",
    "out_hidden_size",
    "patch_size",
    "projection_intermediate_size",
    "rms_norm_eps",
    "spatial_merge_size",
    "swiglu_limit",
    "temporal_patch_size",
)
_SERVED: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "in_channels": (3,),
    "attention_bias": (True,),
}
REQUIRED_PROCESSOR = (
    "patch_size",
    "merge_size",
    "temporal_patch_size",
    "min_image_tokens",
    "max_image_tokens",
    "image_mean",
    "image_std",
)
_SERVED_PROCESSOR: Mapping[str, tuple[Any, ...]] = {
    "resample": (3, None),  # bicubic
    "rescale_factor": (1 / 255,),
    "patch_expand_factor": (1, None),
    "do_convert_rgb": (True, None),
    "do_resize": (True, None),
    "do_rescale": (True, None),
    "do_normalize": (True, None),
}
_WHITE = (255, 255, 255)


def read_image_config(stored: Mapping[str, Any]) -> ImageConfig | None:
    """See `flare.prepare.read_image_config`."""
    encoder = stored.get("vision_config") or {}
    check_served(encoder.get("rope_parameters") or {}, {"rope_type": ("axial",)})
    return prepare.read_image_config(
        stored,
        Glm5NextVisionConfig,
        types=("glm5_next_vision",),
        required=REQUIRED,
        served=_SERVED,
    )


def image_profile(config: ImageConfig, processor: Mapping[str, Any] | None) -> ImageProfile:
    """How images are made into patches, by the image processor's configuration; its bounds count features.

    Raises: CheckpointError naming the field that is missing, or contradicts the encoder.
    """
    settings = config.check_processor(processor, REQUIRED_PROCESSOR, _SERVED_PROCESSOR)
    feature = (settings["patch_size"] * settings["merge_size"]) ** 2
    return ImageProfile(
        fit=ImageFit.PAD,
        patch=settings["patch_size"],
        merge=settings["merge_size"],
        temporal=settings["temporal_patch_size"],
        min_pixels=settings["min_image_tokens"] * feature,
        max_pixels=settings["max_image_tokens"] * feature,
        mean=tuple(settings["image_mean"]),
        std=tuple(settings["image_std"]),
        placeholder=config.placeholder,
        max_aspect_ratio=None,
        background=_WHITE,
    )
