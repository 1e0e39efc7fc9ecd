"""`flare::rotary`."""

import pytest
import torch
from precision import DTYPES, assert_rounded, same_bits
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from flare_components.ops import reference

rotary = torch.ops.flare.rotary


def operands(rows, heads, kv_heads, width, dtype):
    torch.manual_seed(0)
    qkv = torch.randn(rows, heads + 2 * kv_heads, width).to(dtype)
    angles = torch.rand(rows, width // 2).repeat(1, 2) * 100
    q, k, _ = qkv.split((heads, kv_heads, kv_heads), 1)
    return q, k, angles.cos().to(dtype), angles.sin().to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "kv_heads", "width"), [(9, 3, 64), (4, 4, 32), (8, 1, 128), (1, 1, 2)])
@pytest.mark.parametrize("rows", [1, 5])
def test_rotation_agrees_with_the_reference(dtype, heads, kv_heads, width, rows):
    q, k, cos, sin = operands(rows, heads, kv_heads, width, dtype)
    for actual, expected, x in zip(
        rotary(q, k, cos, sin), reference.rotary(q, k, cos, sin), (q, k), strict=True
    ):
        # Two roundings, each of a value no larger than the two terms together.
        assert_rounded(actual, expected, units=1.5, floor=2 * float(x.abs().max()))


def test_layout_is_that_of_transformers():
    q, k, cos, sin = operands(6, 4, 2, 16, torch.float32)
    theirs = apply_rotary_pos_emb(q[None], k[None], cos[None], sin[None], unsqueeze_dim=2)
    for actual, expected in zip(rotary(q, k, cos, sin), theirs, strict=True):
        assert_rounded(actual, expected[0], units=2, floor=4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_separate_operands_give_the_same_bits_as_slices_of_one(dtype):
    q, k, cos, sin = operands(3, 6, 2, 32, dtype)
    joined = rotary(q, k, cos, sin)
    apart = rotary(q.clone(), k.clone(), cos, sin)
    backwards = torch.cat((k, q), 1)
    swapped = rotary(backwards[:, 2:], backwards[:, :2], cos, sin)
    for other in (apart, swapped):
        assert all(same_bits(a, b) for a, b in zip(joined, other, strict=True))


def test_operands_are_left_alone():
    q, k, cos, sin = operands(2, 2, 1, 8, torch.float32)
    before = [tensor.clone() for tensor in (q, k, cos, sin)]
    rotary(q, k, cos, sin)
    assert all(same_bits(a, b) for a, b in zip((q, k, cos, sin), before, strict=True))


def test_position_zero_is_the_identity():
    q, k, _, _ = operands(2, 2, 1, 8, torch.bfloat16)
    cos, sin = torch.ones(2, 8, dtype=q.dtype), torch.zeros(2, 8, dtype=q.dtype)
    for out, x in zip(rotary(q, k, cos, sin), (q, k), strict=True):
        assert torch.equal(out, x)
