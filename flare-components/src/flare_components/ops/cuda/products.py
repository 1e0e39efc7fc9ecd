"""Fused products as kernels of their own, one tile a program, and their launches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from flare_components.ops.cuda.launch import await_inputs, overlap, power_of_two
from flare_components.ops.cuda.norms import rms_norm
from flare_components.ops.cuda.projection import (
    GATE,
    conclude,
    inverse_length,
    inverse_lengths,
    scaled,
    tiles,
    weight_rows,
)
from flare_components.ops.cuda.tuning import Candidate

ROW_TILES = ((2, 1024, 4), (4, 1024, 4), (8, 1024, 4), (4, 2048, 4), (2, 2048, 8))
"""OUT, IN and warps of `project_row`: IN is 256 for each warp or a multiple, so that a thread finds its
inputs where its weights are."""
ROWS_TILES = ((16, 64, 4, 4), (16, 128, 4, 3), (16, 64, 2, 5), (16, 128, 2, 4))
"""OUT, IN, warps and stages of `project_rows`."""
ROWS = 8
"""Rows of a tensor core's tile."""


@triton.jit
def project_row(
    x,
    gain,
    weight,
    residual,
    bias,
    out,
    arrivals,
    cos,
    sin,
    k_pages,
    v_pages,
    slots,
    rows,
    outputs,
    x_row,
    eps,
    heads,
    kv_heads,
    half,
    cos_row,
    k_page,
    v_page,
    INPUTS: tl.constexpr,
    PAGE: tl.constexpr,
    NORM: tl.constexpr,
    KIND: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    ARRIVALS: tl.constexpr,
    OUT: tl.constexpr,
    IN: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One row by one tile of OUT outputs. The next IN inputs' weights are under way while some are
    multiplied, the first ones before the inputs are there."""
    STEPS: tl.constexpr = (INPUTS + IN - 1) // IN
    UNIT: tl.constexpr = 8  # consecutive inputs of one thread, which it sums alone
    tile = tl.program_id(0)
    output, live = weight_rows(tile, outputs, half, KIND, OUT)
    column = tl.arange(0, IN)
    source = weight + output.to(tl.int64)[:, None] * INPUTS + column[None, :]
    inside = live[:, None] & (column < INPUTS)[None, :]
    current = tl.load(source, mask=inside, other=0.0, eviction_policy="evict_first")
    await_inputs(OVERLAP)
    if ARRIVALS > 0:
        reset(arrivals, ARRIVALS)
    scale = 1.0
    if NORM:
        scale = inverse_length(x, eps, INPUTS, BLOCK)
    total = tl.zeros((OUT, IN // UNIT), tl.float32)
    for step in range(STEPS):
        start = (step + 1) * IN
        inside = live[:, None] & (column + start < INPUTS)[None, :]
        following = tl.load(source + start, mask=inside, other=0.0, eviction_policy="evict_first")
        at = step * IN + column
        values = tl.load(x + at, mask=at < INPUTS, other=0.0)
        if NORM:
            values = scaled(values, scale, tl.load(gain + at, mask=at < INPUTS, other=0.0))
        products = current.to(tl.float32) * values.to(tl.float32)[None, :]
        total += tl.sum(tl.reshape(products, (OUT, IN // UNIT, UNIT)), 2)
        current = following
    turn = (cos, sin, k_pages, v_pages, slots, heads, kv_heads, half, cos_row, k_page, v_page)
    sums = tl.sum(total, 1)[:, None]
    conclude(sums, tile, residual, bias, out, turn, 1, outputs, PAGE, KIND, HAS_BIAS, OUT, 1)


@triton.jit
def project_rows(
    x,
    gain,
    weight,
    residual,
    bias,
    out,
    arrivals,
    cos,
    sin,
    k_pages,
    v_pages,
    slots,
    rows,
    outputs,
    x_row,
    eps,
    heads,
    kv_heads,
    half,
    cos_row,
    k_page,
    v_page,
    INPUTS: tl.constexpr,
    PAGE: tl.constexpr,
    NORM: tl.constexpr,
    KIND: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    ARRIVALS: tl.constexpr,
    ROWS: tl.constexpr,
    OUT: tl.constexpr,
    IN: tl.constexpr,
    WARPS: tl.constexpr,
    STAGES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Up to ROWS rows by one tile of OUT outputs, on tensor cores. A step is WARPS slices of IN inputs: a
    batch of matrix products, which Triton gives to the warps one by one."""
    tile = tl.program_id(0)
    output, live = weight_rows(tile, outputs, half, KIND, OUT)
    slices, column, row = tl.arange(0, WARPS)[:, None, None] * IN, tl.arange(0, IN), tl.arange(0, ROWS)
    inner, depth = slices + column[None, None, :], slices + column[None, :, None]
    source = weight + output.to(tl.int64)[None, :, None] * INPUTS + inner
    inputs = x + row[None, None, :] * x_row + depth
    if ARRIVALS > 0:
        reset(arrivals, ARRIVALS)
    if NORM:
        scales = inverse_lengths(x, x_row, rows, eps, INPUTS, ROWS, BLOCK)[None, None, :]
    total = tl.zeros((WARPS, OUT, ROWS), tl.float32)
    for start in tl.range(0, INPUTS, WARPS * IN, num_stages=STAGES):
        exists = live[None, :, None] & (start + inner < INPUTS)
        current = tl.load(source + start, mask=exists, other=0.0, eviction_policy="evict_first")
        inside = start + depth < INPUTS
        values = tl.load(inputs + start, mask=(row < rows)[None, None, :] & inside, other=0.0)
        if NORM:
            values = scaled(values, scales, tl.load(gain + start + depth, mask=inside, other=0.0))
        total = tl.dot(current, values, total)
    turn = (cos, sin, k_pages, v_pages, slots, heads, kv_heads, half, cos_row, k_page, v_page)
    sums = tl.sum(total, 0)
    conclude(sums, tile, residual, bias, out, turn, rows, outputs, PAGE, KIND, HAS_BIAS, OUT, ROWS)


@triton.jit
def reset(arrivals, ARRIVALS: tl.constexpr):
    """The first program zeroes what attention counts its parts with."""
    if tl.program_id(0) == 0:
        tl.store(arrivals + tl.arange(0, ARRIVALS), tl.zeros((ARRIVALS,), tl.int32))


@dataclass(frozen=True)
class Turn:
    """What the heads need after the stacked projection: cos and sin [N, D] with a last stride of 1, pages,
    slots i64[N], and a count for attention that the product resets: arrivals i32[a power of two]."""

    cos: Tensor
    sin: Tensor
    k_pages: Tensor
    v_pages: Tensor
    slots: Tensor
    arrivals: Tensor


@dataclass(frozen=True)
class Form:
    """A fused product beside its large operands. eps None: no norm."""

    kind: int
    eps: float | None
    turn: Turn | None = None


Operands = tuple[Tensor, Tensor | None, Tensor, Tensor | None, Tensor | None]
"""x [N, in], gain [in], weight [out, in], residual [N, out], bias [out]."""


def outputs_of(form: Form, weight: Tensor) -> int:
    """Outputs that a row is left with; for the heads all of the product's."""
    return weight.shape[0] // 2 if form.kind == GATE else weight.shape[0]


def candidates(form: Form, x: Tensor, weight: Tensor) -> list[Candidate]:
    """Kernels for one row, or for up to ROWS rows of a 16-bit type; none when they do not take the
    operands."""
    rows, inputs = x.shape
    if not 1 <= rows <= ROWS or x.stride(1) != 1 or not weight.is_contiguous():
        return []
    found = []
    if rows == 1:
        for out, step, warps in ROW_TILES:
            step = min(step, power_of_two(inputs))
            if _fits(form, out) and step >= 8:
                call = partial(_row, form, out, step, warps)
                found.append(Candidate(f"row {out}x{step}/{warps}", call))
    elif x.element_size() == 2:
        for out, step, warps, stages in ROWS_TILES:
            if _fits(form, out):
                call = partial(_rows, form, False, out, step, warps, stages)
                found.append(Candidate(f"rows {out}x{step}/{warps}/{stages}", call))
                if form.eps is not None:
                    call = partial(_rows, form, True, out, step, warps, stages)
                    found.append(Candidate(f"norm, rows {out}x{step}/{warps}/{stages}", call))
    return found


def _fits(form: Form, out: int) -> bool:
    return form.turn is None or form.turn.k_pages.shape[3] % out == 0


def _row(
    form: Form,
    out: int,
    step: int,
    warps: int,
    x: Tensor,
    gain: Tensor | None,
    weight: Tensor,
    residual: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    return _launch(
        project_row,
        form,
        (x, gain, weight, residual, bias),
        OUT=out,
        IN=step,
        num_warps=warps,
        num_stages=1,
        **overlap(x),
    )


def _rows(
    form: Form,
    norm_before: bool,
    out: int,
    step: int,
    warps: int,
    stages: int,
    x: Tensor,
    gain: Tensor | None,
    weight: Tensor,
    residual: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    """norm_before: by a kernel of its own, where every program's norm of several rows takes longer."""
    if norm_before:
        assert gain is not None
        assert form.eps is not None
        x, gain = rms_norm(x, gain, form.eps), None
    return _launch(
        project_rows,
        form,
        (x, gain, weight, residual, bias),
        OUT=out,
        IN=step,
        ROWS=ROWS,
        WARPS=warps,
        STAGES=stages,
        num_warps=warps,
        num_stages=stages,
    )


def _launch(kernel: Any, form: Form, operands: Operands, **options: int) -> Tensor:
    x, gain, weight, residual, bias = operands
    rows, inputs = x.shape
    outputs, turn = outputs_of(form, weight), form.turn
    head, page, after = 2, 1, (x, x, x, x, x, x)
    sizes: tuple[int, ...] = (1, 1, 1, 0, 0, 0)
    kept = outputs
    if turn is not None:
        page, kv_heads, head = turn.k_pages.shape[1:]
        kept = outputs - 2 * kv_heads * head
        after = (turn.arrivals, turn.cos, turn.sin, turn.k_pages, turn.v_pages, turn.slots)
        strides = (turn.cos.stride(0), turn.k_pages.stride(0), turn.v_pages.stride(0))
        sizes = (kept // head, kv_heads, head // 2, *strides)
    out = x.new_empty(rows, kept)
    kernel[(tiles(form.kind, options["OUT"], outputs, head),)](
        x,
        x if gain is None else gain,
        weight,
        x if residual is None else residual,
        x if bias is None else bias,
        out,
        *after,
        rows,
        outputs,
        x.stride(0),
        0.0 if form.eps is None else form.eps,
        *sizes,
        INPUTS=inputs,
        PAGE=page,
        NORM=gain is not None,
        KIND=form.kind,
        HAS_BIAS=bias is not None,
        ARRIVALS=0 if turn is None else turn.arrivals.numel(),
        BLOCK=power_of_two(inputs),
        **options,
    )
    return out
