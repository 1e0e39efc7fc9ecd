"""`flare::slot_mapping` and `flare::paged_kv_write`: exact, and padding touches nothing."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from precision import DTYPES, same_bits

from flare_components.ops import reference, reference_latents

slot_mapping = torch.ops.flare.slot_mapping
paged_kv_write = torch.ops.flare.paged_kv_write


def i32(values):
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_positions_at_page_boundaries(dtype):
    table = i32([[7, 2, 5], [1, 0, 3]])
    positions = torch.tensor([0, 3, 4, 7, 8, 11, 4], dtype=dtype)
    lanes = torch.tensor([0, 0, 0, 1, 1, 1, 1], dtype=dtype)
    slots = slot_mapping(table, positions, lanes, 4)
    assert slots.tolist() == [28, 31, 8, 3, 12, 15, 0]
    assert slots.dtype == torch.int64


def test_padding_rows_map_nowhere_whatever_their_position():
    slots = slot_mapping(i32([[3]]), i32([10**6, 1, -9]), i32([-1, 0, -2]), 8)
    assert slots.tolist() == [-1, 25, -1]


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_mapping_agrees_with_the_reference(data):
    tokens, pages, lanes = (data.draw(st.integers(1, 5)) for _ in range(3))
    rows = data.draw(st.lists(st.tuples(st.integers(-1, lanes - 1), st.integers(0, tokens * pages - 1))))
    table = torch.randperm(lanes * pages).view(lanes, pages).int()
    lane, position = i32([row[0] for row in rows]), i32([row[1] for row in rows])
    actual = slot_mapping(table, position, lane, tokens)
    assert torch.equal(actual, reference.slot_mapping(table, position, lane, tokens))


def strided_pages(pages, tokens, kv_heads, width, dtype, surplus=5):
    """Pages of three layers in one poisoned buffer, whose page stride is no multiple of a token."""
    layer = tokens * kv_heads * width
    buffer = torch.full((pages, 6 * layer + surplus), torch.nan, dtype=dtype)
    shape, stride = (pages, tokens, kv_heads, width), (buffer.shape[1], kv_heads * width, width, 1)
    return buffer, [buffer.as_strided(shape, stride, number * layer) for number in range(6)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("slots", [[0], [-1], [11, -1, 4, 3, -1, 19], list(range(20)), []])
def test_only_the_mapped_slots_change(dtype, slots):
    torch.manual_seed(0)
    buffer, views = strided_pages(5, 4, 3, 8, dtype)
    untouched, expected = strided_pages(5, 4, 3, 8, dtype)
    fused = torch.randn(len(slots), 9, 8).to(dtype)
    k, v = fused[:, 3:6], fused[:, 6:]
    mapping = torch.tensor(slots, dtype=torch.int64)
    paged_kv_write(k, v, views[2], views[5], mapping)
    reference.paged_kv_write(k, v, expected[2], expected[5], mapping)
    assert same_bits(buffer, untouched)


def test_a_poisoned_padding_row_is_not_written():
    buffer, views = strided_pages(2, 4, 1, 8, torch.float32)
    buffer.zero_()
    k = torch.full((2, 1, 8), torch.nan)
    k[1] = 1
    paged_kv_write(k, k, views[0], views[1], torch.tensor([-1, 6]))
    assert not buffer.isnan().any()
    assert float(buffer.sum()) == 16


def test_equal_slots_with_other_page_sizes_are_told_apart():
    slots = torch.tensor([5])
    for tokens, page, offset in ((4, 1, 1), (2, 2, 1), (8, 0, 5)):
        buffer, views = strided_pages(4, tokens, 1, 2, torch.float32)
        buffer.zero_()
        paged_kv_write(torch.ones(1, 1, 2), torch.ones(1, 1, 2), views[0], views[1], slots)
        assert views[0].nonzero()[:, :2].unique(dim=0).tolist() == [[page, offset]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("slots", [[0], [-1], [11, -1, 4, 3, -1, 19], list(range(20)), []])
@pytest.mark.parametrize("shape", [(8,), (3, 8)])
def test_entries_of_any_shape_are_written_where_they_map(dtype, slots, shape):
    torch.manual_seed(0)
    written, expected = (torch.full((5, 3, 4, *shape), torch.nan, dtype=dtype) for _ in range(2))
    entries = torch.randn(len(slots), 9, *shape).to(dtype)[:, 4]
    where = torch.tensor(slots, dtype=torch.int64)
    torch.ops.flare.paged_write(entries, written[:, 1], where)
    reference_latents.paged_write(entries, expected[:, 1], where)
    assert same_bits(written, expected)
