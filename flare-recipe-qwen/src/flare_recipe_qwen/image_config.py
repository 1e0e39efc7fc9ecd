"""What a checkpoint says of images: the encoder, the token that stands for a feature, and the processor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpVisionConfig

from flare import prepare
from flare.contract import ImageFit, ImageProfile
from flare.prepare import ImageConfig, check_present

__all__ = ["ImageConfig", "image_profile", "read_image_config"]

# Re-exports name the encoder after the model that it was taken from.
ENCODER_TYPES = ("qwen4_exp_vision", "qwen3_8_flash_next_vision", "qwen3_5_vision")
REQUIRED = (
    "depth",
    "hidden_size",
    "intermediate_size",
    "num_heads",
    "num_position_embeddings",
    "out_hidden_size",
    "patch_size",
    "spatial_merge_size",
    "temporal_patch_size",
)
_SERVED: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("gelu_pytorch_tanh",),
    "in_channels": (3,),
    "deepstack_visual_indexes": ([], None),
}
_PROCESSOR = ("patch_size", "merge_size", "temporal_patch_size", "image_mean", "image_std")
_SERVED_PROCESSOR: Mapping[str, tuple[Any, ...]] = {
    "resample": (3, None),  # bicubic
    "rescale_factor": (1 / 255,),
    "do_resize": (True, None),
    "do_rescale": (True, None),
    "do_normalize": (True, None),
}


def read_image_config(stored: Mapping[str, Any]) -> ImageConfig | None:
    """See `flare.prepare.read_image_config`."""
    return prepare.read_image_config(
        stored, Qwen4ExpVisionConfig, types=ENCODER_TYPES, required=REQUIRED, served=_SERVED
    )


def image_profile(config: ImageConfig, processor: Mapping[str, Any] | None) -> ImageProfile:
    """How images are made into patches, by the image processor's configuration.

    Raises: CheckpointError naming the field that is missing, or contradicts the encoder.
    """
    settings = config.check_processor(processor, _PROCESSOR, _SERVED_PROCESSOR)
    size = settings.get("size") or {}
    smallest = size.get("shortest_edge", settings.get("min_pixels"))
    largest = size.get("longest_edge", settings.get("max_pixels"))
    check_present({"size": smallest and largest}, ("size",), "preprocessor_config.json")
    return ImageProfile(
        fit=ImageFit.STRETCH,
        patch=settings["patch_size"],
        merge=settings["merge_size"],
        temporal=settings["temporal_patch_size"],
        min_pixels=smallest,
        max_pixels=largest,
        mean=tuple(settings["image_mean"]),
        std=tuple(settings["image_std"]),
        placeholder=config.placeholder,
    )
