"""Prefill attention on Hopper: as `attention_tiles`, with warps that copy and warps that compute.

Two groups of four warps take half of the tile's rows each and wait for the ring that `attention_ring`
fills, not for each other. In a group the product of queries and keys is started before the product of the
preceding tile's weights and values, so that the tensor cores work on the second one while the first one's
softmax is computed. Tiles of keys are walked from the last to the first: the masked ones come first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from flare_components.ops.cuda.attention_ring import produce

ROWS = 128
"""Of a tile."""
OPTIONS: dict[str, Any] = {"KEYS": 128, "STAGES": 2, "REGS": 224, "num_warps": 4, "maxnreg": 168}

# The compiler is free to move the wait for a product ahead of the powers that should overlap it. This cannot
# move, as it may store, and needs their sum; it does nothing, because no sum of powers is negative.
PINNED = gl.constexpr("{ .reg .pred p; setp.lt.f32 p, $1, 0f00000000; @p membar.cta; mov.b32 $0, $1; }")
FLOOR = gl.constexpr(-1.0e30)  # below every score
LOG2_E = gl.constexpr(1.4426950408889634)


@gluon.jit
def add(a, b):
    """For a scan."""
    return a + b


@gluon.jit
def softmax(scores, peak, total, power, start, seen, MASKED: gl.constexpr, lay: gl.constexpr):
    """Weights of scores, the new peak and total, and what earlier results fade by."""
    if MASKED:
        token = start + gl.arange(0, scores.shape[1], gl.SliceLayout(0, lay))
        scores = gl.where(token[None, :] < seen[:, None], scores, float("-inf"))
    above = gl.maximum(peak, gl.max(scores, 1))
    weights = gl.exp2(scores * power - (above * power)[:, None])
    fade = gl.exp2((peak - above) * power)
    return weights, above, total * fade + gl.sum(weights, 1), fade


@gluon.jit
def advance(
    queries,
    ring,
    operand,
    peak,
    total,
    result,
    step,
    final,
    power,
    seen,
    KEYS: gl.constexpr,
    WIDTH: gl.constexpr,
    STAGES: gl.constexpr,
    MASKED: gl.constexpr,
):
    """Weights of tile `step`, and the product of those of tile step - 1 (operand) and their values."""
    k_shared, v_shared, filled, emptied = ring
    scored: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    summed: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    slot = step % STAGES
    mbarrier.wait(filled.index(slot), (step // STAGES) & 1)
    fence_async_shared()
    scores = gl.zeros((64, KEYS), gl.float32, scored)
    keys = k_shared.index(slot).permute((1, 0))
    scores = warpgroup_mma(queries, keys, scores, use_acc=False, is_async=True)
    result = warpgroup_mma(operand, v_shared.index(slot), result, is_async=True)
    scores = warpgroup_mma_wait(1, deps=(scores,))
    weights, peak, total, fade = softmax(
        scores, peak, total, power, final - step * KEYS, seen, MASKED, scored
    )
    total = gl.inline_asm_elementwise(PINNED, "=f,f", [total], dtype=gl.float32, is_pure=False, pack=1)
    result, total = warpgroup_mma_wait(0, deps=(result, total))
    gl.thread_barrier()
    mbarrier.arrive(emptied.index(slot), count=1)
    result = result * gl.convert_layout(fade, gl.SliceLayout(1, summed))[:, None]
    operand = gl.convert_layout(weights.to(operand.dtype), gl.DotOperandLayout(0, summed, 2))
    return operand, peak, total, result


@gluon.jit
def consume(
    queries,
    ring,
    to,
    kv_head,
    rows,
    past,
    bounds,
    final,
    count,
    part,
    scale,
    heads: gl.constexpr,
    group: gl.constexpr,
    PARTS: gl.constexpr,
    KEYS: gl.constexpr,
    WIDTH: gl.constexpr,
    STAGES: gl.constexpr,
    MINE: gl.constexpr,
):
    """64 rows of a tile. rows: the lane's first and last, and the tile's first pair of a row and a head;
    bounds: the span of tokens, and how many the tile's first and last row see."""
    k_shared, v_shared, filled, emptied = ring
    out, part_results, part_peaks, part_totals = to
    begin, end, offset = rows
    first, last, least, most = bounds
    scored: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    summed: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    kind: gl.constexpr = queries.dtype
    power = scale * LOG2_E
    peak = gl.full((64,), FLOOR, gl.float32, gl.SliceLayout(1, scored))
    total = gl.zeros((64,), gl.float32, gl.SliceLayout(1, scored))
    result = gl.zeros((64, WIDTH), gl.float32, summed)
    row = begin + (offset + MINE * 64 + gl.arange(0, 64, gl.SliceLayout(1, scored))) // group
    seen = gl.minimum(past + row, most)
    full = (gl.minimum(least, last) - first) // KEYS  # tiles that need no mask: the last steps
    edge = gl.minimum(gl.maximum(count - full, 1), count)
    mbarrier.wait(filled.index(0), 0)
    fence_async_shared()
    scores = gl.zeros((64, KEYS), gl.float32, scored)
    keys = k_shared.index(0).permute((1, 0))
    scores = warpgroup_mma(queries, keys, scores, use_acc=False, is_async=True)
    scores = warpgroup_mma_wait(0, deps=(scores,))
    weights, peak, total, _ = softmax(scores, peak, total, power, final, seen, True, scored)
    gl.thread_barrier()
    mbarrier.arrive(emptied.index(0), count=1)
    operand = gl.convert_layout(weights.to(kind), gl.DotOperandLayout(0, summed, 2))
    for step in range(1, edge):
        operand, peak, total, result = advance(
            queries,
            ring,
            operand,
            peak,
            total,
            result,
            step,
            final,
            power,
            seen,
            KEYS,
            WIDTH,
            STAGES,
            True,
        )
    for step in range(edge, count):
        operand, peak, total, result = advance(
            queries,
            ring,
            operand,
            peak,
            total,
            result,
            step,
            final,
            power,
            seen,
            KEYS,
            WIDTH,
            STAGES,
            False,
        )
    mbarrier.wait(filled.index(count % STAGES), (count // STAGES) & 1)
    fence_async_shared()
    result = warpgroup_mma(operand, v_shared.index(count % STAGES), result)
    place = offset + MINE * 64 + gl.arange(0, 64, gl.SliceLayout(1, summed))
    row = begin + place // group
    used = row < end
    live = gl.expand_dims(used, 1)
    column = gl.arange(0, WIDTH, gl.SliceLayout(0, summed))
    target = row.to(gl.int64) * heads + kv_head * group + place % group
    total = gl.convert_layout(total, gl.SliceLayout(1, summed))
    if PARTS == 1:
        result = result * (1.0 / gl.where(total == 0.0, 1.0, total))[:, None]
        gl.store(out + ((target * WIDTH)[:, None] + column[None, :]), result.to(kind), mask=live)
    else:
        target = target * PARTS + part
        gl.store(part_peaks + target, gl.convert_layout(peak, gl.SliceLayout(1, summed)) * scale, mask=used)
        gl.store(part_totals + target, total, mask=used)
        gl.store(part_results + ((target * WIDTH)[:, None] + column[None, :]), result, mask=live)


@gluon.jit
def attend_tiles_hopper(
    q,
    k_pages,
    v_pages,
    table,
    starts,
    contexts,
    out,
    part_results,
    part_peaks,
    part_totals,
    rows,
    lanes,
    q_row,
    q_head,
    k_page,
    v_page,
    kv_stride,
    table_row,
    scale,
    heads: gl.constexpr,
    group: gl.constexpr,
    PAGE: gl.constexpr,
    PARTS: gl.constexpr,
    LEAST: gl.constexpr,
    KEYS: gl.constexpr,
    WIDTH: gl.constexpr,
    LANES: gl.constexpr,
    STAGES: gl.constexpr,
    REGS: gl.constexpr,
):
    """As `attend_tiles`, with tiles of 128 rows; heads of WIDTH, pages of a power of two."""
    lay: gl.constexpr = gl.BlockedLayout([1, 8], [256 // WIDTH, WIDTH // 8], [4, 1], [1, 0])
    shared: gl.constexpr = gl.NVMMASharedLayout(128, 16, rank=2)
    kind: gl.constexpr = q.dtype.element_ty
    # Late tiles see most keys: they start first.
    kv_head, part = gl.program_id(0), gl.program_id(2)
    tile = gl.num_programs(1) - 1 - gl.program_id(1)
    index = gl.arange(0, LANES, gl.BlockedLayout([1], [32], [4], [0]))
    begins = gl.load(starts + index, mask=index <= lanes, other=0)
    ends = gl.load(starts + index + 1, mask=index < lanes, other=rows)
    tiles = gl.associative_scan(gl.where(index <= lanes, ((ends - begins) * group + 127) // 128, 0), 0, add)
    lane = gl.sum((tiles <= tile).to(gl.int32), 0)
    offset = (tile - gl.max(gl.where(index < lane, tiles, 0), 0)) * 128
    begin = gl.sum(gl.where(index == lane, begins, 0), 0)
    end = gl.sum(gl.where(index == lane, ends, 0), 0)
    context = gl.load(contexts + lane, mask=lane < lanes, other=0)
    past = context - end + 1
    least = past + begin + offset // group
    most = past + gl.minimum(begin + (offset + 127) // group, end - 1)
    length = most
    if PARTS > 1:
        length = gl.maximum(((context + PARTS - 1) // PARTS + KEYS - 1) // KEYS * KEYS, LEAST)
    first = part * length
    last = gl.minimum(first + length, most)
    place = offset + gl.arange(0, 128, gl.SliceLayout(1, lay))
    row = begin + place // group
    head = kv_head * group + place % group
    column = gl.arange(0, WIDTH, gl.SliceLayout(0, lay))
    used = (row < end) & (lane <= lanes)
    live = gl.expand_dims(used, 1)
    if (context > 0) & (first < last):
        at = q + ((row.to(gl.int64) * q_row + head * q_head)[:, None] + column[None, :])
        queries = gl.allocate_shared_memory(kind, [128, WIDTH], shared, gl.load(at, mask=live, other=0.0))
        ring = (
            gl.allocate_shared_memory(kind, [STAGES, KEYS, WIDTH], shared),
            gl.allocate_shared_memory(kind, [STAGES, KEYS, WIDTH], shared),
            gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout()),
            gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout()),
        )
        for slot in gl.static_range(STAGES):
            mbarrier.init(ring[2].index(slot), count=128)
            mbarrier.init(ring[3].index(slot), count=2)
        fence_async_shared()
        gl.thread_barrier()
        count = (last - first + KEYS - 1) // KEYS
        final = first + (count - 1) * KEYS
        to = (out, part_results, part_peaks, part_totals)
        of_lane = (begin, end, offset)
        bounds = (first, last, least, most)
        its = table + lane.to(gl.int64) * table_row
        gl.warp_specialize(
            [
                (
                    consume,
                    (
                        queries.slice(0, 64),
                        ring,
                        to,
                        kv_head,
                        of_lane,
                        past,
                        bounds,
                        final,
                        count,
                        part,
                        scale,
                        heads,
                        group,
                        PARTS,
                        KEYS,
                        WIDTH,
                        STAGES,
                        0,
                    ),
                ),
                (
                    consume,
                    (
                        queries.slice(64, 64),
                        ring,
                        to,
                        kv_head,
                        of_lane,
                        past,
                        bounds,
                        final,
                        count,
                        part,
                        scale,
                        heads,
                        group,
                        PARTS,
                        KEYS,
                        WIDTH,
                        STAGES,
                        1,
                    ),
                ),
                (
                    produce,
                    (
                        ring,
                        k_pages + kv_head * WIDTH,
                        v_pages + kv_head * WIDTH,
                        (k_page, kv_stride),
                        (v_page, kv_stride),
                        its,
                        (first, last),
                        final,
                        count,
                        KEYS,
                        PAGE,
                        WIDTH,
                        STAGES,
                    ),
                ),
            ],
            [4, 4],
            [REGS, 504 - 2 * REGS],
        )
    else:
        target = row.to(gl.int64) * heads + head
        if PARTS == 1:
            blank = gl.zeros((128, WIDTH), kind, lay)
            gl.store(out + ((target * WIDTH)[:, None] + column[None, :]), blank, mask=live)
        else:
            gl.store(
                part_totals + target * PARTS + part,
                gl.zeros((128,), gl.float32, gl.SliceLayout(1, lay)),
                mask=used,
            )


def takes(q: Tensor, pages: tuple[Tensor, Tensor], lane_rows: int) -> bool:
    """Whether `attend_tiles_hopper` runs these queries, of lanes with `lane_rows` pairs of a row and a head,
    on these pages: they are copied 16 bytes at a time."""
    page_tokens = pages[0].shape[1]
    return (
        is_hopper(q)
        and q.dtype in (torch.bfloat16, torch.float16)
        and q.shape[2] in (64, 128)
        and page_tokens & (page_tokens - 1) == 0
        and all(x.stride(0) % 16 == 0 and x.data_ptr() % 16 == 0 for x in pages)
        and lane_rows >= ROWS
    )


def is_hopper(tensor: Tensor) -> bool:
    """Whether the tensor's device has the warp-group products of compute capability 9.0."""
    return tensor.is_cuda and torch.cuda.get_device_capability(tensor.device) == (9, 0)
