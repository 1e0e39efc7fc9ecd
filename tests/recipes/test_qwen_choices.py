"""Where rounding decides about an expert, and nowhere else, another value than the reference's is right."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from likelihoods import Likelihoods

from flare.contract import DType
from flare.testing.plugin import TinyCheckpoints
from flare.testing.teacher_forcing import Forced, partition
from flare_recipe_qwen.recipe import RECIPE
from flare_recipe_qwen.tiny import TEXT

BOUND = 1e-4
# The last layer's third and fourth expert for token 14 are apart by 1.4e-6 of their probability: no other
# token sees which of them it gets.
TIED = [212, 19, 140, 260, 237, 217, 104, 3, 197, 95, 251, 94, 29, 226, 27, 224]
TOKEN = 14


@pytest.fixture(scope="module")
def reference(flare_tiny_checkpoint: TinyCheckpoints) -> torch.nn.Module:
    return RECIPE.oracle.reference(RECIPE.loader.open(flare_tiny_checkpoint(RECIPE)), DType.F32)


@pytest.fixture(scope="module")
def likelihoods(reference: torch.nn.Module) -> Likelihoods:
    return Likelihoods(reference, TEXT["indexer_compress_ratio"])


def test_a_choice_that_falls_the_other_way_explains_one_value(likelihoods: Likelihoods) -> None:
    plain, narrow = likelihoods.of(TIED, (), 15)
    (choice,) = (choice for choice, token in narrow.items() if token == TOKEN)
    turned, _ = likelihoods.of(TIED, (), 15, frozenset({choice}))
    moved = (turned - plain).abs() > BOUND
    assert moved.nonzero().flatten().tolist() == [TOKEN]  # the value of the token behind it
    assert likelihoods.difference(TIED, (), turned.tolist(), BOUND) == (0.0, 1)
    assert likelihoods.difference(TIED, (), plain.tolist(), BOUND) == (0.0, 0)


@pytest.mark.parametrize("place", [TOKEN - 1, TOKEN])
def test_no_choice_explains_any_other_value(likelihoods: Likelihoods, place: int) -> None:
    found = likelihoods.of(TIED, (), 15)[0].clone()
    found[place] += 2e-3
    difference, _ = likelihoods.difference(TIED, (), found.tolist(), BOUND)
    assert difference > 1e-3


def test_every_division_gives_one_of_the_two(
    qwen_core: Path, reference: torch.nn.Module, likelihoods: Likelihoods
) -> None:
    forced = Forced(qwen_core, reference, TIED)
    try:
        for cuts in ([], *(partition(len(TIED), seed) for seed in range(8)), list(range(1, len(TIED)))):
            likely = forced.prefill_logits(cuts).log_softmax(-1)
            found = likely[:-1].gather(1, torch.tensor(TIED[1:])[:, None])[:, 0]
            assert likelihoods.difference(TIED, (), found.tolist(), BOUND)[0] < BOUND, cuts
    finally:
        forced.device.close()
