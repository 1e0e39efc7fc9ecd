"""Texts with images on a tiny core against `Qwen4ExpForConditionalGeneration`, cut anywhere."""

from __future__ import annotations

import pytest
import torch
from qwen_pictures import F32, message, placed, prompts

from flare.contract import ValueSource
from flare.testing.image_forcing import ForcedImages
from flare.testing.pictures import picture
from flare.testing.plugin import TinyCheckpoints, TinyCores
from flare.testing.teacher_forcing import largest, partition
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


def test_a_snapshot_inside_an_image_continues_with_the_same_bits(forced: ForcedImages) -> None:
    first, runner, capacities = forced.images[0], forced.runner, forced.capacities
    pages = forced.device.storage("pages").view(capacities.pages, -1)
    rows = forced.device.storage("rows").view(capacities.rows, -1)
    frozen = (capacities.rows - 1, capacities.pages - 1)
    page_tokens = forced.device.contract.page.page_tokens
    for count in range(first.start, first.start + first.tokens + 1):
        runner.reuse_pages()
        live = forced.start(0)
        forced.chunk_logits(live, count)
        shared = count // page_tokens
        runner.run("snapshot", transfer((capacities.live_row(0), live.pages[shared]), frozen))
        want = forced.chunk_logits(live, 12)
        kept = {0, *live.pages[:shared], frozen[1]}
        pages[[page for page in range(capacities.pages) if page not in kept]] = 0xFF
        rows[1 : frozen[0]] = 0xFF
        other = forced.start(2)
        table = [*live.pages[:shared], *other.pages[shared:]]
        runner.start(2, forced.ids, extra={ValueSource.PAGE_TABLE_ROW: table})
        restored = transfer(frozen, (capacities.live_row(2), table[shared]))
        slot = {ValueSource.LANE_SLOTS: [2], ValueSource.CONSUMED_COUNTS: [count]}
        runner.run("restore", restored | slot)
        other.consumed, other.history = count, list(forced.ids[:count])
        assert torch.equal(forced.chunk_logits(other, 12), want), count


def transfer(source: tuple[int, int], target: tuple[int, int]) -> dict[ValueSource, object]:
    """Values that copy a row and a page."""
    return {
        ValueSource.SOURCE_ROW: [source[0]],
        ValueSource.DESTINATION_ROW: [target[0]],
        ValueSource.SOURCE_PAGE: [source[1]],
        ValueSource.DESTINATION_PAGE: [target[1]],
    }
