"""A bound on memory holds for all that a device holds: image features and patches, windows and state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prepared_cores import tiny_request

from flare.contract import BufferSpec, DType, Region
from flare.errors import CapacityError
from flare.prepare import CapacityRequest, Progress, TableDelivery
from flare.prepare.cpu_target import CpuTarget
from flare.prepare.definition import ProgramSet
from flare.prepare.session import PreparationSession
from flare.prepare.target import ExportedPrograms, other_bytes, region_bytes
from flare.recipes import Recipe
from flare.testing.plugin import TinyCheckpoints
from flare_recipe_qwen.recipe import RECIPE
from flare_recipe_smollm.recipe import RECIPE as TEXT_ONLY

SIZES = CapacityRequest(context=256, concurrency=2, prefill_chunk_size=16, page_tokens=16, snapshot_rows=2)
FEATURE_BYTES = 64 * 4  # of the tiny model in FP32
PATCH_BYTES = 3 * 2 * 16 * 16 * 4


class Planned(Exception):
    """Nothing is exported: what was planned."""

    def __init__(self, buffers: Sequence[BufferSpec]) -> None:
        self.buffers = buffers


class Stopping(CpuTarget):
    """Stops before programs are traced."""

    def export(self, programs: ProgramSet, progress: Progress) -> ExportedPrograms:
        raise Planned(programs.buffers)


def plan(checkpoint: Path, recipe: Recipe = RECIPE, **changes: Any) -> None:
    """Raises `Planned`, or what is wrong with the plan."""
    request = replace(tiny_request(DType.F32, replace(SIZES, **changes)), calibrate=False)
    session = PreparationSession(recipe, request, Progress(), Stopping())
    session.prepare(recipe.loader.open(checkpoint), checkpoint / "never.safetensors")


def planned(checkpoint: Path, **changes: Any) -> Sequence[BufferSpec]:
    with pytest.raises(Planned) as stopped:
        plan(checkpoint, **changes)
    return stopped.value.buffers


def blocks(buffers: Sequence[BufferSpec], region: Region) -> BufferSpec:
    (found,) = (buffer for buffer in buffers if buffer.region is region)
    return found


def held(buffers: Sequence[BufferSpec]) -> int:
    """Weights count twice, packed copies being as large; tables that the host reads are no buffers."""
    return sum(nbytes * (1 + (name == "weights")) for name, nbytes in region_bytes(buffers).items())


@pytest.mark.parametrize("images", [{"image_features": 64}, {"image_features": 20_000, "image_patches": 256}])
def test_as_many_pages_as_the_bound_has_room_for(
    flare_tiny_checkpoint: TinyCheckpoints, images: dict[str, int]
) -> None:
    checkpoint = flare_tiny_checkpoint(RECIPE)
    whole = planned(checkpoint, **images)
    page = blocks(whole, Region.PAGES).shape[1]
    memory = held(planned(checkpoint, **images, memory=1 << 40)) - 3 * page + 1
    buffers = planned(checkpoint, **images, memory=memory)
    assert held(buffers) <= memory < held(buffers) + page
    assert blocks(buffers, Region.PAGES).shape[0] == 1 + 2 * 16 - 3
    assert blocks(buffers, Region.IMAGE_FEATURES).nbytes == images["image_features"] * FEATURE_BYTES
    assert blocks(buffers, Region.UPLOAD).nbytes >= 256 * PATCH_BYTES


def test_features_take_pages(flare_tiny_checkpoint: TinyCheckpoints) -> None:
    checkpoint = flare_tiny_checkpoint(RECIPE)
    memory = held(planned(checkpoint, image_features=64, memory=1 << 40))
    few, many = (planned(checkpoint, image_features=n, memory=memory) for n in (64, 256))
    page = blocks(few, Region.PAGES).shape[1]
    taken = -(-192 * FEATURE_BYTES // page)
    assert blocks(many, Region.PAGES).shape[0] == blocks(few, Region.PAGES).shape[0] - taken
    with pytest.raises(CapacityError, match="cannot hold weights, rows and windows"):
        plan(checkpoint, image_features=100_000, memory=memory)


def test_tables_count_as_often_as_the_device_holds_them(flare_tiny_checkpoint: TinyCheckpoints) -> None:
    buffers = planned(flare_tiny_checkpoint(RECIPE), tables=TableDelivery.DEVICE)
    table = blocks(buffers, Region.TABLE_ROWS).nbytes
    assert table > 0
    assert other_bytes(buffers, 1.0) - other_bytes(buffers, 0.0) == table
    assert other_bytes(buffers, 0.0) == sum(
        buffer.nbytes
        for buffer in buffers
        if buffer.region in (Region.REQUEST_STATE, Region.UPLOAD, Region.COMPLETION, Region.IMAGE_FEATURES)
    )


def test_a_model_without_tables_has_none_to_read(flare_tiny_checkpoint: TinyCheckpoints) -> None:
    with pytest.raises(CapacityError, match="has no tables to read on the device"):
        plan(flare_tiny_checkpoint(TEXT_ONLY), TEXT_ONLY, tables=TableDelivery.DEVICE)
