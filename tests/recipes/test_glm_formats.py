"""The tiny model in every number format: served as it is stored, with the logits of what that stands for."""

from __future__ import annotations

from pathlib import Path

import pytest
from stored_models import against_decoded, prepare

from flare.contract import DType, Region
from flare.prepare import CheckpointError, NumberFormat
from flare.testing.plugin import TinyCheckpoints
from flare.testing.teacher_forcing import largest
from flare_components.testing import write_quantized_checkpoint
from flare_recipe_glm.recipe import RECIPE
from flare_recipe_glm.tiny import FORMATS

TYPES = {
    "fp8": {DType.F8_E4M3},
    "nvfp4": {DType.U8, DType.F8_E4M3},
    "nvfp4-csf": {DType.U8, DType.U32},
    "nvfp4-a16": {DType.U8, DType.F8_E4M3},
}
LONGER = ("nvfp4-csf",)
EXPERTS = 4 * 8 * 3 * 64 * 32  # elements, of four layers with experts


def stored(tiny: Path, target: Path, name: str) -> Path:
    producer, formats = FORMATS[name]
    return write_quantized_checkpoint(tiny, target, formats, producer=producer)


@pytest.fixture
def tiny(flare_tiny_checkpoint: TinyCheckpoints) -> Path:
    return flare_tiny_checkpoint(RECIPE)


@pytest.mark.parametrize("name", FORMATS)
def test_a_checkpoint_is_served_in_its_formats(tiny: Path, tmp_path: Path, name: str, complete: bool) -> None:
    """Inputs are rounded to the formats too where producers mean it, and logits then agree less closely."""
    if name in LONGER and not complete:
        pytest.skip("with --complete")
    path = stored(tiny, tmp_path / "stored", name)
    contract = prepare(RECIPE, path, tmp_path / "core.safetensors")
    weights = [buffer for buffer in contract.buffers if buffer.region is Region.WEIGHTS]
    assert TYPES[name] <= {buffer.dtype for buffer in weights}
    experts = sum(buffer.nbytes for buffer in weights if ".experts." in buffer.name)
    assert experts < EXPERTS * (1.1 if name == "fp8" else 0.7)
    logits, want = against_decoded(RECIPE, path, tmp_path / "core.safetensors", lowest=30)
    if name == "nvfp4-a16":
        assert 0 < largest(logits - want) < 1e-4
    else:
        # Logits that have nothing to do with each other would differ by the square root of two.
        assert 0 < float((logits - want).norm() / want.norm()) < 0.5


def test_of_fp8_the_linear_attention_and_the_indexers_are_plain(tiny: Path, tmp_path: Path) -> None:
    config = RECIPE.loader.config(RECIPE.loader.open(stored(tiny, tmp_path / "s", "fp8")))
    layers = f"{config.prefix}.layers"
    for module in (
        "1.self_attn.q_proj",
        "1.self_attn.f_a_proj",
        "2.self_attn.indexer.wk",
        "2.self_attn.kv_b_proj",
    ):
        assert config.formats.of(f"{layers}.{module}") is None
    for module in (
        "2.self_attn.q_a_proj",
        "2.self_attn.o_proj",
        "0.mlp.up_proj",
        "1.mlp.experts.3.down_proj",
    ):
        found = config.formats.of(f"{layers}.{module}")
        assert found is not None
        assert found.number is NumberFormat.FP8_BLOCK


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (
            "*.self_attn.kv_a_proj_with_mqa",
            "q_a_proj and .*kv_a_proj_with_mqa are stored in different number",
        ),
        ("*.experts.?.down_proj", "gate, up and down are stored in different formats"),
        ("*.self_attn.kv_b_proj", r"kv_b_proj.weight_scale"),
    ],
)
def test_a_format_that_is_not_served_there_is_refused(
    tiny: Path, tmp_path: Path, pattern: str, message: str
) -> None:
    path = write_quantized_checkpoint(tiny, tmp_path / "s", {pattern: "FP8_BLOCK_SCALES"}, producer="fp8")
    checkpoint = RECIPE.loader.open(path)
    with pytest.raises(CheckpointError, match=message):  # noqa: PT012 (whichever of these sees it)
        config = RECIPE.loader.config(checkpoint)
        RECIPE.loader.tensor_map(config).check(checkpoint)
        RECIPE.replacements.build(config, DType.F32)


def test_the_reference_takes_plain_weights(tiny: Path, tmp_path: Path) -> None:
    path = stored(tiny, tmp_path / "s", "nvfp4")
    with pytest.raises(CheckpointError, match="write_plain_checkpoint"):
        RECIPE.oracle.reference(RECIPE.loader.open(path), DType.F32)
