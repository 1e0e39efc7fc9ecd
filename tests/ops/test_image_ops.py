"""Operators on the patches of images, against plain references and Transformers."""

import pytest
import torch
from fake_call import faked
from precision import DTYPES, assert_rounded, same_bits
from transformers.vision_utils import (
    get_vision_interpolation_indices_and_weights,
    get_vision_position_ids,
)

from flare_components.ops import reference_images as reference

flare = torch.ops.flare
GRIDS = [(1, 2, 2), (1, 4, 6), (1, 10, 4), (2, 4, 4), (1, 2, 14), (3, 6, 2)]


def grid_of(sizes):
    return torch.tensor(sizes, dtype=torch.int32)


def count(sizes):
    return sizes[0] * sizes[1] * sizes[2]


@pytest.mark.parametrize("sizes", GRIDS)
@pytest.mark.parametrize("padding", [0, 12])
def test_patches_lie_where_transformers_says(sizes, padding):
    args = grid_of(sizes), count(sizes) + padding, 2
    found = flare.patch_positions(*args)
    assert torch.equal(found, reference.patch_positions(*args))
    want = get_vision_position_ids(torch.tensor([sizes]), 2)
    assert torch.equal(found[:, : count(sizes)].long(), want.T)
    assert bool((found[:, count(sizes) :] == -1).all())
    fake = faked("patch_positions", args)
    assert (fake.shape, fake.dtype) == (found.shape, found.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", GRIDS)
def test_tables_are_interpolated_as_by_transformers(dtype, sizes):
    table = torch.randn(49, 24).to(dtype)
    positions = flare.patch_positions(grid_of(sizes), count(sizes) + 4, 2)
    args = table, positions, grid_of(sizes)
    found = flare.interpolated_rows(*args)
    assert_rounded(found, reference.interpolated_rows(*args), units=2, floor=4.0)
    assert bool((found[count(sizes) :] == 0).all())
    indices, weights = get_vision_interpolation_indices_and_weights(
        torch.tensor([sizes]), 7, align_corners=True, spatial_merge_size=2
    )
    canonical = (table[indices] * weights[:, :, None]).sum(1).to(dtype)
    assert_rounded(found[: count(sizes)], canonical, units=2, floor=4.0)
    assert faked("interpolated_rows", args).shape == found.shape


def test_axial_tables_agree_with_the_reference():
    positions = flare.patch_positions(grid_of((1, 64, 4)), 260, 2)
    args = positions, torch.rand(9)
    for found, want in zip(flare.axial_tables(*args), reference.axial_tables(*args), strict=True):
        torch.testing.assert_close(found, want, atol=5e-6, rtol=0)
    assert faked("axial_tables", args)[0].shape == (260, 36)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [*GRIDS, (1, 20, 32)])
def test_patches_see_their_frame(dtype, sizes):
    rows = count(sizes) + 8
    q, k, v = torch.randn(rows, 3, 3, 20).to(dtype).unbind(1)
    args = q, k, v, grid_of(sizes), 20**-0.5
    found = flare.frame_attention(*args)
    units = 8 if dtype == torch.bfloat16 else 32
    assert_rounded(found, reference.frame_attention(*args), units=units, floor=1.0)
    assert faked("frame_attention", args).shape == found.shape


@pytest.mark.parametrize("dtype", DTYPES)
def test_padding_is_zero_and_changes_nothing(dtype):
    sizes, rows = (2, 4, 6), 48
    qkv = torch.randn(rows, 3, 3, 20).to(dtype)
    alone = flare.frame_attention(*qkv.unbind(1), grid_of(sizes), 0.3)
    poisoned = torch.cat((qkv, torch.full((100, 3, 3, 20), float("nan"), dtype=dtype)))
    found = flare.frame_attention(*poisoned.unbind(1), grid_of(sizes), 0.3)
    assert same_bits(found[:rows], alone)
    assert bool((found[rows:] == 0).all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("approximate", [False, True])
def test_gelu_is_that_of_torch_wherever_an_element_stands(dtype, approximate):
    x = (torch.randn(7, 173) * 3).to(dtype)
    found = flare.gelu(x, approximate)
    assert_rounded(found, reference.gelu(x, approximate), units=2, floor=8.0)  # x reaches that far
    kind = "tanh" if approximate else "none"
    assert_rounded(found, torch.nn.functional.gelu(x, approximate=kind), units=2, floor=8.0)
    for rows in range(1, 7):
        assert same_bits(flare.gelu(x[:rows], approximate), found[:rows])
    fake = faked("gelu", (x, approximate))
    assert (fake.shape, fake.dtype) == (found.shape, found.dtype)
