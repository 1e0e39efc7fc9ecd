"""`flare::group_starts` and `flare::pool_groups`."""

import pytest
import torch
from precision import DTYPES
from ragged import MIXES, Ragged, agree, leaves_others_alone, results_of

from flare_components.ops import reference_sequence

EACH = pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
GROUPS = [(4, 8), (4, 4), (1, 8), (2, 64), (8, 16)]
"""(group, page tokens)"""


def start_operands(lanes, group):
    positions = torch.randint(0, 1000, (3, lanes.rows), generator=lanes.generator, dtype=torch.int32)
    anchors = torch.randint(0, 1000, (9, 3), generator=lanes.generator)
    return positions, anchors, lanes.query_start, lanes.context_lens, lanes.live_rows, group


def pool_operands(lanes, group, page_tokens, dtype=torch.float32, extent=0, width=24, part=16):
    keys = lanes.packed(40 + width, dtype=dtype)[:, 40:]
    cos, sin, weight = (
        *(lanes.packed(part, dtype=dtype) for _ in range(2)),
        lanes.normal(width, dtype=dtype),
    )
    open_keys = lanes.state(extent or group, width, dtype=dtype)
    _, table = lanes.paged(page_tokens, 1)
    pages = torch.full((int(table.max()) + 1, 3, page_tokens // group, width), torch.nan).to(dtype)[:, 1]
    lengths = table, lanes.query_start, lanes.context_lens, lanes.live_rows
    return keys, cos, sin, weight, open_keys, pages, *lengths, group, 1e-6, 1.0


@pytest.mark.parametrize("group", [1, 2, 4, 7])
@EACH
def test_starts_agree_with_the_reference(mix, group):
    args = start_operands(Ragged(mix), group)
    agree("group_starts", reference_sequence.group_starts, args, written=(1,), tolerance=0)


@EACH
def test_other_anchors_stay(mix):
    lanes = Ragged(mix)
    leaves_others_alone("group_starts", lanes, start_operands(lanes, 4), 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("group", "page_tokens"), GROUPS)
@EACH
def test_pooled_keys_agree_with_the_reference(mix, group, page_tokens, dtype):
    args = pool_operands(Ragged(mix), group, page_tokens, dtype)
    tolerance = 4e-6 if dtype == torch.float32 else 4 * torch.finfo(dtype).eps
    agree("pool_groups", reference_sequence.pool_groups, args, written=(4, 5), tolerance=tolerance)


@pytest.mark.parametrize("extent", [5, 7, 8])
@EACH
def test_a_ring_may_keep_more_than_a_group(mix, extent):
    args = pool_operands(Ragged(mix), 4, 8, extent=extent)
    agree("pool_groups", reference_sequence.pool_groups, args, written=(4, 5), tolerance=4e-6)


@EACH
def test_other_state_keeps_its_bytes(mix):
    lanes = Ragged(mix)
    args = pool_operands(lanes, 4, 8)
    leaves_others_alone("pool_groups", lanes, args, 4)
    pages = results_of(torch.ops.flare.pool_groups, args, (5,))[0]
    complete = sum((past + count) // 4 - past // 4 for count, past in lanes.lanes if count)
    assert int(pages.isfinite().all(-1).sum()) == complete
