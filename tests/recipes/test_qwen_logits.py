"""The tiny model's logits are those of Transformers however a text is divided, decoded or restored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from text_divisions import (
    AFTER,
    BOUND,
    check_cuts_and_restorations,
    check_in_one_piece,
    check_partitions,
    check_restored_decoding,
    check_shortest,
)
from transformers import Qwen4ExpForConditionalGeneration

from flare.testing import check_chunks
from flare.testing.plugin import TinyCheckpoints
from flare.testing.teacher_forcing import Forced
from flare_recipe_qwen.recipe import RECIPE
from flare_recipe_qwen.tiny_text import TOKENS

LENGTH = 100  # pages of 16, groups of 4 and the budget of 16 all end inside it
END = TOKENS["<|endoftext|>"]


def text() -> list[int]:
    """Ends of text where n-grams begin, twice in a row, and just before a page ends."""
    ids = torch.randint(1, 288, (LENGTH + AFTER,), generator=torch.Generator().manual_seed(3)).tolist()
    for place in (0, 21, 22, 62, 63):
        ids[place] = END
    return ids


@pytest.fixture(scope="module")
def forced(qwen_core: Path, flare_tiny_checkpoint: TinyCheckpoints) -> Iterator[Forced]:
    """Against the whole model as Transformers itself loads it: its names and shards, vision and all."""
    reference = Qwen4ExpForConditionalGeneration.from_pretrained(
        flare_tiny_checkpoint(RECIPE), attn_implementation="eager", dtype=torch.float32
    ).eval()
    forced = Forced(qwen_core, reference, text())
    yield forced
    forced.device.close()


def test_the_text_in_one_piece(forced: Forced) -> None:
    check_in_one_piece(forced, LENGTH)


def test_every_cut_in_two_and_a_restoration_at_every_token(forced: Forced) -> None:
    check_cuts_and_restorations(forced, range(1, LENGTH + 1), LENGTH)


def test_thirty_partitions(forced: Forced) -> None:
    check_partitions(forced, LENGTH)


def test_a_restored_snapshot_is_decoded_with_the_same_bits(forced: Forced) -> None:
    check_restored_decoding(forced, (1, 2, 3, 4, 5, 15, 16, 17, 22, 48, 63, 64, 65))


@pytest.mark.parametrize("length", [1, 2])
def test_the_shortest_prompts_are_decoded_on(forced: Forced, length: int) -> None:
    check_shortest(forced, length)


def test_every_division_that_recipes_are_held_to(
    qwen_core: Path, flare_tiny_checkpoint: TinyCheckpoints
) -> None:
    worst = check_chunks(qwen_core, RECIPE, flare_tiny_checkpoint(RECIPE), ids=text(), bound=BOUND)
    assert 0 < worst < BOUND
