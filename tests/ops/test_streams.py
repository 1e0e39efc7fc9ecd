"""Arithmetic between residual streams and one layer input."""

import pytest
import torch
from precision import DTYPES, assert_rounded

from flare_components.ops import reference_rows

flare = torch.ops.flare


@pytest.mark.parametrize("dtype", DTYPES)
def test_scaled_silu(dtype):
    x = (torch.randn(5, 70) * 8).to(dtype)[:, :33]
    out = flare.scaled_silu(x, 0.25)
    assert_rounded(out, reference_rows.scaled_silu(x, 0.25), units=4 if dtype == torch.float32 else 1)
    assert out.is_contiguous()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("streams", [2, 4])
def test_gated_stream_mean(dtype, streams):
    gate, x = (torch.randn(5, streams * 24).to(dtype) for _ in range(2))
    out = flare.gated_stream_mean(gate, x, streams)
    # A gate that rounds the other way moves the mean by a part of its unit.
    assert_rounded(out, reference_rows.gated_stream_mean(gate, x, streams), units=4, floor=1.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gated_streams(dtype):
    key, query, value = (torch.randn(6, width).to(dtype) for width in (96, 96, 24))
    key[0], query[1, :24] = 0, -key[1, :24]
    out = flare.gated_streams(key, query, value)
    assert_rounded(out, reference_rows.gated_streams(key, query, value), units=8, floor=0.1)


def test_a_stream_that_meets_nothing_opens_half():
    value = torch.randn(1, 8)
    out = flare.gated_streams(torch.zeros(1, 16), torch.randn(1, 16), value)
    assert torch.equal(out, torch.cat((value, value), 1) * 0.5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_has_the_same_bits_at_any_row_count(dtype):
    a, b, value = (torch.randn(65, width).to(dtype) for width in (76, 76, 19))
    for rows in (1, 2, 3, 7, 64):
        for name, args in {
            "scaled_silu": (a, 0.5),
            "gated_stream_mean": (a, b, 4),
            "gated_streams": (a, b, value),
        }.items():
            part = [x[:rows] if isinstance(x, torch.Tensor) else x for x in args]
            op = getattr(flare, name)
            assert torch.equal(op(*part), op(*args)[:rows]), (name, rows)
