"""Texts with images on a tiny core against `Qwen4ExpForConditionalGeneration`, cut anywhere."""

from __future__ import annotations

import pytest
from qwen_pictures import F32, message, picture, placed, prompts

from flare.testing.image_forcing import ForcedImages
from flare.testing.plugin import TinyCheckpoints, TinyCores
from flare.testing.teacher_forcing import partition
from flare_recipe_qwen.recipe import RECIPE

BOUND = 1e-4


@pytest.fixture(scope="module")
def forced(flare_tiny_checkpoint: TinyCheckpoints, flare_core: TinyCores) -> ForcedImages:
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


@pytest.mark.parametrize("seed", range(6))
def test_random_partitions(forced: ForcedImages, seed: int) -> None:
    assert forced.prefill(partition(len(forced.ids), seed)) < BOUND


def test_text_goes_on_behind_the_images(forced: ForcedImages) -> None:
    begin = len(forced.ids) - 18
    requests = forced.fill_slots(begin)
    assert forced.decode(requests, begin) < BOUND
