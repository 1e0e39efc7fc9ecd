"""`flare::rms_norm` and `flare::add_rms_norm`."""

import pytest
import torch
from precision import DTYPES, assert_rounded, same_bits
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from flare_components.ops import reference

rms_norm = torch.ops.flare.rms_norm
add_rms_norm = torch.ops.flare.add_rms_norm


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_norm_has_the_arithmetic_of_transformers(dtype, scale):
    torch.manual_seed(0)
    x = (torch.randn(5, 576) * scale).to(dtype)
    module = LlamaRMSNorm(576, eps=1e-5).to(dtype)
    module.weight.data.normal_()
    with torch.no_grad():
        expected = module(x)
        # Statistics are summed in another order: a few FP32 units, or one more BF16 rounding before and one
        # after the weight.
        units = 8 if dtype == torch.float32 else 2
        assert_rounded(rms_norm(x, module.weight, 1e-5), expected, units=units)
    assert_rounded(reference.rms_norm(x, module.weight.data, 1e-5), expected, units=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_zero_row_stays_zero(dtype):
    out = rms_norm(torch.zeros(2, 64, dtype=dtype), torch.ones(64, dtype=dtype), 1e-6)
    assert same_bits(out, torch.zeros_like(out))


@pytest.mark.parametrize("dtype", DTYPES)
def test_add_updates_the_residual_in_place_and_norms_the_sum(dtype):
    residual, x = (torch.randn(4, 96).to(dtype) for _ in range(2))
    weight = torch.randn(96).to(dtype)
    total = residual + x
    x_before = x.clone()
    out = add_rms_norm(residual, x, weight, 1e-5)
    assert same_bits(residual, total)
    assert same_bits(x, x_before)
    assert same_bits(out, rms_norm(total, weight, 1e-5))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [64, 576, 4096])
def test_a_row_has_the_same_bits_at_any_row_count(dtype, width):
    x, weight = torch.randn(300, width).to(dtype), torch.randn(width).to(dtype)
    whole = rms_norm(x, weight, 1e-5)
    for rows in (1, 2, 3, 4, 8, 64):
        assert same_bits(rms_norm(x[:rows], weight, 1e-5), whole[:rows]), rows


def test_each_epsilon_is_its_own():
    x, weight = torch.full((1, 8), 1e-3), torch.ones(8)
    for eps in (1e-6, 1e-5, 1.0):
        assert_rounded(rms_norm(x, weight, eps), reference.rms_norm(x, weight, eps), units=2)
