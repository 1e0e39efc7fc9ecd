"""Texts with images on a tiny core against `Glm5NextForConditionalGeneration`, cut anywhere."""

from __future__ import annotations

import pytest
from image_prompts import frontend_of, message, placed

from flare.contract import DType
from flare.testing.image_forcing import ForcedImages
from flare.testing.pictures import picture
from flare.testing.plugin import TinyCheckpoints, TinyCores
from flare.testing.teacher_forcing import largest, partition
from flare_recipe_glm.recipe import RECIPE

BOUND = 1e-4


@pytest.fixture(scope="module")
def forced(flare_tiny_checkpoint: TinyCheckpoints, flare_core: TinyCores) -> ForcedImages:
    checkpoint = flare_tiny_checkpoint(RECIPE)
    asked = message("see ", picture(130, 90, 1), " and ", picture(40, 200, 2), "?")
    prompt = frontend_of(RECIPE, checkpoint).from_messages([asked, message("b", role="assistant")])
    assert len(prompt.images) == 2
    reference = RECIPE.oracle.reference(RECIPE.loader.open(checkpoint), DType.F32)
    ids = (*prompt.tokens, *range(100, 120))
    return ForcedImages(flare_core(RECIPE), reference, ids, placed(prompt), prompt.rope_positions)


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


@pytest.mark.parametrize("seed", range(3))
def test_random_partitions(forced: ForcedImages, seed: int) -> None:
    assert forced.prefill(partition(len(forced.ids), seed)) < BOUND


def test_text_goes_on_behind_the_images(forced: ForcedImages) -> None:
    begin = len(forced.ids) - 18
    assert forced.decode(forced.fill_slots(begin), begin) < BOUND


def test_an_appended_image_takes_the_place_of_the_first(forced: ForcedImages) -> None:
    second = forced.images[1]
    forced.runner.reuse_pages()
    request = forced.start(1)
    assert largest(forced.chunk_logits(request, second.start) - forced.want[: second.start]) < BOUND
    # As for a turn of its own: the features of the first image are not there any more.
    forced.runner.encode(request, [second], forced.rope_positions)
    rest = len(forced.ids) - second.start
    while rest:
        length = min(rest, forced.capacities.prefill_tokens[-1])
        assert forced.chunk(request, length) < BOUND
        rest -= length
