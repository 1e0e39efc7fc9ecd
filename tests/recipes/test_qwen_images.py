"""Texts with images on a tiny core against `Qwen4ExpForConditionalGeneration`, cut anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from qwen_pictures import F32, message, placed, prompts
from qwen_snapshots import Snapshots

from flare.testing.image_forcing import ForcedImages
from flare.testing.pictures import picture
from flare.testing.plugin import TinyCheckpoints
from flare.testing.teacher_forcing import largest, partition
from flare_recipe_qwen.recipe import RECIPE

BOUND = 1e-4


@pytest.fixture(scope="module")
def forced(flare_tiny_checkpoint: TinyCheckpoints, qwen_core: Path) -> ForcedImages:
    checkpoint = flare_tiny_checkpoint(RECIPE)
    prompt = prompts(checkpoint).from_messages(
        [
            message("see ", picture(130, 90, 1), " and ", picture(40, 200, 2), "?"),
            message("b", role="assistant"),
        ]
    )
    assert len(prompt.images) == 2
    reference = RECIPE.oracle.reference(RECIPE.loader.open(checkpoint), F32)
    ids = (*prompt.tokens, *range(100, 120))
    return ForcedImages(qwen_core, reference, ids, placed(prompt), prompt.rope_positions)


def test_one_shot(forced: ForcedImages) -> None:
    assert forced.prefill(()) < BOUND


def test_images_matter(forced: ForcedImages) -> None:
    images, forced.images = forced.images, ()
    try:
        assert forced.prefill(()) > 100 * BOUND
    finally:
        forced.images = images


def test_every_cut_around_and_inside_an_image(forced: ForcedImages) -> None:
    first = forced.images[0]
    worst = max(forced.prefill((cut,)) for cut in range(first.start - 2, first.start + first.tokens + 3))
    assert worst < BOUND


@pytest.mark.parametrize("seed", range(6))
def test_random_partitions(forced: ForcedImages, seed: int) -> None:
    assert forced.prefill(partition(len(forced.ids), seed)) < BOUND


def test_text_goes_on_behind_the_images(forced: ForcedImages) -> None:
    begin = len(forced.ids) - 18
    requests = forced.fill_slots(begin)
    assert forced.decode([*requests, None], begin) < BOUND


def test_an_appended_image_takes_the_place_of_the_first(forced: ForcedImages) -> None:
    second = forced.images[1]
    forced.runner.reuse_pages()
    request = forced.start(1)
    begin = second.start
    assert largest(forced.chunk_logits(request, begin) - forced.want[:begin]) < BOUND
    # As for a turn of its own: the features of the first image are not there any more.
    forced.runner.encode(request, [second], forced.rope_positions)
    rest = len(forced.ids) - begin
    limit = forced.capacities.prefill_tokens[-1]
    while rest:
        length = min(rest, limit)
        assert forced.chunk(request, length) < BOUND
        rest -= length


def test_a_snapshot_around_and_inside_an_image_continues_with_the_same_bits(forced: ForcedImages) -> None:
    first, snapshots = forced.images[0], Snapshots(forced)
    for count in range(first.start - 2, first.start + first.tokens + 3):
        forced.runner.reuse_pages()
        live = forced.start(0)
        forced.chunk_logits(live, count)
        snapshots.take(live)
        want = forced.chunk_logits(live, 12)
        assert largest(want - forced.want[count : count + 12]) < BOUND, count
        snapshots.wipe()
        assert torch.equal(forced.chunk_logits(snapshots.restore(2), 12), want), count
