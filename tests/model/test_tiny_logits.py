"""The tiny model against Transformers in float32, cut everywhere: quick, on every machine."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from flare.contract import DType
from flare.testing.teacher_forcing import Forced, capacity_lengths, lane_patterns, partition, two_way_cuts
from flare_recipe_smollm.recipe import RECIPE

LENGTH = 150
# Logits reach 4; float32 sums of 96 products of such numbers differ by their order in the sixth digit.
TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def forced(tiny_core: Path, tiny_checkpoint: Path) -> Forced:
    reference = RECIPE.oracle.reference(RECIPE.loader.open(tiny_checkpoint), DType.F32)
    numbers = random.Random(1)
    return Forced(tiny_core, reference, [numbers.randrange(259) for _ in range(LENGTH)])


def test_distant_tokens_matter(forced: Forced) -> None:
    """The model is no trivial one: exchanging the first two tokens changes the last logits by far more
    than the tolerance."""
    forced.runner.reuse_pages()
    request = forced.start(0)
    kept = forced.ids
    forced.ids = [kept[1], kept[0], *kept[2:]]
    try:
        forced.chunk(request, 64)
        forced.chunk(request, 64)
    finally:
        forced.ids = kept
    assert forced.chunk(request, LENGTH - 128) > 100 * TOLERANCE


def test_every_two_way_cut(forced: Forced) -> None:
    worst = {cut: forced.prefill([cut]) for cut in two_way_cuts(LENGTH, complete=True)}
    assert {cut: value for cut, value in worst.items() if value > TOLERANCE} == {}


def test_one_token_at_a_time(forced: Forced) -> None:
    assert forced.prefill(range(1, LENGTH)) <= TOLERANCE


def test_partitions(forced: Forced) -> None:
    worst = {seed: forced.prefill(partition(LENGTH, seed)) for seed in range(50)}
    assert {seed: value for seed, value in worst.items() if value > TOLERANCE} == {}


def test_every_prefill_capacity(forced: Forced) -> None:
    lengths = capacity_lengths(forced.capacities.prefill_tokens, LENGTH)
    assert lengths == [15, 16, 17, 31, 32, 33, 63, 64, 65]
    worst = {length: forced.prefill([], end=length) for length in lengths}
    assert {length: value for length, value in worst.items() if value > TOLERANCE} == {}


def test_every_lane_of_every_decode_capacity(forced: Forced) -> None:
    begin = 20
    requests = forced.fill_slots(begin)
    patterns = dict(lane_patterns(requests, forced.capacities.decode_lanes))
    assert len(patterns) == 3 + 1 + 2 + 4
    worst = {name: forced.decode(lanes, begin) for name, lanes in patterns.items()}
    assert {name: value for name, value in worst.items() if value > TOLERANCE} == {}
