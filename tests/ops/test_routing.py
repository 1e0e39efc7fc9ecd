"""`flare::route_softmax` and `flare::route_sigmoid`."""

import pytest
import torch
from precision import DTYPES, same_bits

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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("experts", "count"), [(8, 3), (288, 8), (4, 4), (5, 1)])
def test_sigmoid_routes_agree_with_the_reference(dtype, experts, count):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, experts + 1, generator=generator).to(dtype)[:, :experts]
    bias = torch.randn(experts, generator=generator) * 0.3
    args = logits, bias, lanes(0, 1, -1, 0, -1, 5), count, 2.5
    weights, chosen = flare.route_sigmoid(*args)
    want_weights, want = reference_rows.route_sigmoid(*args)
    assert torch.equal(chosen, want)
    torch.testing.assert_close(weights, want_weights, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(weights.sum(1), torch.full((6,), 2.5))
    unbiased = reference_rows.route_sigmoid(logits, torch.zeros(experts), *args[2:])
    assert count == experts or not torch.equal(want, unbiased[1])


def test_a_bias_chooses_and_does_not_weigh():
    logits, bias = torch.tensor([[2.0, 1.0, 0.0, -30.0]]), torch.tensor([0.0, -9.0, 0.0, 9.0])
    weights, chosen = flare.route_sigmoid(logits, bias, lanes(0), 2, 2.0)
    assert chosen.tolist() == [[3, 0]]
    first, second = torch.sigmoid(logits[0, [3, 0]].double())
    want = 2 * torch.stack((first, second)) / (first + second)
    torch.testing.assert_close(weights[0].double(), want, atol=1e-7, rtol=1e-6)


def test_among_equal_biased_scores_the_lower_expert_wins():
    logits = torch.tensor([[1.0, 2.0, 2.0, 0.0, 2.0, 0.0]])
    assert flare.route_sigmoid(logits, torch.zeros(6), lanes(0), 3, 1.0)[1].tolist() == [[1, 2, 4]]
    bias = torch.tensor([0.0, 0.0, 0.5, 0.0, 0.5, 0.0])
    assert flare.route_sigmoid(logits, bias, lanes(0), 3, 1.0)[1].tolist() == [[2, 4, 1]]
    same = torch.zeros(1, 300)
    assert flare.route_sigmoid(same, torch.zeros(300), lanes(0), 8, 1.0)[1].tolist() == [list(range(8))]


def test_scores_that_vanish_give_weights_that_are_numbers():
    """Logits so low that every sigmoid is zero, or so high that it is one."""
    for value, want in ((-200.0, 0.0), (200.0, 0.5)):
        weights, chosen = flare.route_sigmoid(torch.full((1, 4), value), torch.zeros(4), lanes(0), 2, 1.0)
        assert weights.tolist() == [[want, want]]
        assert chosen.tolist() == [[0, 1]]


def test_a_sigmoid_route_has_the_same_bits_beside_any_others():
    logits, bias = torch.randn(65, 37), torch.randn(37)
    whole = flare.route_sigmoid(logits, bias, torch.zeros(65, dtype=torch.int32), 5, 2.5)
    for rows in (1, 2, 3, 7, 64):
        part = flare.route_sigmoid(logits[:rows], bias, torch.zeros(rows, dtype=torch.int32), 5, 2.5)
        assert all(same_bits(a, b[:rows]) for a, b in zip(part, whole, strict=True))


def test_sigmoid_logits_that_are_no_numbers_stop_nothing():
    logits = torch.randn(3, 16)
    logits[1] = torch.nan
    weights, chosen = flare.route_sigmoid(logits, torch.zeros(16), lanes(0, 0, 0), 4, 1.0)
    assert bool((chosen >= 0).all())
    assert bool(weights[::2].isfinite().all())
