"""Texts with images on tiny cores against Transformers' models for conditional generation, cut anywhere."""

from __future__ import annotations

import pytest
import torch
from image_prompts import frontend_of, message, placed
from snapshots import Snapshots

from flare.contract import DType
from flare.testing.image_forcing import ForcedImages
from flare.testing.pictures import picture
from flare.testing.plugin import TinyCheckpoints
from flare.testing.teacher_forcing import largest, partition
from flare_recipe_glm.recipe import RECIPE as GLM
from flare_recipe_qwen.recipe import RECIPE as QWEN

BOUND = 1e-4


@pytest.fixture(scope="module", params=["qwen", "glm"])
def forced(request: pytest.FixtureRequest, flare_tiny_checkpoint: TinyCheckpoints) -> ForcedImages:
    recipe = {"qwen": QWEN, "glm": GLM}[request.param]
    core = request.getfixturevalue(f"{request.param}_core")
    checkpoint = flare_tiny_checkpoint(recipe)
    asked = message("see ", picture(130, 90, 1), " and ", picture(40, 200, 2), "?")
    prompt = frontend_of(recipe, checkpoint).from_messages([asked, message("b", role="assistant")])
    assert len(prompt.images) == 2
    reference = recipe.oracle.reference(recipe.loader.open(checkpoint), DType.F32)
    ids = (*prompt.tokens, *range(100, 120))
    return ForcedImages(core, reference, ids, placed(prompt), prompt.rope_positions)


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
    idle = forced.capacities.decode_lanes[-1] - len(requests)
    assert forced.decode([*requests, *[None] * idle], begin) < BOUND


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
    # Steps of three meet every place in groups of four.
    for count in range(first.start - 2, first.start + first.tokens + 3, 3):
        forced.runner.reuse_pages()
        live = forced.start(0)
        forced.chunk_logits(live, count)
        snapshots.take(live)
        want = forced.chunk_logits(live, 12)
        assert largest(want - forced.want[count : count + 12]) < BOUND, count
        snapshots.wipe()
        assert torch.equal(forced.chunk_logits(snapshots.restore(2), 12), want), count
