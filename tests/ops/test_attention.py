"""`flare::paged_attention` on ragged lanes over poisoned, strided pages."""

import pytest
import torch
from precision import DTYPES, same_bits

from flare_components.ops import reference

paged_attention = torch.ops.flare.paged_attention


class Case:
    """Lanes given as (queries, context), with keys and values in pages and NaN everywhere else."""

    def __init__(self, lanes, dtype, *, tokens=16, heads=9, kv_heads=3, width=64, padding=0, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.lanes, self.scale = lanes, width**-0.5
        lane_pages = max(-(-context // tokens) for _, context in lanes) + 1
        pages = sum(-(-context // tokens) for _, context in lanes) + 2
        self.buffer = torch.full((pages, 3, 2, tokens, kv_heads, width), torch.nan, dtype=dtype)
        self.k_pages, self.v_pages = self.buffer[:, 1, 0], self.buffer[:, 1, 1]
        self.table = torch.full((len(lanes), lane_pages), -1, dtype=torch.int32)
        free = torch.randperm(pages, generator=generator).tolist()
        for lane, (_, context) in enumerate(lanes):
            for first in range(0, context, tokens):
                page, held = free.pop(), min(tokens, context - first)
                self.table[lane, first // tokens] = page
                # A lane's own generator: its contents do not depend on its neighbours.
                own = torch.Generator().manual_seed(1000 * context + first)
                for kv_pages in (self.k_pages, self.v_pages):
                    kv_pages[page, :held] = torch.randn(held, kv_heads, width, generator=own).to(dtype)
        self.starts = torch.tensor([0, *(queries for queries, _ in lanes)]).cumsum(0).int()
        self.contexts = torch.tensor([context for _, context in lanes], dtype=torch.int32)
        rows = [
            torch.randn(queries, heads, width, generator=torch.Generator().manual_seed(context))
            for queries, context in lanes
        ]
        self.q = torch.cat([*rows, torch.full((padding, heads, width), torch.nan)]).to(dtype)

    def operands(self):
        return self.q, self.k_pages, self.v_pages, self.table, self.starts, self.contexts, self.scale

    def run(self):
        return paged_attention(*self.operands())

    def rows(self, out, lane):
        return out[self.starts[lane] : self.starts[lane + 1]]


def assert_accurate(actual, expected):
    """Values are averages of standard normals. FP32: a few rounding steps. BF16: probabilities are rounded
    before they weigh values (half a unit of each), and the result is rounded."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    tolerance = 4e-6 if actual.dtype == torch.float32 else 4 * torch.finfo(torch.bfloat16).eps
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


MIXES = {
    "decode one": [(1, 1)],
    "decode one page": [(1, 16)],
    "decode past a page": [(1, 17)],
    "decode equal": [(1, 40)] * 4,
    "decode ragged": [(1, 5), (1, 48), (1, 33), (1, 1)],
    "decode with idle lanes": [(1, 20), (0, 0), (1, 3), (0, 0)],
    "decode far apart": [(1, 700), (1, 3), (1, 690), (1, 16)],
    "prefill": [(37, 37)],
    "prefill after a past": [(20, 53)],
    "prefill blocks": [(63, 63), (64, 80), (65, 65), (130, 133)],
    "mixed": [(1, 20), (20, 33), (1, 64), (5, 5), (0, 0), (3, 18)],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lanes", MIXES.values(), ids=MIXES)
def test_ragged_lanes_agree_with_the_reference(dtype, lanes):
    case = Case(lanes, dtype)
    assert_accurate(case.run(), reference.paged_attention(*case.operands()))


@pytest.mark.parametrize(("heads", "kv_heads", "width"), [(4, 4, 32), (8, 1, 64), (6, 2, 80), (2, 2, 128)])
@pytest.mark.parametrize("tokens", [1, 4, 64])
def test_head_layouts_and_page_sizes(heads, kv_heads, width, tokens):
    lanes = [(1, 9), (6, 8), (1, 64), (3, 70)]
    case = Case(lanes, torch.float32, tokens=tokens, heads=heads, kv_heads=kv_heads, width=width)
    assert_accurate(case.run(), reference.paged_attention(*case.operands()))


@pytest.mark.parametrize("lanes", [[(1, 9)], [(4, 9)], [(1, 9), (4, 4)], [(0, 0)]])
def test_rows_of_no_lane_are_zero(lanes):
    case = Case(lanes, torch.bfloat16, padding=3)
    out = case.run()
    assert not out[-3:].any()
    assert_accurate(out[:-3], reference.paged_attention(*case.operands())[:-3])


def test_rows_of_an_inactive_lane_are_zero():
    case = Case([(1, 20), (2, 20), (1, 20)], torch.float32)
    case.contexts[1] = 0
    out = case.run()
    assert not out[1:3].any()
    assert out[0].all()
    assert out[3].all()


@pytest.mark.parametrize("context", [1, 16, 31, 200, 511, 512, 513, 600])
def test_a_decode_lane_has_the_same_bits_in_any_company(context):
    dtype = torch.bfloat16
    alone = Case([(1, context)], dtype).run()
    companies = [
        [(1, context), (1, 250)],
        [(1, 3), (1, 640), (1, context), (1, 640)],
        [(1, context)] * 4 + [(1, context + 7)] * 4,
        [(5, 40), (1, context), (0, 0), (70, 70)],
    ]
    for lanes in companies:
        case = Case(lanes, dtype, padding=1, seed=3)
        out = case.run()
        for lane, (queries, length) in enumerate(lanes):
            if queries == 1 and length == context:
                assert same_bits(case.rows(out, lane), alone), lanes


@pytest.mark.parametrize("dtype", DTYPES)
def test_cutting_a_prefill_changes_rounding_at_most(dtype):
    whole = Case([(150, 150)], dtype)
    expected = whole.run()
    for cut in (1, 63, 64, 65, 149):
        starts = torch.tensor([0, cut], dtype=torch.int32), torch.tensor([0, 150 - cut], dtype=torch.int32)
        lengths = torch.tensor([cut], dtype=torch.int32), torch.tensor([150], dtype=torch.int32)
        pieces = [
            paged_attention(q, whole.k_pages, whole.v_pages, whole.table, start, length, whole.scale)
            for q, start, length in zip((whole.q[:cut], whole.q[cut:]), starts, lengths, strict=True)
        ]
        assert_accurate(torch.cat(pieces), expected)


def test_a_later_step_of_equal_lengths_reads_its_own_pages():
    lanes = [(1, 30), (1, 20), (4, 40)]
    first, second = Case(lanes, torch.float32, seed=1), Case(lanes, torch.float32, seed=2)
    second.buffer.mul_(2)
    assert not torch.equal(first.table, second.table)
    for case in (first, second, first):
        assert_accurate(case.run(), reference.paged_attention(*case.operands()))


def test_a_strided_page_table_and_query_are_read_as_they_are():
    case = Case([(1, 30), (1, 20)], torch.float32)
    expected = case.run()
    wide = torch.full((2, 9), 10**6, dtype=torch.int32)
    wide[:, : case.table.shape[1]] = case.table
    case.table = wide[:, : case.table.shape[1]]
    fused = torch.full((2, 12, 64), torch.nan)
    fused[:, :9] = case.q
    case.q = fused[:, :9]
    assert same_bits(case.run(), expected)


def test_pages_are_only_read():
    case = Case([(1, 30), (5, 20), (1, 7)], torch.bfloat16)
    before = case.buffer.clone()
    case.run()
    assert same_bits(case.buffer, before)


def test_a_context_beyond_the_page_table_is_a_bug():
    case = Case([(1, 30)], torch.float32)
    case.contexts[0] = 16 * case.table.shape[1] + 1
    with pytest.raises(AssertionError, match="context"):
        case.run()
