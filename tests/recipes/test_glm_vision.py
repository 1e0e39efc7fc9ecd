"""The GLM recipe's image encoder against Transformers' class, with plain and with quantised weights."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from glm_towers import canonical, images_of, served, write_tower
from transformers.models.glm5_next.modeling_glm5_next import Glm5NextVisionModel

from flare.prepare import TensorInfo, TensorMap, read_weight_formats
from flare.prepare.published import read_published
from flare.recipes import BuiltModel
from flare.testing import check_retained
from flare_components.modules import ImageEncoder
from flare_components.testing import write_plain_checkpoint, write_quantized_checkpoint
from flare_recipe_glm.descriptor import DESCRIPTOR
from flare_recipe_glm.image_tensors import VISUAL, encoder_rules
from flare_recipe_glm.vision import REPLACED, RETAINED, image_encoder

GRIDS = [(1, 2, 2), (1, 4, 6), (1, 8, 8), (2, 4, 4), (1, 2, 40), (3, 6, 4)]
BOUND = 1e-4


@pytest.fixture(scope="module")
def tower(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tower(tmp_path_factory.mktemp("glm") / "tower")


def patches_of(grid: tuple[int, int, int], seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(grid[0] * grid[1] * grid[2], 3 * 2 * 14**2, generator=generator)


@torch.inference_mode()
def features(encoder: ImageEncoder, grid: tuple[int, int, int], capacity: int = 128) -> torch.Tensor:
    """Behind the patches of the image stands what an earlier one left there."""
    patches = patches_of(grid)
    given = torch.full((capacity, patches.shape[1]), 3.0)
    given[: len(patches)] = patches
    return encoder(given, torch.tensor(grid, dtype=torch.int32))[: len(patches) // 4]


@torch.inference_mode()
def wanted(path: Path, *grids: tuple[int, int, int]) -> torch.Tensor:
    return canonical(path)(torch.cat([patches_of(grid) for grid in grids]), torch.tensor(grids)).pooler_output


def test_every_image_is_that_of_transformers_among_others(tower: Path) -> None:
    encoder, _ = served(tower)
    found = torch.cat([features(encoder, grid) for grid in GRIDS])
    want = wanted(tower, *GRIDS)
    assert float(want.abs().max()) > 0.1
    assert float((found - want).abs().max()) < BOUND


def test_the_limit_is_reached(tower: Path) -> None:
    encoder, _ = served(tower)
    before = features(encoder, GRIDS[2])
    encoder.merger.mlp.limit = encoder.blocks[0].mlp.limit = None
    assert float((features(encoder, GRIDS[2]) - before).abs().max()) > 100 * BOUND


def test_frames_do_not_see_each_other(tower: Path) -> None:
    encoder, _ = served(tower)
    grid = torch.tensor((2, 4, 4), dtype=torch.int32)
    patches = patches_of((2, 4, 4))
    other = patches.clone()
    other[16:] *= -1
    with torch.inference_mode():
        first, second = encoder(patches, grid), encoder(other, grid)
    assert torch.equal(first[:4], second[:4])
    assert not torch.allclose(first[4:], second[4:])


def test_retained_modules_run(tower: Path) -> None:
    encoder, _ = served(tower)
    built = BuiltModel(module=encoder, context=1, retained=RETAINED, replaced=REPLACED)
    calls = check_retained(built, lambda: features(encoder, GRIDS[0]))
    assert calls == {"Glm5NextVisionBlock": 2}


def test_the_published_encoder_is_made_of_every_tensor_of_the_canonical_one() -> None:
    config = dict(read_published(DESCRIPTOR.models[0]).config)
    images = images_of(config)
    with torch.device("meta"):
        state = Glm5NextVisionModel(images.encoder).state_dict()
    headers = {
        f"{VISUAL}.{name}": TensorInfo(name, tuple(value.shape), "BF16") for name, value in state.items()
    }
    store: Any = SimpleNamespace(config=config, tensors=headers)
    rules = TensorMap(encoder_rules(read_weight_formats(store), images))
    rules.check(store)
    encoder, frequencies = image_encoder(images, torch.bfloat16)
    shapes = {f"image_encoder.{name}": tuple(value.shape) for name, value in encoder.named_parameters()}
    assert {name: rules.info(name, store).shape for name in rules.rules} == shapes
    assert sum(value.numel() for value in encoder.parameters()) == sum(
        value.numel() for value in state.values()
    )
    assert (encoder.width, encoder.patch_elements, len(frequencies)) == (4096, 1176, 16)


@pytest.mark.parametrize(
    ("formats", "producer", "bound"),
    [
        ({"*.blocks.*": "W4A16_NVFP4", "*.merger.*_proj": "W4A16_NVFP4"}, "modelopt", BOUND),
        ({"*.attn.*": "MXFP8", "*.mlp.*": "W4A16_NVFP4"}, "modelopt", 0.1),
        ({"*.blocks.*": "FP8_BLOCK_SCALES", "*.merger.*": "FP8_BLOCK_SCALES"}, "fp8", 0.1),
    ],
)
def test_quantised_weights_stay_what_they_are(
    tower: Path, tmp_path: Path, formats: dict[str, str], producer: str, bound: float
) -> None:
    """Where inputs are rounded too, features agree less closely."""
    stored = write_quantized_checkpoint(tower, tmp_path / "stored", formats, producer=producer)
    encoder, checkpoint = served(stored)
    assert checkpoint.config["quantization_config"]
    names = {type(module).__name__ for module in encoder.modules()}
    assert names & {"Nvfp4Linear", "Mxfp8Linear", "Fp8BlockLinear"}
    want = wanted(write_plain_checkpoint(stored, tmp_path / "plain"), GRIDS[2])
    found = features(encoder, GRIDS[2])
    assert float((found - want).norm()) < bound * float(want.norm())
