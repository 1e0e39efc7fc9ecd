"""Tolerances from precision, for operator tests."""

from __future__ import annotations

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16)


def assert_rounded(actual: Tensor, expected: Tensor, *, units: float = 1.0, floor: float = 0.0) -> None:
    """`actual` is within `units` units in the last place of `expected`'s type, where a unit is relative to
    the larger of the expected magnitude and `floor` (the magnitude of what was summed)."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    unit = torch.finfo(expected.dtype).eps
    allowed = units * unit * expected.double().abs().clamp_min(max(floor, torch.finfo(expected.dtype).tiny))
    difference = (actual.double() - expected.double()).abs()
    assert bool((difference <= allowed).all()), (
        f"off by {float((difference / allowed).max()) * units:.2f} units"
    )


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors hold the same bytes (NaN equals itself, 0.0 differs from -0.0)."""
    return a.dtype == b.dtype and torch.equal(
        a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8)
    )
