"""The tiny model's logits are those of Transformers however a text is divided, decoded or restored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from text_divisions import (
    AFTER,
    check_cuts_and_restorations,
    check_in_one_piece,
    check_partitions,
    check_restored_decoding,
    check_shortest,
)
from transformers import Glm5NextForConditionalGeneration

from flare.testing.plugin import TinyCheckpoints
from flare.testing.teacher_forcing import Forced
from flare_recipe_glm.recipe import RECIPE
from flare_recipe_glm.tiny import TEXT
from flare_recipe_glm.tiny_text import TOKENS

LENGTH = 100  # pages of 16, pools of 4 and the budget of 16 all end inside it
# Around the ends of pools and of pages, and where there is next to nothing or almost all.
COUNTS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 62, 63, 64, 65, 97, 98, 99, 100)


def text() -> list[int]:
    """Ends of text at the beginning, twice in a row, and just before a page ends."""
    numbers = torch.Generator().manual_seed(3)
    ids = torch.randint(len(TOKENS), 294, (LENGTH + AFTER,), generator=numbers).tolist()
    for place, end in zip((0, 21, 22, 62, 63), TEXT["eos_token_id"] * 2, strict=False):
        ids[place] = end
    return ids


@pytest.fixture(scope="module")
def forced(glm_core: Path, flare_tiny_checkpoint: TinyCheckpoints) -> Iterator[Forced]:
    """Against the whole model as Transformers itself loads it: from published names, experts one by one."""
    reference = Glm5NextForConditionalGeneration.from_pretrained(
        flare_tiny_checkpoint(RECIPE),
        attn_implementation="eager",
        experts_implementation="eager",
        dtype=torch.float32,
    ).eval()
    forced = Forced(glm_core, reference, text())
    yield forced
    forced.device.close()


def test_the_text_in_one_piece(forced: Forced) -> None:
    check_in_one_piece(forced, LENGTH)


def test_cuts_in_two_and_restorations(forced: Forced, complete: bool) -> None:
    check_cuts_and_restorations(forced, range(1, LENGTH + 1) if complete else COUNTS, LENGTH)


def test_thirty_partitions(forced: Forced) -> None:
    check_partitions(forced, LENGTH)


def test_restored_snapshots_are_decoded_with_the_same_bits(forced: Forced, complete: bool) -> None:
    check_restored_decoding(forced, range(1, LENGTH) if complete else COUNTS[:-2])


@pytest.mark.parametrize("length", [1, 2])
def test_the_shortest_prompts_are_decoded_on(forced: Forced, length: int) -> None:
    check_shortest(forced, length)


def test_a_row_counts_what_it_has_taken(forced: Forced) -> None:
    """The consumed count of a row is in the row, and so in every snapshot."""
    geometry, capacities = forced.device.contract.row, forced.capacities
    offset = geometry.field("consumed").offset
    for request, count in zip(forced.fill_slots(37), (37, 37, 37), strict=True):
        row = forced.device.storage("rows").view(capacities.rows, -1)[capacities.live_row(request.slot)]
        assert row[offset : offset + 4].view(torch.int32).tolist() == [count]
