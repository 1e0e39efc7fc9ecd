"""`flare::silu_and_mul`."""

import pytest
import torch
from precision import DTYPES, assert_rounded, same_bits

from flare_components.ops import reference

silu_and_mul = torch.ops.flare.silu_and_mul


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 7])
def test_gate_comes_first(dtype, rows):
    torch.manual_seed(0)
    gate_up = (torch.randn(rows, 2 * 48) * 4).to(dtype)
    # silu is rounded, then the product: one more rounding than the reference.
    assert_rounded(silu_and_mul(gate_up), reference.silu_and_mul(gate_up), units=3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("limit", [0.5, 7.0])
def test_a_limit_bounds_gates_above_and_ups_on_both_sides(dtype, limit):
    torch.manual_seed(0)
    gate_up = (torch.randn(7, 2 * 48) * 8).to(dtype)
    assert_rounded(silu_and_mul(gate_up, limit), reference.silu_and_mul(gate_up, limit), units=3)
    inside = gate_up.clamp(-limit, limit)
    assert same_bits(silu_and_mul(inside, limit), silu_and_mul(inside))


def test_the_limit_is_that_of_gate_before_silu():
    rows = torch.tensor([[-30.0, 11.0, 10.0, 2.0, 12.0, -12.0], [torch.nan, 1.0, 1.0, 1.0, torch.nan, 1.0]])
    out = silu_and_mul(rows, 10.0)
    silu = torch.nn.functional.silu(torch.tensor([-30.0, 10.0, 10.0]))
    assert torch.equal(out[0], silu * torch.tensor([2.0, 10.0, -10.0]))
    assert out[1].isnan().tolist() == [True, True, False]


def test_extreme_gates_saturate():
    gate_up = torch.tensor([[-1e4, 1e4, 3.0, 2.0]])
    assert torch.equal(silu_and_mul(gate_up), torch.tensor([[-0.0, 2e4]]))


@pytest.mark.parametrize("limit", [None, 5.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_has_the_same_bits_at_any_row_count(dtype, limit):
    # An odd width puts vector and scalar loops to work at different places of each row.
    gate_up = (torch.randn(200, 2 * 77) * 4).to(dtype)
    whole = silu_and_mul(gate_up, limit)
    for rows in (1, 2, 4, 8, 64):
        assert same_bits(silu_and_mul(gate_up[:rows], limit), whole[:rows]), rows
