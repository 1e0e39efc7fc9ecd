"""Prefill attention: tiles of one lane's queries against its pages.

A tile holds ROWS consecutive pairs of a query and one of the heads that share a key head, query by query: no
row is padding but at a lane's end, and keys are read once for all heads of a group. Tokens that every row of
a tile sees run unmasked; the few at the diagonal are masked. With few tiles a context is cut into parts as
well, which `join_parts` joins.

Scores, their maxima and sums are FP32; powers are of two, the scale folded into the exponent.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from flare_components.ops.cuda import attention_hopper
from flare_components.ops.cuda.attention_parts import join_parts
from flare_components.ops.cuda.launch import cdiv, power_of_two, processors, roomy

_MOST_PARTS = 64
# Tokens of a part at least, for each 64 rows: a multiple of every tile of keys. The more rows, the more the
# results of a part cost to write and to join.
_LEAST = 128
FLOOR = tl.constexpr(-1.0e30)  # below every score: a row that has seen nothing has no infinite maximum


@triton.jit
def find_tile(
    starts, contexts, tile, rows, lanes, group: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr
):
    """Tile number `tile` of all lanes' tiles; the rows behind the last lane are a lane without context.
    Returns lane, first and last row, context, and the tile's number in its lane; lane > lanes: no tile."""
    index = tl.arange(0, LANES)
    begins = tl.load(starts + index, mask=index <= lanes, other=0)
    ends = tl.load(starts + index + 1, mask=index < lanes, other=rows)
    tiles = tl.cumsum(tl.where(index <= lanes, tl.cdiv((ends - begins) * group, ROWS), 0), 0)
    lane = tl.sum((tiles <= tile).to(tl.int32), 0)
    before = tl.max(tl.where(index < lane, tiles, 0), 0)
    here = index == lane
    begin, end = tl.sum(tl.where(here, begins, 0), 0), tl.sum(tl.where(here, ends, 0), 0)
    context = tl.load(contexts + lane, mask=lane < lanes, other=0)
    return lane, begin, end, context, tile - before


