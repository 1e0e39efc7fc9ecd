"""The tiny model in every number format: served as it is stored, with the logits of what that stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from changed_checkpoints import changed_config, changed_tensors
from stored_models import against_decoded, prepare

from flare.contract import DType, Region
from flare.prepare import CheckpointError
from flare.testing.plugin import TinyCheckpoints
from flare.testing.teacher_forcing import largest
from flare_components.testing import write_quantized_checkpoint
from flare_recipe_qwen.recipe import RECIPE
from flare_recipe_qwen.tables import ngram_tables

SHARDS = "*.ngram_embedding.shard_*"
EXPERTS = "*.mlp.experts.*"
PROJECTIONS = ("*.linear_attn.in_proj_*", "*.linear_attn.out_proj", "*.self_attn.*_proj")
MXFP8 = dict.fromkeys(PROJECTIONS, "MXFP8")
BLOCKED = ("*.in_proj_qkv", "*.in_proj_z", "*.out_proj", "*.self_attn.?_proj", "*.shared_expert.*")
LAYOUTS: dict[str, tuple[str, dict[str, str], set[DType]]] = {
    "NVFP4, MXFP8": (
        "modelopt",
        {EXPERTS: "NVFP4", **MXFP8, SHARDS: "W4A16_NVFP4"},
        {DType.U8, DType.F8_E4M3, DType.F8_E8M0},
    ),
    "NVFP4 with compressed scales, MXFP8": (
        "modelopt",
        {EXPERTS: "NVFP4-CSF", **MXFP8, SHARDS: "W4A16_NVFP4"},
        {DType.U8, DType.U32, DType.F8_E4M3, DType.F8_E8M0},
    ),
    "compressed-tensors": ("compressed-tensors", {EXPERTS: "NVFP4", **MXFP8}, {DType.U8, DType.F8_E8M0}),
    "FP8": ("fp8", dict.fromkeys((EXPERTS, *BLOCKED), "FP8_BLOCK_SCALES"), {DType.F8_E4M3}),
}
LONGER = ("NVFP4, MXFP8", "compressed-tensors")


def stored(source: Path, target: Path, producer: str, formats: dict[str, str]) -> Path:
    return write_quantized_checkpoint(source, target, formats, producer=producer)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_checkpoint_is_served_in_its_formats(
    flare_tiny_checkpoint: TinyCheckpoints, tmp_path: Path, name: str, complete: bool
) -> None:
    """Inputs are rounded to the formats too, as the producers mean it, so logits agree less closely."""
    if name in LONGER and not complete:
        pytest.skip("with --complete")
    producer, formats, types = LAYOUTS[name]
    path = stored(flare_tiny_checkpoint(RECIPE), tmp_path / "stored", producer, formats)
    contract = prepare(RECIPE, path, tmp_path / "core.safetensors")
    weights = [buffer for buffer in contract.buffers if buffer.region is Region.WEIGHTS]
    assert types <= {buffer.dtype for buffer in weights}
    experts = [b for b in weights if ".experts." in b.name]
    assert sum(b.nbytes for b in experts) < 4 * 8 * 3 * 64 * 32 * (1.1 if name == "FP8" else 0.7)
    logits, want = against_decoded(RECIPE, path, tmp_path / "core.safetensors")
    # Logits that have nothing to do with each other would differ by the square root of two.
    assert 0 < float((logits - want).norm() / want.norm()) < 0.5


def test_plain_inputs_give_the_logits_of_the_decoded_model(
    flare_tiny_checkpoint: TinyCheckpoints, tmp_path: Path
) -> None:
    formats = dict.fromkeys((EXPERTS, *PROJECTIONS, "*.shared_expert.*", SHARDS), "W4A16_NVFP4")
    path = stored(flare_tiny_checkpoint(RECIPE), tmp_path / "stored", "modelopt", formats)
    contract = prepare(RECIPE, path, tmp_path / "core.safetensors")
    (table,) = contract.tables
    assert table.row_bytes == 9
    logits, want = against_decoded(RECIPE, path, tmp_path / "core.safetensors")
    assert 0 < largest(logits - want) < 1e-4


def test_a_table_whose_format_the_model_names(flare_tiny_checkpoint: TinyCheckpoints, tmp_path: Path) -> None:
    formats = {EXPERTS: "NVFP4", SHARDS: "W4A16_NVFP4"}
    path = stored(flare_tiny_checkpoint(RECIPE), tmp_path / "stored", "modelopt", formats)

    def unlist(config: dict[str, Any]) -> None:
        layers = config["quantization_config"]["quantized_layers"]
        for name in [name for name in layers if "ngram_embedding" in name]:
            del layers[name]

    def name_format(config: dict[str, Any]) -> None:
        unlist(config)
        config["text_config"]["ple_embedding_dtype"] = "nvfp4"

    tables = [
        ngram_tables(RECIPE.loader.config(RECIPE.loader.open(one)))[0]
        for one in (path, changed_config(path, tmp_path / "named", name_format))
    ]
    assert tables[0].packed
    assert (tables[0].rule, tables[0].resource) == (tables[1].rule, tables[1].resource)
    unnamed = changed_config(path, tmp_path / "unnamed", unlist)
    with pytest.raises(CheckpointError, match=r"shard_0: quantization_config names no number format"):
        RECIPE.loader.config(RECIPE.loader.open(unnamed))


def test_shards_must_have_one_global_scale(flare_tiny_checkpoint: TinyCheckpoints, tmp_path: Path) -> None:
    path = stored(flare_tiny_checkpoint(RECIPE), tmp_path / "s", "modelopt", {SHARDS: "W4A16_NVFP4"})
    scale = next(name for name in RECIPE.loader.open(path).tensors if "shard_2.weight_scale_2" in name)
    changed = changed_tensors(path, tmp_path / "c", lambda tensors: tensors[scale].mul_(2))
    with pytest.raises(CheckpointError, match=f"{scale} is not the global scale of the first shard"):
        RECIPE.loader.config(RECIPE.loader.open(changed))


def test_the_reference_takes_plain_weights(flare_tiny_checkpoint: TinyCheckpoints, tmp_path: Path) -> None:
    path = stored(flare_tiny_checkpoint(RECIPE), tmp_path / "s", "modelopt", {EXPERTS: "NVFP4"})
    with pytest.raises(CheckpointError, match="write_plain_checkpoint"):
        RECIPE.oracle.reference(RECIPE.loader.open(path), DType.F32)
