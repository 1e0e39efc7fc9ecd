"""The real model against Transformers in float32: every logit of a 600-token text, however it is divided.

The default is a sample for every run; `--complete` takes all 599 two-way cuts and 50 partitions.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from flare.contract import DType
from flare.prepare import Checkpoint
from flare.testing.teacher_forcing import Forced, capacity_lengths, lane_patterns, partition, two_way_cuts
from flare_recipe_smollm.recipe import RECIPE

pytestmark = [pytest.mark.model, pytest.mark.slow]

LENGTH = 600
TOLERANCE = 2e-3
DECODED = 6


@pytest.fixture(scope="module")
def forced(smollm_core_f32: Path, smollm_checkpoint: Checkpoint) -> Forced:
    assert smollm_checkpoint.assets.tokenizer is not None
    tokenizer = Tokenizer.from_buffer(smollm_checkpoint.assets.tokenizer)
    ids = tokenizer.encode((Path(__file__).parent / "prompt.txt").read_text()).ids[:LENGTH]
    assert len(ids) == LENGTH
    return Forced(smollm_core_f32, RECIPE.oracle.reference(smollm_checkpoint, DType.F32), ids)


def test_the_reference_understands_the_text(forced: Forced) -> None:
    """The comparison is with a model that predicts: an uninitialised one would agree with itself too."""
    hits = sum(int(row.argmax()) == token for row, token in zip(forced.want, forced.ids[1:], strict=False))
    assert hits > LENGTH * 0.3


def test_one_shot(forced: Forced) -> None:
    assert forced.prefill([]) <= TOLERANCE


@pytest.mark.timeout(6 * 3600)
def test_two_way_cuts(forced: Forced, complete: bool) -> None:
    worst = {cut: forced.prefill([cut]) for cut in two_way_cuts(LENGTH, complete)}
    assert {cut: value for cut, value in worst.items() if value > TOLERANCE} == {}


@pytest.mark.timeout(3 * 3600)
def test_partitions(forced: Forced, complete: bool) -> None:
    worst = {seed: forced.prefill(partition(LENGTH, seed)) for seed in range(50 if complete else 4)}
    assert {seed: value for seed, value in worst.items() if value > TOLERANCE} == {}


def test_every_prefill_capacity(forced: Forced) -> None:
    lengths = capacity_lengths(forced.capacities.prefill_tokens, LENGTH)
    assert lengths == [size + step for size in (16, 32, 64, 128, 256, 512) for step in (-1, 0, 1)]
    worst = {length: forced.prefill([], end=length) for length in lengths}
    assert {length: value for length, value in worst.items() if value > TOLERANCE} == {}


def test_every_lane_of_every_decode_capacity(forced: Forced) -> None:
    begin = LENGTH - DECODED
    requests = forced.fill_slots(begin)
    worst = {
        name: forced.decode(lanes, begin)
        for name, lanes in lane_patterns(requests, forced.capacities.decode_lanes)
    }
    assert len(worst) == 10
    assert {name: value for name, value in worst.items() if value > TOLERANCE} == {}
