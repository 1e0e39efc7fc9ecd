"""`flare::select_groups` and `flare::selected_attention`."""

import pytest
import torch
from live_memory import LiveMemory
from precision import DTYPES
from ragged import MIXES, Ragged

from flare_components.ops import reference_sequence
from flare_components.ops import selected_attention as kernel

flare = torch.ops.flare
EACH = pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
COUNTS = [1, 3, 5, 64]


def select_operands(lanes, group=4, count=5, page_tokens=8, heads=16, width=24, dtype=torch.float32):
    q = lanes.packed(heads, width, dtype=dtype)
    pages, table = lanes.paged(page_tokens // group, width, dtype=dtype)
    needed = -(-int(lanes.context_lens.max()) // page_tokens)
    return q, pages, table[:, : max(needed, 1)], lanes.query_start, lanes.context_lens, group, count


def attend_operands(
    lanes, selected, group=4, page_tokens=8, heads=6, kv_heads=2, width=16, dtype=torch.float32
):
    q = lanes.packed(heads, width, dtype=dtype)
    pages, table = lanes.paged(page_tokens, 2, kv_heads, width, dtype=dtype)
    keys, values = pages.unbind(2)
    return q, keys, values, selected, table, lanes.query_start, lanes.context_lens, group, width**-0.5


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dtype", DTYPES)
@EACH
def test_selections_agree_with_the_reference(mix, dtype, count):
    for seed in range(3):
        args = select_operands(Ragged(mix, seed), count=count, dtype=dtype)
        assert torch.equal(flare.select_groups(*args), reference_sequence.select_groups(*args))


@pytest.mark.parametrize("heads", [1, 2])
def test_among_equal_scores_the_lower_group_wins(heads):
    """With few heads many scores are exactly zero; equal keys score equally above zero too."""
    lanes = Ragged([(30, 41), (1, 70)])
    q, pages, *rest = select_operands(lanes, count=12, heads=heads, width=8)
    pages[:] = pages.sign()
    args = q.sign(), pages, *rest
    got = flare.select_groups(*args)
    assert torch.equal(got, reference_sequence.select_groups(*args))
    pages[:] = -q[0, 0].abs()
    none = flare.select_groups(q[:31].abs(), pages, *rest)
    assert none[30].tolist() == list(range(12))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dtype", DTYPES)
@EACH
def test_weighted_selections_agree_with_the_reference(mix, dtype, count):
    for seed in range(3):
        lanes = Ragged(mix, seed)
        args = *select_operands(lanes, count=count, dtype=dtype), lanes.packed(16, dtype=dtype)
        assert torch.equal(flare.select_groups(*args), reference_sequence.select_groups(*args))


def test_weights_of_any_sign_decide():
    lanes = Ragged([(30, 41)])
    args = select_operands(lanes)
    plain, ones = flare.select_groups(*args), torch.ones(lanes.rows, 16)
    assert torch.equal(flare.select_groups(*args, ones), plain)
    assert torch.equal(flare.select_groups(*args, ones * 4), plain)
    # With all weights negative the worst groups are chosen, with none all score alike.
    assert not torch.equal(flare.select_groups(*args, -ones), plain)
    none = flare.select_groups(*args, ones * 0)
    assert none[:30].tolist() == [[0, 1, 2, 3, 4]] * 30


def test_scores_are_held_in_blocks(monkeypatch):
    lanes = Ragged([(300, 2000)])
    args = *select_operands(lanes, page_tokens=64), lanes.packed(16)
    with LiveMemory() as memory:
        whole = kernel.select_groups(*args)
    scores = 300 * 16 * 575 * 4
    assert memory.peak < scores / 2
    monkeypatch.setattr(kernel, "_SCORE_BYTES", scores // 100)
    with LiveMemory() as less:
        assert torch.equal(kernel.select_groups(*args), whole)
    assert less.peak < memory.peak / 3


def test_a_selection_does_not_depend_on_how_rows_are_called():
    lanes = Ragged([(40, 30)])
    q, pages, table, _, _, group, count = select_operands(lanes)
    whole = flare.select_groups(
        q[:40], pages, table[:1], torch.tensor([0, 40]).int(), torch.tensor([70]).int(), group, count
    )
    for row in range(40):
        lengths = torch.tensor([0, 1]).int(), torch.tensor([31 + row]).int()
        one = flare.select_groups(q[row : row + 1], pages, table[:1], *lengths, group, count)
        assert torch.equal(one[0], whole[row])


def test_scores_that_are_no_numbers_stop_nothing():
    """A request whose numbers broke still gets groups it may see, and its neighbours theirs."""
    lanes = Ragged([(3, 60), (1, 50)])
    q, pages, table, *rest = select_operands(lanes)
    want = flare.select_groups(q, pages, table, *rest)
    q[1] = torch.nan
    got = flare.select_groups(q, pages, table, *rest)
    assert torch.equal(got[[0, 2, 3]], want[[0, 2, 3]])
    assert 0 <= int(got[1].min()) <= int(got[1].max()) < 62 // 4


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dtype", DTYPES)
@EACH
def test_attention_agrees_with_the_reference(mix, dtype, count):
    lanes = Ragged(mix)
    selected = flare.select_groups(*select_operands(lanes, count=count))
    args = attend_operands(lanes, selected, dtype=dtype)
    tolerance = 4e-6 if dtype == torch.float32 else 4 * torch.finfo(dtype).eps
    got, want = flare.selected_attention(*args), reference_sequence.selected_attention(*args)
    torch.testing.assert_close(got, want, atol=tolerance, rtol=tolerance)


def test_what_is_not_selected_is_never_read():
    """Keys of other groups, of other lanes and behind the context are NaN."""
    lanes = Ragged([(1, 42), (1, 61)])
    selected = flare.select_groups(*select_operands(lanes, count=3))
    q, keys, values, _, table, starts, contexts, group, scale = attend_operands(lanes, selected)
    want = flare.selected_attention(q, keys, values, selected, table, starts, contexts, group, scale)
    for lane, context in enumerate(contexts[:2].tolist()):
        chosen = {0, *selected[lane].tolist(), context // group}
        for token in range(table.shape[1] * 8):
            if token // group not in chosen or token >= context:
                page = table[lane, token // 8]
                keys[page, token % 8] = values[page, token % 8] = torch.nan
    got = flare.selected_attention(q, keys, values, selected, table, starts, contexts, group, scale)
    assert torch.equal(got, want)
    assert bool(got[:2].isfinite().all())
