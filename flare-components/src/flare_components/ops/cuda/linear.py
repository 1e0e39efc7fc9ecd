"""`flare::linear`: cuBLAS, and for few rows kernels that read the weights once and sum in FP32.

At one to eight rows the product is a walk through the weights. A kernel with a tile of outputs a program, or
with the inner dimension split as well where there are few outputs, can come closer to the memory's speed than
cuBLAS does; which one is faster depends on the shape, so it is timed (`tuning`).
"""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from flare_components.ops.cuda.launch import cdiv, power_of_two, processors
from flare_components.ops.cuda.tuning import Candidate, choose
from flare_components.ops.schema import accelerate

MOST_ROWS = 8
"""More rows are cuBLAS's."""


@triton.jit
def multiply_row(
    x,
    weight,
    bias,
    out,
    outputs,
    inputs,
    weight_row,
    HAS_BIAS: tl.constexpr,
    OUT: tl.constexpr,
    IN: tl.constexpr,
):
    """One row x [inputs]; OUT outputs a program. Sums stay apart by column until the end."""
    output = tl.program_id(0) * OUT + tl.arange(0, OUT)
    column = tl.arange(0, IN)
    rows = weight + output.to(tl.int64)[:, None] * weight_row
    total = tl.zeros((OUT, IN), tl.float32)
    for start in range(0, inputs, IN):
        inside = start + column < inputs
        live = (output < outputs)[:, None] & inside[None, :]
        tile = tl.load(rows + (start + column)[None, :], mask=live, other=0.0, eviction_policy="evict_first")
        values = tl.load(x + start + column, mask=inside, other=0.0)
        total += tile.to(tl.float32) * values.to(tl.float32)[None, :]
    result = tl.sum(total, 1)
    if HAS_BIAS:
        result += tl.load(bias + output, mask=output < outputs, other=0.0).to(tl.float32)
    tl.store(out + output, result.to(out.dtype.element_ty), mask=output < outputs)


@triton.jit
def multiply_rows(
    x,
    weight,
    bias,
    out,
    partial_sums,
    rows,
    outputs,
    inputs,
    x_row,
    weight_row,
    length,
    HAS_BIAS: tl.constexpr,
    SPLITS: tl.constexpr,
    OUT: tl.constexpr,
    IN: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Program (tile of OUT outputs, split of `length` inputs): x [rows, inputs], rows <= ROWS. With one split
    it writes out, else partial_sums [SPLITS, rows, outputs]."""
    split = tl.program_id(1)
    output = tl.program_id(0) * OUT + tl.arange(0, OUT)
    row, column = tl.arange(0, ROWS), tl.arange(0, IN)
    weights = weight + output.to(tl.int64)[:, None] * weight_row
    total = tl.zeros((OUT, ROWS), tl.float32)
    last = tl.minimum(split * length + length, inputs)
    for start in range(split * length, last, IN):
        at = start + column
        inside = at < last
        tile = tl.load(
            weights + at[None, :],
            mask=(output < outputs)[:, None] & inside[None, :],
            other=0.0,
            eviction_policy="evict_first",
        )
        values = tl.load(
            x + row[None, :] * x_row + at[:, None], mask=(row < rows)[None, :] & inside[:, None], other=0.0
        )
        total = tl.dot(tile, values, total, input_precision="ieee")
    live = (output < outputs)[:, None] & (row < rows)[None, :]
    place = row[None, :] * outputs + output[:, None]
    if SPLITS == 1:
        if HAS_BIAS:
            total += tl.load(bias + output, mask=output < outputs, other=0.0).to(tl.float32)[:, None]
        tl.store(out + place, total.to(out.dtype.element_ty), mask=live)
    else:
        tl.store(partial_sums + split * rows * outputs + place, total, mask=live)


@triton.jit
def add_splits(
    partial_sums, bias, out, size, outputs, HAS_BIAS: tl.constexpr, SPLITS: tl.constexpr, BLOCK: tl.constexpr
):
    """out [rows * outputs] of partial_sums [SPLITS, rows * outputs], in the order of the splits."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = place < size
    total = tl.zeros((BLOCK,), tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(partial_sums + split * size + place, mask=live, other=0.0)
    if HAS_BIAS:
        total += tl.load(bias + place % outputs, mask=live, other=0.0).to(tl.float32)
    tl.store(out + place, total.to(out.dtype.element_ty), mask=live)


def one_row(tile: int, step: int, warps: int, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x [1, in]."""
    outputs, inputs = weight.shape
    out = x.new_empty(1, outputs)
    multiply_row[(cdiv(outputs, tile),)](
        x,
        weight,
        out if bias is None else bias,
        out,
        outputs,
        inputs,
        weight.stride(0),
        HAS_BIAS=bias is not None,
        OUT=tile,
        IN=step,
        num_warps=warps,
        num_stages=3,
    )
    return out


def few_rows(tile: int, step: int, splits: int, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x [up to 16, in]."""
    rows, (outputs, inputs) = x.shape[0], weight.shape
    out = x.new_empty(rows, outputs)
    sums = out if splits == 1 else x.new_empty((splits, rows, outputs), dtype=torch.float32)
    has_bias = bias is not None
    multiply_rows[(cdiv(outputs, tile), splits)](
        x,
        weight,
        bias if has_bias else out,
        out,
        sums,
        rows,
        outputs,
        inputs,
        x.stride(0),
        weight.stride(0),
        cdiv(cdiv(inputs, splits), step) * step,
        HAS_BIAS=has_bias,
        SPLITS=splits,
        OUT=tile,
        IN=step,
        ROWS=16,
        num_warps=4,
        num_stages=4,
    )
    if splits > 1:
        size = rows * outputs
        add_splits[(cdiv(size, 512),)](
            sums, bias if has_bias else out, out, size, outputs, HAS_BIAS=has_bias, SPLITS=splits, BLOCK=512
        )
    return out


def candidates(x: Tensor, weight: Tensor) -> list[Candidate]:
    """cuBLAS first; then what takes these operands, on any architecture."""
    rows, (outputs, inputs) = x.shape[0], weight.shape
    found = [Candidate("cublas", torch.nn.functional.linear)]
    if not 1 <= rows <= MOST_ROWS or weight.stride(1) != 1 or x.stride(1) != 1:
        return found
    if rows == 1:
        for tile, step, warps in ((1, 1024, 4), (2, 1024, 4), (4, 512, 4), (8, 256, 4), (4, 1024, 8)):
            step = min(step, power_of_two(inputs))
            found.append(Candidate(f"row {tile}x{step}", partial(one_row, tile, step, warps)))
    step = 64 if x.element_size() == 4 else 128
    for tile in (16, 32, 64):
        fill = cdiv(2 * processors(x), cdiv(outputs, tile))
        for splits in sorted({1, min(power_of_two(fill), 16, cdiv(inputs, step))}):
            found.append(Candidate(f"tile {tile}x{step}/{splits}", partial(few_rows, tile, step, splits)))
    return found


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """As the operator's CPU kernel; a row's bits depend on the number of rows."""
    if x.shape[0] > MOST_ROWS:
        return torch.nn.functional.linear(x, weight, bias)
    shape = (*x.shape, weight.shape[0], x.dtype, bias is not None, x.stride(1), weight.stride())
    chosen = choose("linear", shape, lambda: candidates(x, weight), (x, weight, bias))
    out: Tensor = chosen.call(x, weight, bias)
    return out


accelerate("linear", linear)
