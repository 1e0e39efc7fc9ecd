"""The tiny model's logits are those of Transformers however a text is divided, decoded or restored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import Qwen4ExpForConditionalGeneration

from flare.contract import ValueSource
from flare.device.direct import DirectRequest
from flare.prepare import CapacityRequest
from flare.testing import check_chunks, round_trip
from flare.testing.plugin import TinyCheckpoints
from flare.testing.teacher_forcing import Forced, largest, partition
from flare_recipe_qwen.recipe import RECIPE
from flare_recipe_qwen.tiny_text import TOKENS

LENGTH = 100
BOUND = 1e-4
END = TOKENS["<|endoftext|>"]
PAGE = 16
# The whole text in one chunk; pages, groups of 4 and the budget of 16 all end inside it.
CAPACITIES = CapacityRequest(
    context=128, concurrency=3, prefill_chunk_size=112, page_tokens=PAGE, snapshot_rows=1
)


def text() -> list[int]:
    """Ends of text where n-grams begin, twice in a row, and just before a page ends."""
    ids = torch.randint(1, 288, (LENGTH + 4,), generator=torch.Generator().manual_seed(3)).tolist()
    for place in (0, 21, 22, 62, 63):
        ids[place] = END
    return ids


@pytest.fixture(scope="module")
def core(flare_tiny_checkpoint: TinyCheckpoints, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("qwen") / "core.safetensors"
    return round_trip(RECIPE, flare_tiny_checkpoint(RECIPE), path, capacities=CAPACITIES)


@pytest.fixture(scope="module")
def forced(core: Path, flare_tiny_checkpoint: TinyCheckpoints) -> Iterator[Forced]:
    """Against the whole model as Transformers itself loads it: its names and shards, vision and all."""
    reference = Qwen4ExpForConditionalGeneration.from_pretrained(
        flare_tiny_checkpoint(RECIPE), attn_implementation="eager", dtype=torch.float32
    ).eval()
    forced = Forced(core, reference, text())
    yield forced
    forced.device.close()


def test_the_text_in_one_piece(forced: Forced) -> None:
    assert 0 < forced.prefill([], LENGTH) < BOUND


def test_every_cut_in_two(forced: Forced, complete: bool) -> None:
    sample = (1, 2, 3, 4, 5, 9, 10, 15, 16, 17, 20, 21, 22, 23, 24, 62, 63, 64, 65, 97, 98, 99)
    for cut in range(1, LENGTH) if complete else sample:
        assert forced.prefill([cut], LENGTH) < BOUND, cut


def test_thirty_partitions(forced: Forced) -> None:
    for seed in range(30):
        cuts = partition(LENGTH, seed)
        assert forced.prefill(cuts, LENGTH) < BOUND, cuts


@pytest.mark.parametrize("length", [1, 2])
def test_the_shortest_prompts_are_decoded_on(forced: Forced, length: int) -> None:
    ids, want = forced.ids, forced.want
    try:
        forced.ids, forced.want = ids[: length + 12], want[: length + 12]
        requests = forced.fill_slots(length)
        assert 0 < forced.decode([requests[1], None, requests[0], requests[2]], length) < BOUND
    finally:
        forced.ids, forced.want = ids, want


def test_every_division_that_recipes_are_held_to(core: Path, flare_tiny_checkpoint: TinyCheckpoints) -> None:
    assert 0 < check_chunks(core, RECIPE, flare_tiny_checkpoint(RECIPE), bound=BOUND) < BOUND


def decoded(forced: Forced, request: DirectRequest, count: int) -> list[torch.Tensor]:
    """The logits behind `count` further tokens of the text, one a step."""
    program, logits = forced.runner.programs["decode.1"], []
    for position in range(request.consumed, request.consumed + count):
        values = forced.runner.decode_values([request], [forced.ids[position]])
        logits.append(forced.device.probe(program.name, forced.runner.staging(program, values))["logits"][0])
        request.consumed = position + 1
    return logits


def test_a_restored_snapshot_of_any_count_continues_with_the_same_bits(
    forced: Forced, complete: bool
) -> None:
    """By the programs that serving copies state with; of the live state nothing is left."""
    device, runner = forced.device, forced.runner
    capacities = device.contract.capacities
    rows = device.storage("rows").view(capacities.rows, -1)
    pages = device.storage("pages").view(capacities.pages, -1)
    frozen_row, frozen_page = capacities.rows - 1, capacities.pages - 1
    sample = (1, 2, 3, 4, 5, 15, 16, 17, 19, 22, 23, 24, 31, 32, 33, 48, 62, 63, 64, 65, 80, 99, 100)
    for count in range(1, LENGTH + 1) if complete else sample:
        runner.reuse_pages()
        first = forced.start(0)
        assert forced.chunk(first, count) < BOUND
        shared = count // PAGE
        values = {
            ValueSource.SOURCE_ROW: [capacities.live_row(0)],
            ValueSource.DESTINATION_ROW: [frozen_row],
            ValueSource.SOURCE_PAGE: [first.pages[shared]],
            ValueSource.DESTINATION_PAGE: [frozen_page],
        }
        runner.run("snapshot", values)
        assert torch.equal(rows[frozen_row], rows[capacities.live_row(0)])
        assert torch.equal(pages[frozen_page], pages[first.pages[shared]])
        want = decoded(forced, first, 4)
        kept = {0, *first.pages[:shared], frozen_page}
        pages[[page for page in range(capacities.pages) if page not in kept]] = 0xFF
        rows[1:frozen_row] = 0xFF
        table = [*first.pages[:shared], *range(9, 9 + len(first.pages) - shared)]
        second = runner.start(
            2,
            forced.ids[:count],
            extra={ValueSource.MIN_TOKENS: [128], ValueSource.PAGE_TABLE_ROW: table},
        )
        second.history, second.consumed = forced.ids[:count], count
        restored = {
            ValueSource.LANE_SLOTS: [2],
            ValueSource.CONSUMED_COUNTS: [count],
            ValueSource.SOURCE_ROW: [frozen_row],
            ValueSource.DESTINATION_ROW: [capacities.live_row(2)],
            ValueSource.SOURCE_PAGE: [frozen_page],
            ValueSource.DESTINATION_PAGE: [table[shared]],
        }
        runner.run("restore", restored)
        got = decoded(forced, second, 4)
        assert all(map(torch.equal, got, want)), count
        for place, logits in enumerate(got, count):
            assert largest(logits - forced.want[place]) < BOUND, (count, place)