@triton.jit
def attend_span(
    q,
    seen,
    peak,
    total,
    result,
    first,
    last,
    k_pages,
    v_pages,
    table,
    k_page,
    v_page,
    kv_stride,
    scale,
    width: tl.constexpr,
    PAGE: tl.constexpr,
    KEYS: tl.constexpr,
    WIDTH: tl.constexpr,
    MASKED: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Online softmax of q [ROWS, WIDTH] over tokens first to last, a whole number of KEYS unless MASKED; row
    r sees tokens below seen[r]. `scale` is for powers of two."""
    column = tl.arange(0, WIDTH)
    place = tl.arange(0, KEYS)
    for start in tl.range(first, last, KEYS, num_stages=STAGES):
        token = start + place
        if PAGE % KEYS == 0:
            page = tl.load(table + start // PAGE).to(tl.int64)
            k_at = k_pages + page * k_page + (start % PAGE) * kv_stride + (place * kv_stride)[None, :]
            v_at = v_pages + page * v_page + (start % PAGE) * kv_stride + (place * kv_stride)[:, None]
        else:
            if MASKED:
                pages = tl.load(table + token // PAGE, mask=token < last, other=0).to(tl.int64)
            else:
                pages = tl.load(table + token // PAGE).to(tl.int64)
            inside = (token % PAGE) * kv_stride
            k_at = k_pages + (pages * k_page + inside)[None, :]
            v_at = v_pages + (pages * v_page + inside)[:, None]
        k_at += column[:, None]
        v_at += column[None, :]
        if MASKED:
            live = token < last
            keys = tl.load(k_at, mask=live[None, :] & (column < width)[:, None], other=0.0)
            values = tl.load(v_at, mask=live[:, None] & (column < width)[None, :], other=0.0)
        elif width != WIDTH:
            keys = tl.load(k_at, mask=(column < width)[:, None], other=0.0)
            values = tl.load(v_at, mask=(column < width)[None, :], other=0.0)
        else:
            keys = tl.load(k_at)
            values = tl.load(v_at)
        scores = tl.dot(q, keys, input_precision="ieee")
        if MASKED:
            scores = tl.where(token[None, :] < seen[:, None], scores, float("-inf"))
        above = tl.maximum(peak, tl.max(scores, 1))
        weights = tl.exp2(scores * scale - (above * scale)[:, None])
        fade = tl.exp2((peak - above) * scale)
        total = total * fade + tl.sum(weights, 1)
        result = result * fade[:, None]
        result = tl.dot(weights.to(values.dtype), values, result, input_precision="ieee")
        peak = above
    return peak, total, result


@triton.jit
def attend_tiles(
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
    heads: tl.constexpr,
    group: tl.constexpr,
    width: tl.constexpr,
    PAGE: tl.constexpr,
    PARTS: tl.constexpr,
    LEAST: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    WIDTH: tl.constexpr,
    LANES: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Program (key head, tile, part). With PARTS 1 it writes out, zeros for lanes without context; else its
    part's result, maximum and sum."""
    # Late tiles see most keys: they start first.
    kv_head, tile, part = tl.program_id(0), tl.num_programs(1) - 1 - tl.program_id(1), tl.program_id(2)
    lane, begin, end, context, number = find_tile(starts, contexts, tile, rows, lanes, group, ROWS, LANES)
    if lane <= lanes:
        place = number * ROWS + tl.arange(0, ROWS)
        row, head = begin + place // group, kv_head * group + place % group
        column = tl.arange(0, WIDTH)
        used = row < end
        live = used[:, None] & (column < width)[None, :]
        to = row.to(tl.int64) * heads + head
        peak = tl.full((ROWS,), FLOOR, tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        result = tl.zeros((ROWS, WIDTH), tl.float32)
        past = context - end + 1
        least = past + begin + number * ROWS // group
        most = past + tl.minimum(begin + (number * ROWS + ROWS - 1) // group, end - 1)
        seen = tl.minimum(past + row, most)
        if PARTS == 1:
            first = 0
            last = most
        else:
            length = tl.maximum(tl.cdiv(tl.cdiv(context, PARTS), KEYS) * KEYS, LEAST)
            first = part * length
            last = tl.minimum(first + length, most)
        sees = (context > 0) & (first < last)
        if sees:
            at = q + (row.to(tl.int64) * q_row + head * q_head)[:, None] + column[None, :]
            queries = tl.load(at, mask=live, other=0.0)
            inner = tl.maximum(tl.minimum(least // KEYS * KEYS, last // KEYS * KEYS), first)
            k_head, v_head = k_pages + kv_head * width, v_pages + kv_head * width
            its = table + lane.to(tl.int64) * table_row
            power = scale * 1.4426950408889634
            peak, total, result = attend_span(
                queries,
                seen,
                peak,
                total,
                result,
                first,
                inner,
                k_head,
                v_head,
                its,
                k_page,
                v_page,
                kv_stride,
                power,
                width,
                PAGE,
                KEYS,
                WIDTH,
                False,
                STAGES,
            )
            peak, total, result = attend_span(
                queries,
                seen,
                peak,
                total,
                result,
                inner,
                last,
                k_head,
                v_head,
                its,
                k_page,
                v_page,
                kv_stride,
                power,
                width,
                PAGE,
                KEYS,
                WIDTH,
                True,
                1,
            )
        if PARTS == 1:
            result = result * (1.0 / tl.where(total == 0.0, 1.0, total))[:, None]
            tl.store(
                out + (to * width)[:, None] + column[None, :], result.to(out.dtype.element_ty), mask=live
            )
        else:
            at = to * PARTS + part
            tl.store(part_peaks + at, peak * scale, mask=used)
            tl.store(part_totals + at, total, mask=used)
            # A part that saw nothing has total 0: its result is not read.
            if sees:
                tl.store(part_results + (at * width)[:, None] + column[None, :], result, mask=live)


def tile_shape(rows: int, width: int, precise: bool, room: bool) -> tuple[int, int, int, int]:
    """Rows and keys of a tile, warps and stages; `rows` of a lane, heads of `width`, precise: float32."""
    if precise:
        most, *rest = (32, 32, 4, 2) if width <= 128 else (32, 16, 4, 1)
    elif width <= 128:
        most, *rest = (64, 64, 4, 3 if room else 2)
    else:
        most, *rest = (64, 32, 8, 2) if room else (32, 32, 4, 2)
    return max(min(most, power_of_two(rows)), 16), *rest


def part_count(programs: int, slots: int, most: int) -> int:
    """Parts of a context, at most `most`: as many as let all programs run at once, `slots` of them."""
    return max(min(slots // programs, most, _MOST_PARTS), 1)


def attend_many(operands: tuple[Tensor, ...], scale: float) -> Tensor:
    """More rows than lanes; operands as those of `paged_attention`, with a last stride of 1."""
    q, k_pages, v_pages, page_table, _, context_lens = operands
    rows, heads, width = q.shape
    page_tokens, kv_heads, lanes = k_pages.shape[1], k_pages.shape[2], context_lens.shape[0]
    group, block = heads // kv_heads, max(power_of_two(width), 16)
    lane_rows = cdiv(rows, lanes) * group
    hopper = attention_hopper.takes(q, (k_pages, v_pages), lane_rows)
    tile, keys, warps, stages = tile_shape(lane_rows, block, q.element_size() == 4, roomy(q))
    tile = attention_hopper.ROWS if hopper else tile
    tiles = cdiv(rows * group, tile)
    least = _LEAST * cdiv(rows * group, 64)
    slots = processors(q) * (1 if hopper else 2)
    count = part_count(tiles * kv_heads, slots, cdiv(page_table.shape[1] * page_tokens, least))
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    results, peaks, totals = (
        q.new_empty((rows, heads, count, *tail) if count > 1 else 1, dtype=torch.float32)
        for tail in ((width,), (), ())
    )
    arguments = (
        *operands,
        out,
        results,
        peaks,
        totals,
        rows,
        lanes,
        q.stride(0),
        q.stride(1),
        k_pages.stride(0),
        v_pages.stride(0),
        kv_heads * width,
        page_table.stride(0),
        scale,
    )
    constants = {
        "heads": heads,
        "group": group,
        "PAGE": page_tokens,
        "PARTS": count,
        "LEAST": least,
        "WIDTH": block,
        "LANES": power_of_two(lanes + 1),
    }
    grid = (kv_heads, tiles + lanes, count)
    if hopper:
        attention_hopper.attend_tiles_hopper[grid](*arguments, **constants, **attention_hopper.OPTIONS)
    else:
        attend_tiles[grid](
            *arguments,
            **constants,
            width=width,
            ROWS=tile,
            KEYS=keys,
            STAGES=stages,
            num_warps=warps,
            num_stages=stages,
        )
    if count > 1:
        join_parts[(rows * heads,)](
            results,
            peaks,
            totals,
            out,
            width,
            PARTS=count,
            SLOTS=power_of_two(count),
            WIDTH=power_of_two(width),
            OVERLAP=False,
            num_warps=4,
        )
    return out
