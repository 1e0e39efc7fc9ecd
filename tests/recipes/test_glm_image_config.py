"""What the GLM recipe reads of images, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from glm_image_samples import IMAGE, PROCESSOR, stored
from PIL import Image
from transformers.models.glm5_next.image_processing_pil_glm5_next import Glm5NextImageProcessorPil

from flare.contract import ImageFit, ImageProfile
from flare.frontend.images.patches import prepared
from flare.prepare import CheckpointError
from flare_recipe_glm.image_config import (
    REQUIRED,
    REQUIRED_PROCESSOR,
    ImageConfig,
    image_profile,
    read_image_config,
)


def read(**changes: Any) -> ImageConfig:
    found = read_image_config(stored(**changes))
    assert found is not None
    return found


def test_the_profile_is_that_of_the_published_processor() -> None:
    profile = image_profile(read(), PROCESSOR)
    assert profile == ImageProfile(
        fit=ImageFit.PAD,
        patch=14,
        merge=2,
        temporal=2,
        min_pixels=12544,
        max_pixels=6272000,
        mean=(0.48145466, 0.4578275, 0.40821073),
        std=(0.26862954, 0.26130258, 0.27577711),
        placeholder=IMAGE,
        max_aspect_ratio=None,
        background=(255, 255, 255),
    )


@pytest.mark.parametrize("size", [(130, 90), (5, 700), (3000, 2500), (1, 1)])
def test_patches_are_those_of_the_processor(size: tuple[int, int]) -> None:
    profile = image_profile(read(), PROCESSOR)
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
    want = Glm5NextImageProcessorPil(**PROCESSOR)(images=[image], return_tensors="np")
    found = prepared(image, profile, "image")
    assert found.grid == tuple(want["image_grid_thw"][0].tolist())
    patches = np.frombuffer(found.patches, np.float32).reshape(want["pixel_values"].shape)
    np.testing.assert_allclose(patches, want["pixel_values"], rtol=0, atol=3e-7)


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_field_is_an_error_that_names_it(name: str) -> None:
    with pytest.raises(CheckpointError, match=rf"config\.json lacks {name}") as caught:
        read(**{name: None})
    assert caught.value.field == name


def test_the_placeholder_is_needed() -> None:
    config = stored()
    del config["image_token_id"]
    with pytest.raises(CheckpointError, match=r"config\.json lacks image_token_id"):
        read_image_config(config)


def test_a_model_without_an_encoder_has_no_images() -> None:
    assert read_image_config({"model_type": "glm5_next_text"}) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not served"),
        ({"in_channels": 1}, "in_channels 1 is not served"),
        ({"attention_bias": False}, "attention_bias False is not served"),
        ({"model_type": "siglip"}, "image encoder 'siglip' is not read"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope_type 'yarn' is not served"),
        ({"depth": "many"}, "config.json"),
    ],
)
def test_what_is_not_served_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read(**change)


@pytest.mark.parametrize("name", REQUIRED_PROCESSOR)
def test_the_processor_says_everything(name: str) -> None:
    settings = {key: value for key, value in PROCESSOR.items() if key != name}
    with pytest.raises(CheckpointError, match=rf"preprocessor_config\.json lacks {name}"):
        image_profile(read(), settings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resample": 2}, "resample 2 is not served"),
        ({"patch_expand_factor": 2}, "patch_expand_factor 2 is not served"),
        ({"do_convert_rgb": False}, "do_convert_rgb False is not served"),
        ({"patch_size": 16}, "patch_size is 16, and 14 of the encoder"),
        ({"merge_size": 4}, "merge_size is 4, and 2 of the encoder"),
    ],
)
def test_other_processors_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        image_profile(read(), {**PROCESSOR, **change})


def test_a_checkpoint_with_an_encoder_has_a_processor() -> None:
    with pytest.raises(CheckpointError, match=r"no preprocessor_config\.json"):
        image_profile(read(), None)
