"""`flare::routed_experts`."""

import pytest
import torch
from precision import DTYPES, assert_rounded

from flare_components.ops import reference_rows

flare = torch.ops.flare


def operands(rows, dtype, experts=6, hidden=32, inner=24, count=3):
    chosen = torch.stack([torch.randperm(experts)[:count] for _ in range(rows)]).int()
    weights = torch.softmax(torch.randn(rows, count), 1)
    stacked = torch.randn(experts, 2 * inner, hidden) / hidden**0.5, torch.randn(experts, hidden, inner)
    return torch.randn(rows, hidden).to(dtype), weights, chosen, *(w.to(dtype) for w in stacked)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "limit"), [(1, ()), (2, ()), (9, ()), (9, (0.75,))])
def test_experts_agree_with_the_reference(dtype, rows, limit):
    args = *operands(rows, dtype), *limit
    # Intermediates that round the other way, weighed by up to 24 normal weights.
    floor, units = (16.0, 8) if dtype == torch.float32 else (16.0, 2)
    assert_rounded(
        flare.routed_experts(*args), reference_rows.routed_experts(*args), units=units, floor=floor
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_has_the_same_bits_beside_any_others(dtype):
    x, weights, chosen, *stacked = operands(33, dtype)
    whole = flare.routed_experts(x, weights, chosen, *stacked)
    for rows in (1, 2, 3, 8):
        part = flare.routed_experts(x[:rows], weights[:rows], chosen[:rows], *stacked)
        assert torch.equal(part, whole[:rows])


def test_a_row_without_experts_is_zero_and_reads_none():
    x, weights, chosen, *stacked = operands(3, torch.float32)
    x[1], weights[1], chosen[1] = torch.nan, torch.nan, -1
    for number in set(range(6)) - set(chosen.flatten().tolist()):
        stacked[0][number] = torch.nan
    out = flare.routed_experts(x, weights, chosen, *stacked)
    assert not out[1].any()
    assert bool(out.isfinite().all())
