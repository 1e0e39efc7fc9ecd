"""`flare::route_softmax` and `flare::routed_experts`."""

import pytest
import torch
from precision import DTYPES, assert_rounded

from flare_components.ops import reference_rows

flare = torch.ops.flare


def lanes(*values):
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("experts", "count"), [(8, 3), (512, 10), (4, 4), (5, 1)])
def test_routes_agree_with_the_reference(dtype, experts, count):
    logits = torch.randn(6, experts + 1).to(dtype)[:, :experts]
    args = logits, lanes(0, 1, -1, 0, -1, 5), count
    weights, chosen = flare.route_softmax(*args)
    want_weights, want = reference_rows.route_softmax(*args)
    assert torch.equal(chosen, want)
    torch.testing.assert_close(weights, want_weights, atol=1e-6, rtol=1e-6)


def test_among_equal_logits_the_lower_expert_wins():
    logits = torch.tensor([[1.0, 2.0, 2.0, 0.0, 2.0, -0.0], [0.0, -0.0, 0.0, -0.0, 0.0, -0.0]])
    assert flare.route_softmax(logits, lanes(0, 0), 3)[1].tolist() == [[1, 2, 4], [0, 1, 2]]
    assert flare.route_softmax(logits.bfloat16(), lanes(0, 0), 2)[1].tolist() == [[1, 2], [0, 1]]


def test_logits_that_are_no_numbers_stop_nothing():
    logits = torch.randn(3, 16)
    logits[1] = torch.nan
    weights, chosen = flare.route_softmax(logits, lanes(0, 0, 0), 4)
    assert bool((chosen >= 0).all())
    assert bool(weights[::2].isfinite().all())


def operands(rows, dtype, experts=6, hidden=32, inner=24, count=3):
    chosen = torch.stack([torch.randperm(experts)[:count] for _ in range(rows)]).int()
    weights = torch.softmax(torch.randn(rows, count), 1)
    stacked = torch.randn(experts, 2 * inner, hidden) / hidden**0.5, torch.randn(experts, hidden, inner)
    return torch.randn(rows, hidden).to(dtype), weights, chosen, *(w.to(dtype) for w in stacked)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 2, 9])
def test_experts_agree_with_the_reference(dtype, rows):
    args = operands(rows, dtype)
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
