"""`flare::linear`, plain and with weights packed at load."""

import pytest
import torch
from precision import DTYPES, assert_rounded, same_bits

from flare_components.ops import bind, reference
from flare_components.ops.linear import _blocks

SHAPES = [(96, 200), (576, 960), (1536, 576), (50, 77)]
ROWS = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 64, 100)


def packable(dtype):
    return dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported()


def make_linear(weight, kind):
    """`(x, bias) -> product` through the operator, or through what a loaded core binds."""
    if kind == "blocks":
        return lambda x, bias=None: _blocks(x, weight, bias)
    if kind == "plain":
        return lambda x, bias=None: torch.ops.flare.linear(x, weight, bias)
    if not packable(weight.dtype):
        pytest.skip("this processor has no packed kernel for the type")
    bound = bind("flare::linear", (None, weight, None), (False, True, False), {})
    return lambda x, bias=None: bound.call(x, None, bias)


@pytest.fixture(params=["plain", "packed", "blocks"])
def kind(request):
    return request.param


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
@pytest.mark.parametrize("with_bias", [False, True])
def test_product_is_rounded_once(kind, dtype, inputs, outputs, with_bias):
    torch.manual_seed(0)
    weight = torch.randn(outputs, inputs).to(dtype)
    bias = torch.randn(outputs).to(dtype) if with_bias else None
    linear = make_linear(weight, kind)
    for rows in (1, 3, 4, 70):
        x = torch.randn(rows, inputs).to(dtype)
        expected = reference.linear(x, weight, bias)
        # FP32 sums err in proportion to the magnitudes summed; BF16 rounds a nearly exact sum.
        magnitude = float((x.double().abs() @ weight.double().abs().T).max())
        if dtype == torch.float32:
            assert_rounded(linear(x, bias), expected, units=4, floor=magnitude)
        else:
            assert_rounded(linear(x, bias), expected, floor=1e-4 * magnitude)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_a_row_has_the_same_bits_at_any_row_count_and_place(kind, dtype, inputs, outputs):
    torch.manual_seed(1)
    linear = make_linear(torch.randn(outputs, inputs).to(dtype), kind)
    x = torch.randn(max(ROWS), inputs).to(dtype)
    whole = linear(x)
    for rows in ROWS:
        assert same_bits(linear(x[:rows]), whole[:rows]), rows
        assert same_bits(linear(x[-rows:]), whole[-rows:]), rows


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_poisoned_row_stays_alone(kind, dtype):
    linear = make_linear(torch.randn(64, 32).to(dtype), kind)
    x = torch.randn(3, 32).to(dtype)
    clean = linear(x)
    x[1] = torch.nan
    poisoned = linear(x)
    assert same_bits(poisoned[::2], clean[::2])
    assert poisoned[1].isnan().all()
    # The padding of a later, shorter call holds the poisoned row.
    assert same_bits(linear(x[:1]), clean[:1])


def test_strided_rows_are_read_as_rows(kind):
    linear = make_linear(torch.randn(24, 32), kind)
    wide = torch.randn(6, 64)
    assert same_bits(linear(wide[:, 16:48]), linear(wide[:, 16:48].contiguous()))
