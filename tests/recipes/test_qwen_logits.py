"""The tiny model's logits are those of Transformers however a text is divided, decoded or restored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from qwen_snapshots import Snapshots
from transformers import Qwen4ExpForConditionalGeneration

from flare.device.direct import DirectRequest
from flare.testing import check_chunks
from flare.testing.plugin import TinyCheckpoints
from flare.testing.teacher_forcing import Forced, largest, partition
from flare_recipe_qwen.recipe import RECIPE
from flare_recipe_qwen.tiny_text import TOKENS

LENGTH = 100  # pages of 16, groups of 4 and the budget of 16 all end inside it
BOUND = 1e-4
END = TOKENS["<|endoftext|>"]
AFTER = 4


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
    assert 0 < forced.prefill([], LENGTH) < BOUND


def test_every_cut_in_two_and_a_restoration_at_every_token(forced: Forced) -> None:
    """The rest of the text gets the same bits behind a restored snapshot, of the live state of which nothing
    is left, as behind the state itself."""
    snapshots = Snapshots(forced)
    for count in range(1, LENGTH + 1):
        rest = (LENGTH - count) or AFTER
        forced.runner.reuse_pages()
        live = forced.start(0)
        assert forced.chunk(live, count) < BOUND, count
        snapshots.take(live)
        want = forced.chunk_logits(live, rest)
        assert largest(want - forced.want[count : count + rest]) < BOUND, count
        snapshots.wipe()
        assert torch.equal(forced.chunk_logits(snapshots.restore(2), rest), want), count


def test_thirty_partitions(forced: Forced) -> None:
    for seed in range(30):
        cuts = partition(LENGTH, seed)
        assert forced.prefill(cuts, LENGTH) < BOUND, cuts


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 15, 16, 17, 22, 48, 63, 64, 65])
def test_a_restored_snapshot_is_decoded_with_the_same_bits(forced: Forced, count: int) -> None:
    forced.runner.reuse_pages()
    snapshots, live = Snapshots(forced), forced.start(0)
    forced.chunk(live, count)
    snapshots.take(live)
    want = decoded(forced, live, 5)
    assert max(largest(one - forced.want[place]) for place, one in enumerate(want, count)) < BOUND
    snapshots.wipe()
    assert all(map(torch.equal, decoded(forced, snapshots.restore(2), 5), want))


@pytest.mark.parametrize("length", [1, 2])
def test_the_shortest_prompts_are_decoded_on(forced: Forced, length: int) -> None:
    ids, want = forced.ids, forced.want
    try:
        forced.ids, forced.want = ids[: length + 12], want[: length + 12]
        requests = forced.fill_slots(length)
        assert 0 < forced.decode([requests[1], None, requests[0], requests[2]], length) < BOUND
    finally:
        forced.ids, forced.want = ids, want


def test_every_division_that_recipes_are_held_to(
    qwen_core: Path, flare_tiny_checkpoint: TinyCheckpoints
) -> None:
    worst = check_chunks(qwen_core, RECIPE, flare_tiny_checkpoint(RECIPE), ids=text(), bound=BOUND)
    assert 0 < worst < BOUND


def decoded(forced: Forced, request: DirectRequest, count: int) -> list[torch.Tensor]:
    """The logits behind `count` further tokens of the text, one a step."""
    program, logits = forced.runner.programs["decode.1"], []
    for position in range(request.consumed, request.consumed + count):
        values = forced.runner.decode_values([request], [forced.ids[position]])
        logits.append(forced.device.probe(program.name, forced.runner.staging(program, values))["logits"][0])
        request.consumed = position + 1
    return logits
