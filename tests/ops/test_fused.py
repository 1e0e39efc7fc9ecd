"""Fused operators: on the CPU the sequences that they stand for, with the rounding of the separate ones."""

from __future__ import annotations

import pytest
import torch
from precision import DTYPES, assert_rounded, same_bits
from torch import Tensor

import flare_components.ops  # noqa: F401
from flare_components.ops import reference

flare = torch.ops.flare
ROWS, WIDTH, INNER = 3, 64, 96


def normal(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


def weight(outputs: int, inputs: int, dtype: torch.dtype) -> Tensor:
    return (normal(outputs, inputs, dtype=torch.float32) / inputs**0.5).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("biased", [False, True])
def test_linear_add_rounds_the_product_before_the_sum(dtype: torch.dtype, biased: bool) -> None:
    residual, x = normal(ROWS, INNER, dtype=dtype), normal(ROWS, WIDTH, dtype=dtype)
    w, bias = weight(INNER, WIDTH, dtype), normal(INNER, dtype=dtype) if biased else None
    before = residual.clone()
    total = flare.linear_add(residual, x, w, bias)
    assert same_bits(total, residual + flare.linear(x, w, bias))
    assert_rounded(total, residual + reference.linear(x, w, bias), units=2, floor=4.0)
    assert same_bits(residual, before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_norm_linear_and_its_gate(dtype: torch.dtype) -> None:
    x, gain, w = normal(ROWS, WIDTH, dtype=dtype), normal(WIDTH, dtype=dtype), weight(2 * INNER, WIDTH, dtype)
    product = flare.linear(flare.rms_norm(x, gain, 1e-5), w, None)
    assert same_bits(flare.norm_linear(x, gain, 1e-5, w, None), product)
    gated = flare.norm_gate(x, gain, 1e-5, w)
    assert same_bits(gated, flare.silu_and_mul(product))
    normed = reference.rms_norm(x, gain, 1e-5)
    # The norm's rounding moves every summand of the product, which moves the gate and what it opens for.
    assert_rounded(gated, reference.silu_and_mul(reference.linear(normed, w, None)), units=8, floor=4.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_norm_attention_is_its_sequence_and_writes_the_pages(dtype: torch.dtype) -> None:
    heads, kv_heads, width, page = 6, 2, 16, 4
    x, gain = normal(ROWS, WIDTH, dtype=dtype), normal(WIDTH, dtype=dtype)
    w = weight((heads + 2 * kv_heads) * width, WIDTH, dtype)
    cos, sin = normal(ROWS, width, dtype=dtype, seed=1), normal(ROWS, width, dtype=dtype, seed=2)
    pages = normal(7, 2, page, kv_heads, width, dtype=dtype)
    table = torch.tensor([[1, 2], [3, -1], [5, 6]], dtype=torch.int32)
    starts, contexts = torch.arange(4, dtype=torch.int32), torch.tensor([6, 0, 5], dtype=torch.int32)
    slots = torch.tensor([2 * page + 1, -1, 6 * page])
    lengths = (slots, table, starts, contexts, width**-0.5)
    separate = pages.clone()
    q, k, v = (
        flare.linear(flare.rms_norm(x, gain, 1e-5), w, None)
        .view(ROWS, -1, width)
        .split([heads, kv_heads, kv_heads], 1)
    )
    q, k = flare.rotary(q, k, cos, sin)
    flare.paged_kv_write(k, v, separate[:, 0], separate[:, 1], slots)
    expected = flare.paged_attention(q, separate[:, 0], separate[:, 1], *lengths[1:])
    actual = flare.norm_attention(x, gain, 1e-5, w, None, cos, sin, pages[:, 0], pages[:, 1], *lengths)
    assert same_bits(pages, separate)
    # In FP32 the order of MKL's sums follows addresses.
    assert_rounded(actual, expected, units=8 if dtype == torch.float32 else 0, floor=1.0)
    assert not actual[1].any()
