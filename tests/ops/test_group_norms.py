"""Norms of groups, the injection before them, and the gate behind them."""

import pytest
import torch
from precision import DTYPES, assert_rounded
from ragged import results_of
from transformers.models.glm5_next.modeling_glm5_next import Glm5NextTextRMSNormGated
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpTextRMSNorm, Qwen4ExpTextRMSNormGated

from flare_components.ops import reference_rows

flare = torch.ops.flare


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_group_norm_has_the_arithmetic_of_transformers(dtype, scale):
    x = (torch.randn(5, 256) * scale).to(dtype)
    module = Qwen4ExpTextRMSNorm(256, group_size=64).to(dtype)
    module.weight.data.normal_()
    args = x, module.weight.data, 64, 1e-6, 1.0
    units = 8 if dtype == torch.float32 else 1
    with torch.no_grad():
        assert_rounded(flare.group_rms_norm(*args), module(x), units=units)
    assert_rounded(flare.group_rms_norm(*args), reference_rows.group_rms_norm(*args), units=units)


def test_offset_and_width_are_their_own():
    x, weight = torch.randn(3, 2, 12), torch.randn(12)
    for width in (1, 3, 12):
        for offset in (0.0, 1.0):
            args = x, weight, width, 1e-5, offset
            want = reference_rows.group_rms_norm(*args)
            torch.testing.assert_close(flare.group_rms_norm(*args), want, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_strided_rows_are_read_and_kept(dtype):
    wide = torch.randn(4, 96).to(dtype)
    before, weight = wide.clone(), torch.randn(32).to(dtype)
    out = flare.group_rms_norm(wide[:, 16:48], weight, 16, 1e-6, 1.0)
    assert torch.equal(out, flare.group_rms_norm(wide[:, 16:48].contiguous(), weight, 16, 1e-6, 1.0))
    assert torch.equal(wide, before)
    assert out.is_contiguous()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("streams", [2, 4])
def test_injection_then_norm(dtype, streams):
    x, residual = torch.randn(7, 24).to(dtype), torch.randn(7, streams * 24).to(dtype)
    injection = (torch.randn(7, 9) * 4).to(dtype)[:, 9 - streams :]
    args = residual, x, injection, torch.randn(streams * 24).to(dtype), 1e-6, 1.0
    got = results_of(flare.inject_group_rms_norm, args, (0,))
    want = results_of(reference_rows.inject_group_rms_norm, args, (0,))
    # A measure that rounds the other way moves a sum by a unit of its terms.
    assert_rounded(got[1], want[1], units=2, floor=4.0)
    assert_rounded(got[0], want[0], units=8 if dtype == torch.float32 else 4, floor=2.0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ["sigmoid", "silu"])
def test_gated_norm_has_the_arithmetic_of_transformers(dtype, activation):
    x, z = torch.randn(5, 6, 32).to(dtype), torch.randn(5, 256).to(dtype)[:, 64:].view(5, 6, 32)
    module = Qwen4ExpTextRMSNormGated(32, activation=activation).to(dtype)
    module.weight.data.normal_()
    args = x, z, module.weight.data, 1e-6, activation
    units = 8 if dtype == torch.float32 else 3
    with torch.no_grad():
        assert_rounded(flare.gated_rms_norm(*args), module(x, z), units=units)
    assert_rounded(flare.gated_rms_norm(*args), reference_rows.gated_rms_norm(*args), units=units)


@pytest.mark.parametrize("activation", ["sigmoid", "silu"])
def test_gains_of_fp32_keep_the_norm_unrounded(activation):
    x, z = torch.randn(5, 6, 32).bfloat16(), torch.randn(5, 6, 32).bfloat16()
    module = Glm5NextTextRMSNormGated(32)
    module.weight.data.normal_()
    module.activation = activation
    args = x, z, module.weight.data, 1e-6, activation
    with torch.no_grad():
        assert_rounded(flare.gated_rms_norm(*args), module(x, z))
    assert_rounded(flare.gated_rms_norm(*args), reference_rows.gated_rms_norm(*args))
    assert not torch.equal(
        flare.gated_rms_norm(*args), flare.gated_rms_norm(x, z, args[2].bfloat16(), *args[3:])
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [24, 64, 320])
def test_a_row_has_the_same_bits_at_any_row_count(dtype, width):
    x, residual = torch.randn(65, width).to(dtype), torch.randn(65, 4 * width).to(dtype)
    injection, weight = torch.randn(65, 4).to(dtype), torch.randn(4 * width).to(dtype)
    whole = _row_results(x, residual, injection, weight)
    for rows in (1, 2, 3, 7, 64):
        part = _row_results(x[:rows], residual[:rows], injection[:rows], weight)
        for a, b in zip(part, whole, strict=True):
            assert torch.equal(a, b[:rows]), rows


def _row_results(x, residual, injection, weight):
    taken = residual.clone()
    normed = flare.inject_group_rms_norm(taken, x, injection, weight, 1e-6, 1.0)
    width = x.shape[1]
    return taken, normed, flare.gated_rms_norm(x, residual[:, :width], weight[:width], 1e-6, "sigmoid")


def test_an_unknown_gate_is_refused():
    with torch.device("meta"):
        x = torch.empty(2, 4)
        weight = torch.empty(4)
    with pytest.raises(RuntimeError, match="tanh"):
        flare.gated_rms_norm(x, x, weight, 1e-6, "tanh")
