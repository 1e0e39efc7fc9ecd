"""A tiny model in every number format, from checkpoint bytes to served tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from packed_recipe import packed_recipe

from flare.contract import DType, Region
from flare.corefile import CoreReader, read_contract
from flare.testing import check_chunks, round_trip
from flare_components.testing import write_quantized_checkpoint

LINEAR = "model.layers.*_proj"
STORED = {
    "W4A16_NVFP4": {DType.U8, DType.F8_E4M3, DType.F32},
    "NVFP4": {DType.U8, DType.F8_E4M3, DType.F32},
    "MXFP8": {DType.F8_E4M3, DType.F8_E8M0},
    "FP8_BLOCK_SCALES": {DType.F8_E4M3, DType.F32},
}


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
def test_a_model_is_served_in_its_number_format(
    tiny_checkpoint: Path, tmp_path: Path, name: str, dtype: DType
) -> None:
    stored = write_quantized_checkpoint(tiny_checkpoint, tmp_path / "stored", {LINEAR: name})
    recipe = packed_recipe(stored)
    core = round_trip(recipe, stored, tmp_path / "core.safetensors", dtype=dtype)
    with CoreReader(core) as reader:
        weights = [b for b in read_contract(reader).buffers if b.region is Region.WEIGHTS]
    layers = [b for b in weights if "_proj" in b.name]
    assert {b.dtype for b in layers} == STORED[name]
    # Codes and scales, and no second copy of the weights.
    elements = 2 * (64 * 128 + 64 * 64 + 64 * 192 + 96 * 64)
    bits = 4.5 if name.endswith("NVFP4") else 8.25
    assert sum(b.nbytes for b in layers) < elements * bits / 8 + 16 * 1024


def test_logits_equal_the_decoded_model_however_the_text_is_divided(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """With plain inputs every sum differs from Transformers' by rounding alone."""
    stored = write_quantized_checkpoint(tiny_checkpoint, tmp_path / "stored", {LINEAR: "W4A16_NVFP4"})
    recipe = packed_recipe(stored)
    core = round_trip(recipe, stored, tmp_path / "core.safetensors")
    assert 0 < check_chunks(core, recipe, stored) < 1e-4
