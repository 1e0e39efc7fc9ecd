"""What a checkpoint says of images: the encoder, the token that stands for a feature, and the processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpVisionConfig

from flare.contract import ImageFit, ImageProfile
from flare.prepare import CheckpointError, check_present, check_served

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


@dataclass(frozen=True)
class ImageConfig:
    """The encoder's configuration, and the `placeholder` token."""

    encoder: Qwen4ExpVisionConfig
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
    known = {name: value for name, value in fields.items() if name not in ("model_type", "dtype", *_SERVED)}
    try:
        encoder = Qwen4ExpVisionConfig(**known)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"config.json: {error}", field="vision_config") from error
    return ImageConfig(encoder, stored["image_token_id"])


def image_profile(config: ImageConfig, processor: Mapping[str, Any] | None) -> ImageProfile:
    """How images are made into patches. `processor` is the image processor's configuration; for what it lacks
    Transformers would take another model's value.

    Raises: CheckpointError naming the field that is missing, or contradicts the encoder.
    """
    if processor is None:
        raise CheckpointError("the checkpoint has no preprocessor_config.json", field="preprocessor_config")
    size = processor.get("size") or {}
    smallest = size.get("shortest_edge", processor.get("min_pixels"))
    largest = size.get("longest_edge", processor.get("max_pixels"))
    found = {name: processor.get(name) for name in _PROCESSOR} | {"size": smallest and largest}
    check_present(found, found, "preprocessor_config.json")
    check_served(processor, _SERVED_PROCESSOR)
    encoder = config.encoder
    for name, expected in (
        ("patch_size", encoder.patch_size),
        ("merge_size", encoder.spatial_merge_size),
        ("temporal_patch_size", encoder.temporal_patch_size),
    ):
        if processor[name] != expected:
            raise CheckpointError(f"{name} is {processor[name]}, and {expected} of the encoder", field=name)
    return ImageProfile(
        fit=ImageFit.STRETCH,
        patch=processor["patch_size"],
        merge=processor["merge_size"],
        temporal=processor["temporal_patch_size"],
        min_pixels=smallest,
        max_pixels=largest,
        mean=tuple(processor["image_mean"]),
        std=tuple(processor["image_std"]),
        placeholder=config.placeholder,
    )
