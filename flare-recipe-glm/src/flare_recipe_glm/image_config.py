"""What a checkpoint says of images: the encoder, the token that stands for a feature, and the processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers.models.glm5_next.configuration_glm5_next import Glm5NextVisionConfig

from flare.contract import ImageFit, ImageProfile
from flare.prepare import CheckpointError, check_present, check_served

ENCODER_TYPES = ("glm5_next_vision",)
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


@dataclass(frozen=True)
class ImageConfig:
    """The encoder's configuration, and the `placeholder` token."""

    encoder: Glm5NextVisionConfig
    placeholder: int

    @property
    def patch_elements(self) -> int:
        """Numbers of one patch."""
        shape = self.encoder.in_channels, self.encoder.temporal_patch_size, self.encoder.patch_size
        return int(shape[0] * shape[1] * shape[2] ** 2)


def read_image_config(stored: Mapping[str, Any]) -> ImageConfig | None:
    """Of a whole model's configuration; None when it has no encoder.

    Raises: CheckpointError naming the field that is missing, or has a value that is not served.
    """
    fields = stored.get("vision_config")
    if fields is None:
        return None
    if fields.get("model_type", ENCODER_TYPES[0]) not in ENCODER_TYPES:
        raise CheckpointError(f"image encoder {fields['model_type']!r} is not read", field="model_type")
    check_present(fields, REQUIRED)
    check_present(stored, ("image_token_id",))
    check_served(fields, _SERVED)
    check_served(fields.get("rope_parameters") or {}, {"rope_type": ("axial",)})
    known = {name: value for name, value in fields.items() if name not in ("model_type", "dtype", *_SERVED)}
    try:
        encoder = Glm5NextVisionConfig(**known)
    except (TypeError, ValueError, StrictDataclassError) as error:
        raise CheckpointError(f"config.json: {error}", field="vision_config") from error
    return ImageConfig(encoder, stored["image_token_id"])


def image_profile(config: ImageConfig, processor: Mapping[str, Any] | None) -> ImageProfile:
    """How images are made into patches. `processor` is the image processor's configuration; its bounds count
    features.

    Raises: CheckpointError naming the field that is missing, or contradicts the encoder.
    """
    if processor is None:
        raise CheckpointError("the checkpoint has no preprocessor_config.json", field="preprocessor_config")
    check_present(processor, REQUIRED_PROCESSOR, "preprocessor_config.json")
    check_served(processor, _SERVED_PROCESSOR)
    encoder = config.encoder
    for name, expected in (
        ("patch_size", encoder.patch_size),
        ("merge_size", encoder.spatial_merge_size),
        ("temporal_patch_size", encoder.temporal_patch_size),
    ):
        if processor[name] != expected:
            raise CheckpointError(f"{name} is {processor[name]}, and {expected} of the encoder", field=name)
    feature = (processor["patch_size"] * processor["merge_size"]) ** 2
    return ImageProfile(
        fit=ImageFit.PAD,
        patch=processor["patch_size"],
        merge=processor["merge_size"],
        temporal=processor["temporal_patch_size"],
        min_pixels=processor["min_image_tokens"] * feature,
        max_pixels=processor["max_image_tokens"] * feature,
        mean=tuple(processor["image_mean"]),
        std=tuple(processor["image_std"]),
        placeholder=config.placeholder,
        max_aspect_ratio=None,
        background=_WHITE,
    )
