"""`flare::rotary_tables` and `flare::norm_rotary`."""

import pytest
import torch
from precision import DTYPES, assert_rounded
from transformers import Qwen4ExpTextConfig
from transformers.models.qwen4_exp.modeling_qwen4_exp import (
    Qwen4ExpTextRMSNorm,
    Qwen4ExpTextRotaryEmbedding,
    apply_rotary_pos_emb,
)

from flare_components.ops import reference_rows
from flare_components.ops.axial_rotary import frequency_axes

flare = torch.ops.flare
SHARES = {8: [3, 3, 2], 32: [11, 11, 10], 6: [6, 0, 0], 5: [1, 2, 2]}


def canonical(head_dim, shares):
    config = Qwen4ExpTextConfig(
        head_dim=head_dim,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 1e7,
            "partial_rotary_factor": 0.25,
            "mrope_section": shares,
            "mrope_interleaved": True,
        },
    )
    return Qwen4ExpTextRotaryEmbedding(config)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("head_dim", "shares"), [(256, [11, 11, 10]), (64, [3, 3, 2])])
def test_tables_equal_those_of_transformers(dtype, head_dim, shares):
    rotary = canonical(head_dim, shares)
    positions = torch.randint(0, 4000, (3, 9), dtype=torch.int32)
    x = torch.empty(1, dtype=dtype)
    want = rotary(x, positions.unsqueeze(1).long())
    got = flare.rotary_tables(positions, rotary.inv_freq, shares, 1.0, dtype)
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a, b[0])


@pytest.mark.parametrize("frequencies", SHARES)
def test_tables_agree_with_the_reference(frequencies):
    shares = SHARES[frequencies]
    positions = torch.randint(0, 300_000, (3, 9), dtype=torch.int32)
    args = positions, torch.rand(frequencies), shares, 1.25, torch.float32
    for a, b in zip(flare.rotary_tables(*args), reference_rows.rotary_tables(*args), strict=True):
        torch.testing.assert_close(a, b, atol=2e-7, rtol=0)


def test_axes_alternate_until_their_share_is_used():
    assert frequency_axes(8, (3, 3, 2)).tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert frequency_axes(5, (5, 0, 0)).tolist() == [0] * 5


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("part", [8, 32])
def test_norm_and_rotation_agree(dtype, part):
    x = torch.randn(5, 3, 80).to(dtype)[..., 16:48]
    weight, angle = torch.randn(32).to(dtype), torch.randn(5, part // 2).repeat(1, 2)
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
    out = flare.norm_rotary(x, weight, cos, sin, 1e-6, 1.0)
    want = reference_rows.norm_rotary(x, weight, cos, sin, 1e-6, 1.0)
    assert_rounded(out, want, units=3, floor=8.0)
    norm = Qwen4ExpTextRMSNorm(32).to(dtype)
    norm.weight.data.copy_(weight)
    with torch.no_grad():
        canonical = apply_rotary_pos_emb(norm(x), cos=cos, sin=sin)
    assert_rounded(out, canonical, units=3, floor=8.0)
    assert torch.equal(out[..., part:], flare.group_rms_norm(x, weight, 32, 1e-6, 1.0)[..., part:])
