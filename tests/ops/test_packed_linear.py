"""Products with packed matrices: rounded once, a tile at a time, a row alone."""

import math

import pytest
import torch
from fake_call import faked
from live_memory import LiveMemory
from packed_matrices import BLOCK, FORMATS, packed
from precision import DTYPES, assert_rounded, same_bits

from flare_components.ops import packed_product
from flare_components.ops.nvfp4 import nvfp4_linear
from flare_components.quant import nvfp4

SHAPES = [(32, 64), (50, 34), (7, 96), (96, 130)]


@pytest.fixture(params=[packed_product.TILE_ELEMENTS, 1000], ids=["one tile", "tiles"])
def tiles(request, monkeypatch):
    monkeypatch.setattr(packed_product, "TILE_ELEMENTS", request.param)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
@pytest.mark.parametrize("quantize", [False, True], ids=["plain input", "quantized input"])
@pytest.mark.parametrize("with_bias", [False, True])
def test_product_is_rounded_once(tiles, dtype, name, rows, columns, quantize, with_bias):
    matrix = packed(name, rows, columns)
    torch.manual_seed(1)
    bias = torch.randn(rows).to(dtype) if with_bias else None
    for count in (1, 3, 20):
        x = torch.randn(count, columns).to(dtype)
        wide = matrix.rounded(x) if quantize else x.double()
        expected = wide @ matrix.dense.T + (0 if bias is None else bias.double())
        magnitude = float((wide.abs() @ matrix.dense.abs().T).max())
        result = matrix.linear(x, bias, quantize=quantize)
        if dtype == torch.float32:
            assert_rounded(result, expected.to(dtype), units=8, floor=magnitude)
        else:
            assert_rounded(result, expected.to(dtype), floor=1e-4 * magnitude)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("quantize", [False, True])
def test_a_row_has_the_same_bits_at_any_row_count_and_place(tiles, dtype, name, quantize):
    matrix = packed(name, 96, 130)
    x = torch.randn(40, 130).to(dtype)
    whole = matrix.linear(x, quantize=quantize)
    for rows in (1, 2, 3, 5, 8, 17, 33):
        assert same_bits(matrix.linear(x[:rows], quantize=quantize), whole[:rows]), rows
        assert same_bits(matrix.linear(x[-rows:], quantize=quantize), whole[-rows:]), rows


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("quantize", [False, True])
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_poisoned_row_stays_alone_and_is_seen(name, quantize, poison):
    matrix = packed(name, 32, 64)
    x = torch.randn(3, 64)
    clean = matrix.linear(x, quantize=quantize)
    x[1, 5] = poison
    given = matrix.linear(x, quantize=quantize)
    assert same_bits(given[::2], clean[::2])
    assert not given[1].isfinite().any()


@pytest.mark.parametrize("name", FORMATS)
def test_strided_rows_are_read_as_rows(name):
    matrix = packed(name, 24, 32)
    wide = torch.randn(6, 96)
    assert same_bits(matrix.linear(wide[:, 32:64]), matrix.linear(wide[:, 32:64].contiguous()))


def test_rows_of_a_table():
    stored = nvfp4.encode(torch.randn(10, 160))
    scale = stored.global_scale.view(1)
    table = torch.cat([stored.codes, stored.scales.view(torch.uint8)], 1)
    assert table.shape == (10, 90)
    delivered = torch.stack([table[3:7], table[5:9]]).flatten(0, 1)
    for dtype in DTYPES:
        rows = torch.ops.flare.nvfp4_rows(delivered, scale, dtype)
        assert same_bits(rows[:4], nvfp4.decode(stored)[3:7].to(dtype))
        assert same_bits(rows[4:], nvfp4.decode(stored)[5:9].to(dtype))
        fake = faked("nvfp4_rows", (delivered, scale, dtype))
        assert (fake.shape, fake.stride(), fake.dtype) == (rows.shape, rows.stride(), dtype)
    for wrong in (delivered[:, 1:], delivered.float(), delivered[0]):
        with pytest.raises(RuntimeError, match="rows are U8"):
            faked("nvfp4_rows", (wrong, scale, torch.float32))


def test_memory_is_bounded_by_a_tile():
    """The matrix has 64 tiles; decoding one takes pairs of values, spread scales and their product."""
    rows, columns = 64 * 256, packed_product.TILE_ELEMENTS // 256
    codes = torch.randint(0, 256, (rows, columns // 2), dtype=torch.uint8)
    scales = torch.ones(rows, columns // 16).to(torch.float8_e4m3fn)
    x = torch.randn(4, columns)
    with LiveMemory() as memory:
        nvfp4_linear(x, codes, scales, torch.ones(rows), None, None)
    tile = 4 * packed_product.TILE_ELEMENTS
    results = 3 * 4 * 4 * rows
    assert tile < memory.peak < 5 * tile + results < 4 * rows * columns / 10


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("quantize", [False, True])
def test_fake_results_have_the_layout_of_real_ones(name, quantize):
    args = (
        torch.randn(3, 64).bfloat16(),
        *packed(name, 32, 64).operands(torch.zeros(32).bfloat16(), quantize),
    )
    real, fake = getattr(torch.ops.flare, f"{name}_linear")(*args), faked(f"{name}_linear", args)
    assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)


@pytest.mark.parametrize("name", FORMATS)
def test_every_operand_is_checked(name):
    args = [torch.randn(3, 64), *packed(name, 32, 64).operands(torch.zeros(32), True)]
    for index, operand in enumerate(args):
        if isinstance(operand, torch.Tensor):
            for wrong in (operand.unsqueeze(-1), operand.to(torch.float16)):
                with pytest.raises((RuntimeError, ValueError)):
                    faked(f"{name}_linear", [*args[:index], wrong, *args[index + 1 :]])


def test_operands_that_do_not_fit_are_named():
    operands = packed("fp8_block", 32, 64).operands(None, False)
    with pytest.raises(RuntimeError, match=r"scales is torch.float32 \[1, 4\], not torch.float32 \[2, 2\]"):
        faked("fp8_block_linear", (torch.zeros(2, 64), *operands[:3], *BLOCK[::-1], False))
    with pytest.raises(RuntimeError, match=r"x is \[N, 64\]"):
        faked("fp8_block_linear", (torch.zeros(2, 65), *operands))
