"""What the Qwen recipe reads of images, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from changed_checkpoints import changed_config
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from flare.contract import DType
from flare.frontend.images.patches import prepared
from flare.prepare import CheckpointError
from flare.testing.plugin import TinyCheckpoints
from flare_recipe_qwen.image_config import REQUIRED, image_profile
from flare_recipe_qwen.recipe import RECIPE


@pytest.fixture
def tiny(flare_tiny_checkpoint: TinyCheckpoints) -> Path:
    return flare_tiny_checkpoint(RECIPE)


def assets(path: Path) -> Any:
    checkpoint = RECIPE.loader.open(path)
    return RECIPE.frontend.assets(checkpoint, RECIPE.loader.config(checkpoint), RECIPE.sampling).frontend


@pytest.mark.parametrize("name", [*REQUIRED, "image_token_id"])
def test_a_missing_field_is_an_error_that_names_it(tiny: Path, tmp_path: Path, name: str) -> None:
    def remove(config: dict[str, Any]) -> None:
        del (config if name == "image_token_id" else config["vision_config"])[name]

    with pytest.raises(CheckpointError, match=f"config.json lacks {name}") as caught:
        assets(changed_config(tiny, tmp_path / "c", remove))
    assert caught.value.field == name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "silu"}, "hidden_act 'silu' is not served"),
        ({"in_channels": 1}, "in_channels 1 is not served"),
        ({"deepstack_visual_indexes": [3]}, r"deepstack_visual_indexes \[3\] is not served"),
        ({"model_type": "siglip"}, "image encoder 'siglip' is not read"),
        ({"patch_size": 14}, "patch_size is 16, and 14 of the encoder"),
    ],
)
def test_what_is_not_served_is_refused(
    tiny: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = changed_config(tiny, tmp_path / "c", lambda config: config["vision_config"].update(change))
    with pytest.raises(CheckpointError, match=message):
        assets(path)


@pytest.mark.parametrize("name", ["patch_size", "merge_size", "temporal_patch_size", "image_mean", "size"])
def test_the_processor_says_everything(tiny: Path, name: str) -> None:
    checkpoint = RECIPE.loader.open(tiny)
    config = RECIPE.loader.config(checkpoint).images
    settings = {key: value for key, value in checkpoint.assets.image_processor.items() if key != name}
    with pytest.raises(CheckpointError, match=f"preprocessor_config.json lacks {name}"):
        image_profile(config, settings)
    with pytest.raises(CheckpointError, match="no preprocessor_config"):
        image_profile(config, None)
    with pytest.raises(CheckpointError, match="resample 2 is not served"):
        image_profile(config, {**checkpoint.assets.image_processor, "resample": 2})


def test_the_processor_may_be_part_of_that_of_everything(tiny: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(tiny, whole)
    single = whole / "preprocessor_config.json"
    (whole / "processor_config.json").write_text(
        json.dumps({"image_processor": json.loads(single.read_text())})
    )
    single.unlink()
    assert assets(whole) == assets(tiny)


def test_patches_are_those_of_the_checkpoints_processor(tiny: Path) -> None:
    import numpy as np
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (90, 130, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    want = Qwen2VLImageProcessorPil.from_pretrained(tiny)(images=[image], return_tensors="np")
    found = prepared(image, assets(tiny).images, "image")
    assert found.grid == tuple(want["image_grid_thw"][0].tolist())
    patches = np.frombuffer(found.patches, np.float32).reshape(want["pixel_values"].shape)
    np.testing.assert_allclose(patches, want["pixel_values"], rtol=0, atol=3e-7)


def test_a_model_without_an_encoder_takes_no_images(tiny: Path, tmp_path: Path) -> None:
    path = changed_config(tiny, tmp_path / "c", lambda config: config.pop("vision_config"))
    assert assets(path).images is None
    checkpoint = RECIPE.loader.open(path)
    built = RECIPE.replacements.build(RECIPE.loader.config(checkpoint), DType.F32)
    assert built.module.image_encoder is None
    assert isinstance(built.module, torch.nn.Module)
