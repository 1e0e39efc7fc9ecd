"""Tiny checkpoints in number formats: prepared, and against Transformers' model with decoded weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from prepared_cores import tiny_request

from flare.contract import DType, PreparedContract
from flare.prepare import CapacityRequest, Progress
from flare.prepare.session import PreparationSession
from flare.recipes import Recipe
from flare.testing.teacher_forcing import Forced
from flare_components.testing import write_plain_checkpoint

CAPACITIES = CapacityRequest(
    context=64, concurrency=1, prefill_chunk_size=32, page_tokens=16, snapshot_rows=1
)


def prepare(recipe: Recipe, checkpoint: Path, core: Path) -> PreparedContract:
    """A core of few and small programs, without measurements."""
    request = replace(tiny_request(DType.F32, CAPACITIES), calibrate=False)
    return PreparationSession(recipe, request, Progress()).prepare(recipe.loader.open(checkpoint), core)


def against_decoded(
    recipe: Recipe, path: Path, core: Path, *, lowest: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [60, V] of the core, in two pieces, and those of Transformers with the decoded weights of the
    checkpoint at `path`, of a text of tokens from `lowest` on."""
    plain = write_plain_checkpoint(path, path.with_name(f"{path.name}.plain"))
    reference = recipe.oracle.reference(recipe.loader.open(plain), DType.F32)
    ids = torch.randint(lowest, 288, (60,), generator=torch.Generator().manual_seed(1)).tolist()
    forced = Forced(core, reference, ids)
    try:
        return forced.prefill_logits([37]), forced.want
    finally:
        forced.device.close()
