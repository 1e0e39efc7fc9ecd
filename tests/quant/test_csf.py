"""Compressed scales: streams by hand, against definitions, round trips, and streams that are refused."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flare_components.quant import csf, csf_bit, csf_split, reference
from flare_components.quant.csf import CsfScales

RANDOM = np.random.default_rng(0)


def unsigned(values):
    return torch.tensor(values, dtype=torch.int64).to(torch.uint32)


def scales(rows, columns, kind, seed=0):
    random = np.random.default_rng(seed)
    if kind == "near":
        content = np.clip(random.normal(110, 6, (rows, columns)), 0, 126)
    elif kind == "any":
        content = random.integers(0, 256, (rows, columns))
    else:
        content = np.full((rows, columns), int(kind))
    return torch.from_numpy(content.astype(np.uint8))


@pytest.mark.parametrize("kind", ["near", "any", "0", "127", "255"])
@pytest.mark.parametrize(("rows", "columns"), [(16, 2), (16, 6), (48, 40), (160, 16)])
def test_codec_0_keeps_every_byte(rows, columns, kind):
    content = scales(rows, columns, kind)
    stored = csf.encode(content)
    assert stored.shape == (rows, columns)
    assert stored.fixed.shape == (rows // 16, 16 * (1 + columns // 2))
    assert torch.equal(csf.decode(stored), content)
    assert np.array_equal(
        reference.decode_csf(stored.fixed.numpy(), stored.exceptions.numpy()), content.numpy()
    )


@settings(max_examples=50, deadline=None)
@given(data=st.data(), columns=st.sampled_from([2, 4, 10]))
def test_the_base_covers_the_most_and_is_the_lowest_of_its_kind(data, columns):
    row = data.draw(st.lists(st.integers(0, 255), min_size=columns, max_size=columns))
    stored = csf.encode(torch.tensor([row] * 16, dtype=torch.uint8))
    covered = [sum(base <= byte < base + 16 for byte in row) for base in range(241)]
    assert stored.fixed[0, :16].tolist() == [covered.index(max(covered))] * 16
    assert stored.exceptions.numel() == 16 * (columns - max(covered))


def test_codec_0_by_hand():
    content = torch.full((16, 4), 100, dtype=torch.uint8)
    content[1] = torch.tensor([90, 93, 105, 7])
    stored = csf.encode(content.view(torch.float8_e4m3fn))
    assert stored.fixed[0, :3].tolist() == [85, 90, 85]
    assert stored.fixed[0, 16:20].tolist() == [0xFF, 0xFF, 0x30, 0x0F]
    assert stored.exceptions.tolist() == [7 << 24 | 7]


@pytest.mark.parametrize("shape", [(15, 4), (16, 3), (0, 4), (16, 0), (1 << 14, 1 << 11)])
def test_codec_0_refuses_other_shapes(shape):
    with pytest.raises(ValueError, match="cannot be compressed"):
        csf.encode(torch.zeros(shape, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("fixed", "exceptions", "complaint"),
    [
        (torch.zeros(1, 40, dtype=torch.uint8), [], "a fixed stream is"),
        (torch.zeros(1, 16, dtype=torch.uint8), [], "a fixed stream is"),
        (torch.zeros(1, 48), [], "a fixed stream is"),
        (torch.full((1, 48), 241, dtype=torch.uint8), [], "base is above 240"),
        (torch.zeros(1, 48, dtype=torch.uint8), [64], "ascend and are below 64"),
        (torch.zeros(1, 48, dtype=torch.uint8), [3, 3], "ascend"),
        (torch.zeros(1, 48, dtype=torch.uint8), [5, 3], "ascend"),
    ],
)
def test_codec_0_refuses_streams_that_nobody_writes(fixed, exceptions, complaint):
    with pytest.raises(ValueError, match=complaint):
        csf.decode(CsfScales(fixed, unsigned(exceptions)))


def test_exceptions_of_another_type_are_refused():
    with pytest.raises(ValueError, match="exceptions are U32"):
        csf.decode(CsfScales(torch.zeros(1, 48, dtype=torch.uint8), torch.zeros(1, dtype=torch.int32)))


def split_stream(rows, columns, exceptions):
    """A random stream whose exponents stay within five bits, and its exceptions as (position, high bits)."""
    fixed = RANDOM.integers(0, 256, (rows // 16, 16 * (1 + columns // 2))).astype(np.uint8)
    fixed[:, :16] = RANDOM.integers(0, 31, (rows // 16, 16))
    positions = np.sort(RANDOM.choice(rows * columns, exceptions, replace=False))
    return fixed, [(int(place), int(RANDOM.integers(0, 32))) for place in positions]


@pytest.mark.parametrize(("rows", "columns", "count"), [(16, 8, 0), (16, 8, 9), (48, 24, 40), (128, 160, 7)])
def test_codecs_1_and_2_decode_by_definition(rows, columns, count):
    fixed, exceptions = split_stream(rows, columns, count)
    expected = reference.decode_csf_split(fixed, exceptions)
    wide = unsigned([place | high << 24 for place, high in exceptions])
    assert np.array_equal(csf_split.decode_wide(torch.from_numpy(fixed), wide).numpy(), expected)
    words = np.array([place | high << 19 for place, high in exceptions], dtype="<u4")
    narrow = torch.from_numpy(words.view(np.uint8).reshape(-1, 4)[:, :3].copy()).flatten()
    assert np.array_equal(csf_split.decode_narrow(torch.from_numpy(fixed), narrow).numpy(), expected)


def test_codecs_1_and_2_refuse_what_nobody_writes():
    fixed = torch.zeros(1, 80, dtype=torch.uint8)
    with pytest.raises(ValueError, match="more than five"):
        csf_split.decode_wide(fixed, unsigned([32 << 24]))
    with pytest.raises(ValueError, match="ascend"):
        csf_split.decode_wide(fixed, unsigned([128]))
    with pytest.raises(ValueError, match=r"U8 \[3n\]"):
        csf_split.decode_narrow(fixed, torch.zeros(4, dtype=torch.uint8))
    with pytest.raises(ValueError, match="ascend"):
        csf_split.decode_narrow(fixed, torch.tensor([128, 0, 0], dtype=torch.uint8))
    with pytest.raises(ValueError, match="a fixed stream is"):
        csf_split.decode_wide(torch.zeros(1, 48, dtype=torch.uint8), unsigned([]))


@pytest.mark.parametrize("columns", [1, 7, 8, 9, 80, 255])
def test_one_bit_scales_decode_by_definition(columns):
    fixed = RANDOM.integers(0, 256, (2, 16 * (1 + -(-columns // 8)))).astype(np.uint8)
    fixed[:, :16] = RANDOM.integers(0, 255, (2, 16))
    positions = np.sort(RANDOM.choice(32 * columns, 5, replace=False))
    words = [
        int(place) | int(byte) << 24
        for place, byte in zip(positions, RANDOM.integers(0, 256, 5), strict=True)
    ]
    given = csf_bit.decode(torch.from_numpy(fixed), unsigned(words), columns)
    assert np.array_equal(given.numpy(), reference.decode_csf_bit(fixed, np.array(words), columns))


def test_one_bit_scales_refuse_other_forms():
    for columns in (0, 256):
        with pytest.raises(ValueError, match="1 to 255"):
            csf_bit.decode(torch.zeros(1, 32, dtype=torch.uint8), unsigned([]), columns)
    with pytest.raises(ValueError, match="a fixed stream of 9 columns"):
        csf_bit.decode(torch.zeros(1, 32, dtype=torch.uint8), unsigned([]), 9)
    with pytest.raises(ValueError, match="ascend"):
        csf_bit.decode(torch.zeros(1, 32, dtype=torch.uint8), unsigned([128]), 8)
