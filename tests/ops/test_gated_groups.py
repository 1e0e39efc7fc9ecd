"""`flare::pool_gated_groups`."""

import pytest
import torch
from precision import DTYPES
from ragged import MIXES, Ragged, agree, leaves_others_alone, results_of

from flare_components.ops import reference_latents

EACH = pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
GROUPS = [(4, 8, 4), (4, 4, 7), (1, 8, 1), (2, 64, 2), (16, 16, 19)]
"""(group, page tokens, entries of the ring)"""
OPENED, PAGES = 3, 4


def operands(lanes, group=4, page_tokens=8, extent=4, dtype=torch.float32, width=24):
    keys, gates = lanes.packed(2 * width + 8, dtype=dtype)[:, 8:].split([width, width], 1)
    bias, opened = lanes.normal(group, width, dtype=dtype), lanes.state(extent, 2, width, dtype=dtype)
    _, table = lanes.paged(page_tokens, 1)
    pages = torch.full((int(table.max()) + 1, 3, page_tokens // group, width), torch.nan).to(dtype)[:, 1]
    lengths = table, lanes.query_start, lanes.context_lens, lanes.live_rows
    return keys, gates * 3, bias, opened, pages, *lengths


def tolerance(dtype):
    return 4e-6 if dtype == torch.float32 else torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("group", "page_tokens", "extent"), GROUPS)
@EACH
def test_pooled_keys_agree_with_the_reference(mix, group, page_tokens, extent, dtype):
    args = operands(Ragged(mix), group, page_tokens, extent, dtype)
    reference = reference_latents.pool_gated_groups
    agree("pool_gated_groups", reference, args, written=(OPENED, PAGES), tolerance=tolerance(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_pooled_key_has_the_same_bits_however_its_group_is_cut(dtype):
    """Also at widths that no vector of the processor divides."""
    lanes = Ragged([(40, 0)])
    keys, gates, bias, opened, pages, table, _, _, live = operands(lanes, dtype=dtype, width=27)

    def run(cuts):
        ring, out, start = opened.clone(), pages.clone(), 0
        for count in cuts:
            lengths = (
                torch.tensor([0, count]).int(),
                torch.tensor([start + count]).int(),
                live[:1],
            )
            rows = slice(start, start + count)
            torch.ops.flare.pool_gated_groups(keys[rows], gates[rows], bias, ring, out, table[:1], *lengths)
            start += count
        return ring[int(live[0])], out[table[0].long()]

    whole = run([40])
    assert bool(whole[1].isfinite().all())
    for cuts in [[1] * 40, [3, 37], [4, 36], [5, 35], [22, 1, 17]]:
        assert all(map(torch.equal, run(cuts), whole))


def test_large_gates_stay_finite():
    args = operands(Ragged([(8, 0)]))
    args[1].mul_(1e4)
    pages = results_of(torch.ops.flare.pool_gated_groups, args, (OPENED, PAGES))[1]
    assert int(pages.isfinite().all(-1).sum()) == 2


@EACH
def test_other_state_keeps_its_bytes(mix):
    lanes = Ragged(mix)
    args = operands(lanes)
    leaves_others_alone("pool_gated_groups", lanes, args, OPENED)
    pages = results_of(torch.ops.flare.pool_gated_groups, args, (OPENED, PAGES))[1]
    complete = sum((past + count) // 4 - past // 4 for count, past in lanes.lanes if count)
    assert int(pages.isfinite().all(-1).sum()) == complete
