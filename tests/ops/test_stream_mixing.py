"""Streams that are mixed by a doubly stochastic matrix."""

import pytest
import torch
from precision import DTYPES, assert_rounded, same_bits

from flare_components.ops import reference_rows

flare = torch.ops.flare
SETTINGS = (1e-5, 1e-6, 20)


def connection(streams, hidden, dtype, spread=1.0, seed=0):
    """weight, base and scale."""
    random = torch.Generator().manual_seed(seed)
    rows = streams * (streams + 2)
    weight = torch.randn(rows, streams * hidden, generator=random) / (streams * hidden) ** 0.5
    base, scale = torch.randn(rows, generator=random), torch.randn(3, generator=random) * spread
    return weight.to(dtype), base, scale


def residual_and_output(rows, streams, hidden, dtype, seed=1):
    random = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(rows, n * hidden, generator=random).to(dtype) for n in (streams, 1))


@pytest.mark.parametrize(
    ("dtype", "weights"), [*zip(DTYPES, DTYPES, strict=True), (torch.bfloat16, torch.float32)]
)
@pytest.mark.parametrize(("streams", "hidden"), [(4, 64), (2, 24), (1, 8), (3, 129)])
def test_agrees_with_the_reference(dtype, weights, streams, hidden):
    residual, x = residual_and_output(5, streams, hidden, dtype)
    first, second = (connection(streams, hidden, weights, seed=seed) for seed in (0, 1))
    before = residual.clone()
    made, want = (
        op(residual, *first, *SETTINGS) for op in (flare.collapse_streams, reference_rows.collapse_streams)
    )
    assert torch.equal(residual, before)
    assert_rounded(made[0], want[0], units=16 if dtype == torch.float32 else 1, floor=1.0)
    for a, b in zip(made[1:], want[1:], strict=True):
        torch.testing.assert_close(a, b, atol=2e-6, rtol=2e-6)
    taken = before.clone()
    reference_rows.expand_streams(taken, x, *made[1:])
    flare.expand_streams(residual, x, *made[1:])
    assert_rounded(residual, taken, units=4 if dtype == torch.float32 else 1, floor=1.0)
    both = before.clone()
    again = flare.expand_collapse_streams(both, x, *made[1:], *second, *SETTINGS)
    assert same_bits(both, residual)
    assert all(map(same_bits, again, flare.collapse_streams(residual, *second, *SETTINGS)))


def test_the_mixture_is_doubly_stochastic_and_read_by_columns():
    residual, x = residual_and_output(3, 4, 16, torch.float32)
    _, _, comb = flare.collapse_streams(residual, *connection(4, 16, torch.float32), *SETTINGS)
    for dim in (1, 2):
        torch.testing.assert_close(comb.sum(dim), torch.ones(3, 4), atol=2e-5, rtol=0)
    assert not torch.allclose(comb, comb.transpose(1, 2), atol=0.05)
    swap = torch.zeros(3, 4, 4)
    swap[:, 1, 0] = 1  # Stream 0 becomes what stream 1 was.
    before = residual.clone()
    flare.expand_streams(residual, x, torch.zeros(3, 4), swap)
    assert torch.equal(residual[:, :16], before[:, 16:32])
    assert not residual[:, 16:].any()


def test_one_iteration_divides_columns_only():
    args = residual_and_output(2, 3, 8, torch.float32)[0], *connection(3, 8, torch.float32), 1e-5, 1e-6
    comb = flare.collapse_streams(*args, 1)[2]
    torch.testing.assert_close(comb, reference_rows.collapse_streams(*args, 1)[2], atol=2e-6, rtol=2e-6)
    torch.testing.assert_close(comb.sum(1), torch.ones(2, 3), atol=1e-5, rtol=0)
    assert float((comb.sum(2) - 1).abs().max()) > 0.05


def test_extreme_logits_stay_numbers():
    """Softmax of one, sigmoids of zero and one; columns that only balance_eps holds up."""
    residual, _ = residual_and_output(4, 4, 16, torch.float32)
    weight, base, scale = connection(4, 16, torch.float32, spread=400.0)
    made = flare.collapse_streams(residual, weight, base, scale, *SETTINGS)
    want = reference_rows.collapse_streams(residual, weight, base, scale, *SETTINGS)
    assert all(bool(part.isfinite().all()) for part in made)
    assert bool((want[2].amax(2) > 0.999).any())
    for a, b in zip(made[:2], want[:2], strict=True):
        torch.testing.assert_close(a, b, atol=5e-4, rtol=5e-4)


def test_streams_of_nothing_are_numbers():
    made = flare.collapse_streams(torch.zeros(1, 32), *connection(4, 8, torch.float32), *SETTINGS)
    assert all(bool(part.isfinite().all()) for part in made)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_mean_of_streams(dtype):
    residual, _ = residual_and_output(5, 4, 24, dtype)
    want = torch.stack(residual.double().chunk(4, 1)).mean(0).to(dtype)
    assert_rounded(flare.stream_mean(residual, 4), want, units=2 if dtype == torch.float32 else 1, floor=1.0)
    assert flare.stream_mean(residual, 4).dtype == dtype


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_has_the_same_bits_at_any_row_count(dtype):
    """With an odd width, and beside padding that is no number."""
    residual, x = residual_and_output(65, 4, 67, dtype)
    own = *connection(4, 67, torch.float32), *SETTINGS
    post, comb = flare.collapse_streams(residual, *own)[1:]

    def step(rows):
        part = residual[:rows].clone()
        made = flare.expand_collapse_streams(part, x[:rows], post[:rows], comb[:rows], *own)
        return part, *made, flare.stream_mean(part, 4)

    whole = step(65)
    for rows in (1, 2, 3, 7, 64):
        assert all(same_bits(a, b[:rows]) for a, b in zip(step(rows), whole, strict=True)), rows
    residual[9:] = torch.nan
    assert all(same_bits(a[:9], b[:9]) for a, b in zip(step(65), whole, strict=True))
