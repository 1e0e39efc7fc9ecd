"""What checkpoints say of images in Transformers' layout: the encoder's configuration and the processor's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from huggingface_hub.errors import StrictDataclassError

from flare.errors import CheckpointError
from flare.prepare.config_fields import check_present, check_served

Served = Mapping[str, Collection[Any]]
"""Fields of which only some values are served, where they are there."""


@dataclass(frozen=True)
class ImageConfig:
    """The `encoder`'s configuration, a class of Transformers, and the token that stands for a feature."""

    encoder: Any
    placeholder: int

    @property
    def patch_elements(self) -> int:
        """Numbers of one patch."""
        encoder = self.encoder
        return int(encoder.in_channels * encoder.temporal_patch_size * encoder.patch_size**2)

    def check_processor(
        self, processor: Mapping[str, Any] | None, required: Iterable[str], served: Served
    ) -> Mapping[str, Any]:
        """The image processor's configuration, which must have the fields `required` (for what it lacks
        Transformers would take another model's value) and make the patches that the encoder reads.

        Raises: CheckpointError naming the field that is missing, or has another value.
        """
        if processor is None:
            raise CheckpointError(
                "the checkpoint has no preprocessor_config.json", field="preprocessor_config"
            )
        check_present(processor, required, "preprocessor_config.json")
        check_served(processor, served)
        for name, expected in (
            ("patch_size", self.encoder.patch_size),
            ("merge_size", self.encoder.spatial_merge_size),
            ("temporal_patch_size", self.encoder.temporal_patch_size),
        ):
            if processor[name] != expected:
                raise CheckpointError(
                    f"{name} is {processor[name]}, and {expected} of the encoder", field=name
                )
        return processor


def read_image_config(
    stored: Mapping[str, Any],
    make: Callable[..., Any],
    *,
    types: Collection[str],
    required: Iterable[str],
    served: Served,
) -> ImageConfig | None:
    """Of a whole model's configuration; None when it has no encoder.

    make: the class of the encoder's configuration. types: its names in checkpoints. required: fields that are
    not left to defaults of the class.

    Raises: CheckpointError naming the field that is missing, or has a value that is not served.
    """
    fields = stored.get("vision_config")
    if fields is None:
        return None
    if fields.get("model_type") not in (None, *types):
        raise CheckpointError(f"image encoder {fields['model_type']!r} is not read", field="model_type")
    check_present(fields, required)
    check_present(stored, ("image_token_id",))
    check_served(fields, served)
    known = {name: value for name, value in fields.items() if name not in ("model_type", "dtype", *served)}
    try:
        encoder = make(**known)
    except (TypeError, ValueError, StrictDataclassError) as error:
        raise CheckpointError(f"config.json: {error}", field="vision_config") from error
    return ImageConfig(encoder, stored["image_token_id"])
