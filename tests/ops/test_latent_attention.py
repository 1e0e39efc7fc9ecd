"""`flare::latent_attention`."""

import pytest
import torch
from live_memory import LiveMemory
from precision import DTYPES
from ragged import MIXES, Ragged

from flare_components.ops import latent_attention as kernel
from flare_components.ops import reference_latents

flare = torch.ops.flare
EACH = pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
GROUP = 4


def operands(lanes, count=5, page_tokens=8, heads=6, widths=(16, 16), rank=24, dtype=torch.float32):
    """`count` groups that each row sees, at random; all that it sees where they are no more."""
    q = lanes.packed(heads, widths[0], dtype=dtype)
    ups = [(lanes.normal(heads, width, rank) * rank**-0.5).to(dtype) for width in widths]
    pages, table = lanes.paged(page_tokens, rank, dtype=dtype)
    selected = torch.full((lanes.rows, count), -1, dtype=torch.int32)
    row = 0
    for number, past in lanes.lanes:
        for last in range(past, past + number):
            seen = torch.randperm((last + 1) // GROUP, generator=lanes.generator)[:count].sort().values
            selected[row, : len(seen)] = seen
            row += 1
    lengths = table, lanes.query_start, lanes.context_lens
    return q, *ups, pages, selected, *lengths, GROUP, widths[0] ** -0.5


def bound(dtype):
    """Products of the absorbed form are rounded to the type of q twice more than those of the reference."""
    return 4e-6 if dtype == torch.float32 else 4 * torch.finfo(dtype).eps


@pytest.fixture(params=["chosen", "absorbed", "expanded"])
def form(request, monkeypatch):
    if request.param != "chosen":
        monkeypatch.setattr(kernel, "_expands", lambda *_: request.param == "expanded")


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("count", [1, 5, 64])
@pytest.mark.parametrize("dtype", DTYPES)
@EACH
def test_both_forms_agree_with_the_reference(mix, dtype, count):
    args = operands(Ragged(mix), count, dtype=dtype)
    got, want = flare.latent_attention(*args), reference_latents.latent_attention(*args)
    assert got.is_contiguous()
    torch.testing.assert_close(got, want, atol=bound(dtype), rtol=bound(dtype))


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("widths", [(16, 8), (8, 16)])
def test_keys_and_values_may_differ_in_width(widths):
    args = operands(Ragged(MIXES["mixed"]), 64, widths=widths)
    want = reference_latents.latent_attention(*args)
    torch.testing.assert_close(flare.latent_attention(*args), want, atol=4e-6, rtol=4e-6)


def spans(*lanes):
    return [kernel.Span(0, 0, count, 0, past) for count, past in lanes]


def test_a_lane_takes_the_form_with_fewer_multiplications():
    """Keys and values of 256 elements each, latents of 512: of a pair, 512 against 1024 multiplications; of a
    token expanded as much as of 512 pairs."""
    expanded = [kernel._expands(span, 512, 512) for span in spans((512, 0), (2, 0), (512, 1024), (600, 1400))]
    absorbed = [kernel._expands(span, 512, 512) for span in spans((2, 2), (64, 1024), (400, 1600))]
    assert expanded == [True] * 4
    assert absorbed == [False] * 3
    assert not any(kernel._expands(span, 64, 16) for span in spans((512, 0), (64, 64)))


def test_what_is_not_selected_is_never_read():
    """Latents of other groups, of other lanes and behind the context are NaN."""
    lanes = Ragged([(1, 42), (1, 61), (1, 9)])
    q, *ups, pages, selected, table, starts, contexts, group, scale = operands(lanes, 3)
    want = flare.latent_attention(q, *ups, pages, selected, table, starts, contexts, group, scale)
    for lane, context in enumerate(contexts[:3].tolist()):
        chosen = {*selected[lane].tolist(), context // group}
        for token in range(table.shape[1] * 8):
            if token // group not in chosen or token >= context:
                pages[table[lane, token // 8], token % 8] = torch.nan
    got = flare.latent_attention(q, *ups, pages, selected, table, starts, contexts, group, scale)
    assert torch.equal(got, want)
    assert bool(got[:3].isfinite().all())


def test_in_bf16_a_lane_has_the_same_bits_beside_any_other():
    lanes = Ragged([(1, 42), (1, 61), (1, 9), (1, 0)])
    q, *ups, pages, selected, table, starts, contexts, group, scale = operands(lanes, 3, dtype=torch.bfloat16)
    together = flare.latent_attention(q, *ups, pages, selected, table, starts, contexts, group, scale)
    for lane in range(4):
        own = slice(lane, lane + 1)
        lengths = table[own], torch.tensor([0, 1]).int(), contexts[own]
        alone = flare.latent_attention(q[own], *ups, pages, selected[own], *lengths, group, scale)
        assert torch.equal(alone, together[own])


def test_real_head_sizes():
    """64 heads of 256, latents of 512, pages of 256: one row and some, on either side of the budget."""
    lanes = Ragged([(1, 300), (3, 120), (20, 150)])
    args = operands(lanes, 40, 256, 64, (256, 256), 512, torch.bfloat16)
    got = flare.latent_attention(*args)
    exact = [operand.float() for operand in args[:4]]
    for row, lane, context in ((0, 0, 301), (2, 1, 122), (4, 2, 151), (23, 2, 170)):
        # One row of the reference at a time: it is slow at these sizes.
        own = slice(row, row + 1)
        lengths = args[5][lane : lane + 1], torch.tensor([0, 1]).int(), torch.tensor([context]).int()
        want = reference_latents.latent_attention(
            exact[0][own], *exact[1:], args[4][own], *lengths, *args[8:]
        )
        torch.testing.assert_close(got[own].float(), want, atol=0.01, rtol=0.02)


def test_a_long_prefill_holds_little_at_once(monkeypatch):
    """Scores of all rows, heads and tokens would be 134 MB in half precision, expanded keys and values 4 MB,
    carried queries 8 MB."""
    monkeypatch.setattr(kernel, "_EXPANDED_BYTES", 1 << 20)
    args = operands(Ragged([(1024, 0)]), 200, 256, 64, (16, 16), 64, torch.bfloat16)
    with LiveMemory() as memory:
        result = kernel.latent_attention(*args)
    assert memory.peak < result.nbytes + (6 << 20)
