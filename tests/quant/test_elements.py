"""Element types: every code, every tie, what saturates and what is not a number."""

import math
from itertools import pairwise

import pytest
import torch

from flare_components.quant import e2m1, e4m3, e8m0, reference


def neighbours(value):
    """The value, and the FP32 numbers next to it."""
    x = torch.tensor(value)
    return [torch.nextafter(x, torch.tensor(side)).item() for side in (-math.inf, math.inf)] + [x.item()]


def magnitudes(decode, codes):
    return [decode(code) for code in range(codes)]


def test_every_e2m1_code():
    packed = torch.arange(256, dtype=torch.uint8)
    expected = [[reference.e2m1(byte & 15), reference.e2m1(byte >> 4)] for byte in range(256)]
    assert torch.equal(e2m1.decode(packed.view(256, 1)), torch.tensor(expected))
    again = e2m1.encode(torch.tensor(expected))
    assert torch.equal(again.flatten(), packed)  # negative zero keeps its sign


def test_e2m1_rounds_to_nearest_and_ties_to_even():
    sizes = magnitudes(reference.e2m1, 8)
    bounds = [(a + b) / 2 for a, b in pairwise(sizes)]
    values = [n * sign for bound in bounds for n in neighbours(bound) for sign in (1, -1)]
    packed = e2m1.encode(torch.tensor(values).view(-1, 2))
    expected = [reference.e2m1_code(value) for value in values]
    assert [code for byte in packed.flatten().tolist() for code in (byte & 15, byte >> 4)] == expected


def test_e2m1_saturates():
    values = torch.tensor([[6.1, -1e30, math.inf, -math.inf]])
    assert e2m1.decode(e2m1.encode(values)).tolist() == [[6.0, -6.0, 6.0, -6.0]]


def test_e2m1_is_packed_in_pairs():
    assert e2m1.encode(torch.tensor([0.5, -6.0])).tolist() == [0xF1]
    with pytest.raises(ValueError, match="3 columns are odd"):
        e2m1.encode(torch.zeros(2, 3))


def test_every_e4m3_code():
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)
    expected = torch.tensor([reference.e4m3(code) for code in range(256)])
    assert torch.equal(e4m3.decode(codes).nan_to_num(999), expected.nan_to_num(999))
    again = e4m3.encode(expected[:255]).view(torch.uint8)  # both signs of NaN, 127 and 255, become 127
    assert torch.equal(again, codes[:255].view(torch.uint8))


def test_e4m3_rounds_to_nearest_and_ties_to_even():
    sizes = magnitudes(reference.e4m3, 127)
    bounds = [(a + b) / 2 for a, b in pairwise(sizes)]
    values = [n * sign for bound in bounds for n in neighbours(bound) for sign in (1, -1)]
    codes = e4m3.encode(torch.tensor(values)).view(torch.uint8).tolist()
    assert codes == [reference.e4m3_code(value) for value in values]


def test_e4m3_saturates_and_keeps_nan():
    values = torch.tensor([448.1, 480.0, -1e30, math.inf, -math.inf, math.nan])
    decoded = e4m3.decode(e4m3.encode(values))
    assert decoded[:-1].tolist() == [448.0, 448.0, -448.0, 448.0, -448.0]
    assert decoded[-1].isnan()


def test_every_e8m0_code():
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    values = e8m0.decode(codes)
    assert values[:255].double().tolist() == [reference.e8m0(code) for code in range(255)]
    assert values[255].isnan()
    assert torch.equal(e8m0.encode_above(values).view(torch.uint8), codes.view(torch.uint8))


def test_e8m0_rounds_up():
    values = [
        n
        for exponent in range(-126, 127)
        for n in neighbours(2.0**exponent) + neighbours(1.5 * 2.0**exponent)
    ]
    values += [0.0, 2.0**-149, 3.4e38, math.inf, math.nan]
    codes = e8m0.encode_above(torch.tensor(values)).view(torch.uint8).tolist()
    assert codes == [reference.e8m0_code_above(torch.tensor(value).item()) for value in values]
