"""Block formats against their definitions: decoding, the bound of a round trip, poison, zeros, odd shapes."""

import math

import numpy as np
import pytest
import torch

from flare_components.quant import fp8_block, mxfp8, nvfp4, reference

SHAPES = [(1, 2), (3, 16), (5, 18), (2, 32), (7, 34), (4, 96), (9, 130)]
E8M0 = torch.float8_e8m0fnu


def data(tensor):
    """Bytes of codes, FP64 of anything else."""
    return tensor.view(torch.uint8).numpy() if tensor.element_size() == 1 else tensor.double().numpy()


def matrix(shape, seed=0):
    """Magnitudes over many powers of two, different from block to block."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.randn(shape[0], 1, generator=generator) * 4 + torch.randn(shape, generator=generator)
    return torch.randn(shape, generator=generator) * torch.exp2(spread)


@pytest.mark.parametrize("shape", SHAPES)
def test_nvfp4_decodes_by_definition(shape):
    stored = nvfp4.encode(matrix(shape))
    assert stored.codes.shape == (shape[0], shape[1] // 2)
    assert stored.scales.shape == (shape[0], -(-shape[1] // 16))
    expected = reference.decode_nvfp4(data(stored.codes), data(stored.scales), float(stored.global_scale))
    assert np.array_equal(nvfp4.decode(stored).numpy(), expected.astype(np.float32))


@pytest.mark.parametrize("shape", SHAPES)
def test_nvfp4_encodes_by_definition(shape):
    values = matrix(shape, seed=1)
    stored = nvfp4.encode(values)
    global_scale = np.float32(stored.global_scale)
    assert global_scale == values.abs().max().numpy() / np.float32(6 * 448)
    for row in range(shape[0]):
        for block in range(stored.scales.shape[1]):
            part = values[row, 16 * block : 16 * block + 16].numpy()
            scale = reference.e4m3_code(np.abs(part).max() / np.float32(6 * global_scale))
            assert data(stored.scales)[row, block] == scale
            step = np.float32(reference.e4m3(scale)) * global_scale
            codes = [reference.e2m1_code(float(value / step)) if step else 0 for value in part]
            packed = data(stored.codes)[row, 8 * block : 8 * block + 8]
            assert [code for byte in packed.tolist() for code in (byte & 15, byte >> 4)] == codes


@pytest.mark.parametrize("shape", SHAPES)
def test_mxfp8_decodes_and_encodes_by_definition(shape):
    values = matrix(shape, seed=2)
    stored = mxfp8.encode(values)
    assert stored.scales.shape == (shape[0], -(-shape[1] // 32))
    assert (stored.codes.dtype, stored.scales.dtype) == (torch.float8_e4m3fn, E8M0)
    expected = reference.decode_mxfp8(data(stored.codes), data(stored.scales))
    assert np.array_equal(mxfp8.decode(stored).numpy(), expected.astype(np.float32))
    for (row, column), value in np.ndenumerate(values.numpy()):
        part = values[row, column // 32 * 32 : column // 32 * 32 + 32].numpy()
        scale = reference.e8m0_code_above(float(np.abs(part).max() / np.float32(448)))
        assert data(stored.scales)[row, column // 32] == scale
        assert data(stored.codes)[row, column] == reference.e4m3_code(float(value) / reference.e8m0(scale))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("block", [(128, 128), (4, 16), (2, 32)])
@pytest.mark.parametrize("scale_dtype", [torch.float32, torch.bfloat16, E8M0])
def test_fp8_blocks_decode_and_encode_by_definition(shape, block, scale_dtype):
    values = matrix(shape, seed=3)
    stored = fp8_block.encode(values, block, scale_dtype)
    assert stored.scales.shape == (-(-shape[0] // block[0]), -(-shape[1] // block[1]))
    assert stored.scales.dtype == scale_dtype
    scales = stored.scales.float().double().numpy()
    expected = reference.decode_fp8_block(data(stored.codes), scales, block)
    assert np.array_equal(fp8_block.decode(stored).numpy(), expected.astype(np.float32))
    for (row, column), value in np.ndenumerate(values.numpy()):
        step = np.float32(scales[row // block[0], column // block[1]])
        assert data(stored.codes)[row, column] == reference.e4m3_code(float(value / step))


def test_a_round_trip_is_within_half_a_step():
    values = matrix((64, 256), seed=4)
    blocks = values.abs().unflatten(1, (-1, 16)).amax(2).repeat_interleave(16, 1)
    smallest = 2.0**-9 * float(
        nvfp4.encode(values).global_scale
    )  # the scale's own step where it is subnormal
    error = (nvfp4.decode(nvfp4.encode(values)) - values).abs()
    # At most half the step from 4 to 6, and the scale itself is within 1/16 or half its smallest step.
    assert bool((error <= blocks * (1 / 6 + 1 / 16) + 6 * smallest).all())
    # Elements have three mantissa bits; E4M3's subnormal step is 2^-9 of a scale of at most twice amax / 448.
    blocks = values.abs().unflatten(1, (-1, 32)).amax(2).repeat_interleave(32, 1)
    error = (mxfp8.decode(mxfp8.encode(values)) - values).abs()
    assert bool((error <= (values.abs() / 16).maximum(blocks / 224 * 2.0**-10)).all())
    error = (fp8_block.decode(fp8_block.encode(values)) - values).abs()
    assert bool((error <= (values.abs() / 16).maximum(values.abs().max() / 448 * 2.0**-10)).all())


def test_blocks_of_zeros():
    values = matrix((32, 64))
    values[:16, :32] = 0
    assert not nvfp4.decode(nvfp4.encode(values))[:16, :32].any()
    assert not mxfp8.decode(mxfp8.encode(values))[:16, :32].any()
    for scale_dtype in (torch.float32, torch.bfloat16, E8M0):
        assert not fp8_block.decode(fp8_block.encode(values, (16, 32), scale_dtype))[:16, :32].any()
    for encode, decode in ((nvfp4.encode, nvfp4.decode), (mxfp8.encode, mxfp8.decode)):
        assert torch.equal(decode(encode(torch.zeros(3, 32))), torch.zeros(3, 32))
    assert not nvfp4.decode(nvfp4.encode(values * 1e-30, torch.tensor(1.0))).any()  # below the scale's range


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_poison_fills_its_block_only(poison):
    values = matrix((8, 128), seed=5)
    values[2, 70] = poison
    given = nvfp4.decode(nvfp4.encode(values, torch.tensor(0.01)))
    assert given[2, 64:80].isnan().all()
    given[2, 64:80] = 0
    assert given.isfinite().all()
    given = mxfp8.decode(mxfp8.encode(values))
    assert given[2, 64:96].isnan().all()
    given[2, 64:96] = 0
    assert given.isfinite().all()
    for scale_dtype in (torch.float32, torch.bfloat16, E8M0):
        given = fp8_block.decode(fp8_block.encode(values, (4, 32), scale_dtype))
        assert given[0:4, 64:96].isnan().all()
        given[0:4, 64:96] = 0
        assert given.isfinite().all()


def test_values_beyond_a_given_global_scale_saturate():
    stored = nvfp4.encode(torch.full((1, 16), 1e6), torch.tensor(0.5))
    assert nvfp4.decode(stored).tolist() == [[6 * 448 * 0.5] * 16]


def test_stacks_of_matrices_are_encoded_one_by_one():
    values = torch.stack([matrix((5, 40), seed) for seed in range(3)])
    scale = torch.tensor(0.02)
    whole = nvfp4.encode(values, scale)
    for index in range(3):
        single = nvfp4.encode(values[index], scale)
        assert torch.equal(whole.codes[index], single.codes)
        assert torch.equal(
            mxfp8.encode(values).codes[index].float(), mxfp8.encode(values[index]).codes.float()
        )
        many, one = fp8_block.encode(values, (2, 16)), fp8_block.encode(values[index], (2, 16))
        assert torch.equal(fp8_block.decode(many)[index], fp8_block.decode(one))
