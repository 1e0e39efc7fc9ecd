"""`flare::paged_attention`: rows alone with split keys for decoding, tiles of rows for prefill.

Shapes choose: a program with no more rows than lanes runs every row alone, its context cut into parts that
run side by side and are joined by a second kernel. More rows run as tiles of one lane's queries, with the
query heads of a key head side by side in the tile, so that they read their keys once. Both take any mix of
lanes: a row finds its lane among `query_start` on the device.

Scores, their maxima and sums are FP32. What lies past a lane's context is never read. A part's length
depends on the lane's context alone, so a row's bits do not depend on its company.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from flare_components.ops.cuda.attention_tiles import attend_many
from flare_components.ops.cuda.launch import cdiv, power_of_two, processors, roomy
from flare_components.ops.schema import accelerate

_MOST_PARTS = 64


@triton.jit
def attend_tokens(
    q,
    seen,
    first,
    last,
    k_pages,
    v_pages,
    table,
    k_page,
    v_page,
    kv_stride,
    column,
    width,
    scale,
    PAGE: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Online softmax of q [ROWS, WIDTH] over tokens first to last; row r sees tokens below seen[r]. Returns
    maxima, sums and unnormalised results. The pages' pointers are at the key head."""
    peak = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    result = tl.zeros((ROWS, WIDTH), tl.float32)
    wide = column < width
    for start in range(first, last, KEYS):
        token = start + tl.arange(0, KEYS)
        live = token < last
        page = tl.load(table + token // PAGE, mask=live, other=0).to(tl.int64)
        inside = (token % PAGE) * kv_stride
        at_k = k_pages + (page * k_page + inside)[None, :] + column[:, None]
        keys = tl.load(at_k, mask=live[None, :] & wide[:, None], other=0.0)
        scores = tl.dot(q, keys, input_precision="ieee") * scale
        scores = tl.where(token[None, :] < seen[:, None], scores, float("-inf"))
        above = tl.maximum(peak, tl.max(scores, 1))
        safe = tl.where(above == float("-inf"), 0.0, above)
        weights = tl.exp(scores - safe[:, None])
        fade = tl.exp(peak - safe)
        at_v = v_pages + (page * v_page + inside)[:, None] + column[None, :]
        values = tl.load(at_v, mask=live[:, None] & wide[None, :], other=0.0)
        result = result * fade[:, None]
        result = tl.dot(weights.to(values.dtype), values, result, input_precision="ieee")
        total = total * fade + tl.sum(weights, 1)
        peak = above
    return peak, total, result


@triton.jit
def attend_rows(
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
    lanes,
    heads,
    group,
    width,
    q_row,
    q_head,
    k_page,
    v_page,
    kv_stride,
    table_row,
    scale,
    PAGE: tl.constexpr,
    PARTS: tl.constexpr,
    GROUP: tl.constexpr,
    KEYS: tl.constexpr,
    WIDTH: tl.constexpr,
    LANES: tl.constexpr,
):
    """Program (row, key head, part). With PARTS 1 it writes out, else its part's result, maximum and sum."""
    row, kv_head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    index = tl.arange(0, LANES)
    ends = tl.load(starts + index + 1, mask=index < lanes, other=2147483647)
    lane = tl.sum((ends <= row).to(tl.int32), 0)
    context = tl.load(contexts + lane, mask=lane < lanes, other=0)
    end = tl.load(starts + lane + 1, mask=lane < lanes, other=0)
    visible = tl.where(context > 0, context - end + row + 1, 0)
    length = tl.cdiv(tl.cdiv(visible, PARTS), KEYS) * KEYS
    first = part * length
    last = tl.minimum(first + length, visible)
    head, column = tl.arange(0, GROUP), tl.arange(0, WIDTH)
    live = (head < group)[:, None] & (column < width)[None, :]
    at = q + row.to(tl.int64) * q_row + (kv_head * group + head)[:, None] * q_head + column[None, :]
    queries = tl.load(at, mask=live & (visible > 0), other=0.0)
    peak, total, result = attend_tokens(
        queries,
        tl.zeros((GROUP,), tl.int32) + visible,
        first,
        last,
        k_pages + kv_head * width,
        v_pages + kv_head * width,
        table + lane.to(tl.int64) * table_row,
        k_page,
        v_page,
        kv_stride,
        column,
        width,
        scale,
        PAGE,
        GROUP,
        KEYS,
        WIDTH,
    )
    place = row.to(tl.int64) * heads + kv_head * group + head
    if PARTS == 1:
        result = result / tl.where(total == 0.0, 1.0, total)[:, None]
        tl.store(out + place[:, None] * width + column[None, :], result.to(out.dtype.element_ty), mask=live)
    else:
        tl.store(part_peaks + place * PARTS + part, peak, mask=head < group)
        tl.store(part_totals + place * PARTS + part, total, mask=head < group)
        # An empty part has total 0: its result is not read.
        if first < last:
            tl.store(
                part_results + (place * PARTS + part)[:, None] * width + column[None, :], result, mask=live
            )


@triton.jit
def join_parts(
    part_results,
    part_peaks,
    part_totals,
    out,
    width,
    PARTS: tl.constexpr,
    SLOTS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """One program a row and head: out [N * H, width]; zero where no part saw a token."""
    place = tl.program_id(0).to(tl.int64)
    part, column = tl.arange(0, SLOTS), tl.arange(0, WIDTH)
    totals = tl.load(part_totals + place * PARTS + part, mask=part < PARTS, other=0.0)
    used = totals > 0.0
    peaks = tl.load(part_peaks + place * PARTS + part, mask=used, other=float("-inf"))
    top = tl.max(peaks, 0)
    share = tl.where(used, tl.exp(peaks - tl.where(top == float("-inf"), 0.0, top)), 0.0)
    total = tl.sum(share * totals, 0)
    at = part_results + (place * PARTS + part)[:, None] * width + column[None, :]
    results = tl.load(at, mask=used[:, None] & (column < width)[None, :], other=0.0)
    result = tl.sum(results * share[:, None], 0) / tl.where(total == 0.0, 1.0, total)
    tl.store(out + place * width + column, result.to(out.dtype.element_ty), mask=column < width)


def parts(rows: int, kv_heads: int, capacity: int, keys: int, multiprocessors: int) -> int:
    """How many parts a row's context is cut into: enough for two programs a multiprocessor."""
    wanted = cdiv(2 * multiprocessors, max(rows * kv_heads, 1))
    return max(min(wanted, cdiv(capacity, keys), _MOST_PARTS), 1)


def paged_attention(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    scale: float,
) -> Tensor:
    """As the operator's CPU kernel; the inner three dimensions of the pages are contiguous."""
    assert all(pages[0].is_contiguous() for pages in (k_pages, v_pages)), "a page is contiguous"
    q = q if q.stride(2) == 1 else q.contiguous()
    page_table = page_table if page_table.stride(1) == 1 else page_table.contiguous()
    rows, heads, width = q.shape
    page_tokens, kv_heads, lanes = k_pages.shape[1], k_pages.shape[2], context_lens.shape[0]
    group = heads // kv_heads
    operands = (q, k_pages, v_pages, page_table, query_start, context_lens)
    sizes = (
        lanes,
        heads,
        group,
        width,
        q.stride(0),
        q.stride(1),
        k_pages.stride(0),
        v_pages.stride(0),
        kv_heads * width,
        page_table.stride(0),
        scale,
    )
    block, lane_block = max(power_of_two(width), 16), power_of_two(lanes)
    precise = q.element_size() == 4
    if rows > lanes:
        return attend_many(operands, scale)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if not rows:
        return out
    keys = 32 if precise or block > 128 else 64
    count = parts(rows, kv_heads, page_table.shape[1] * page_tokens, keys, processors(q))
    results, peaks, totals = (
        q.new_empty((rows, heads, count, *tail) if count > 1 else 1, dtype=torch.float32)
        for tail in ((width,), (), ())
    )
    attend_rows[(rows, kv_heads, count)](
        *operands,
        out,
        results,
        peaks,
        totals,
        *sizes,
        PAGE=page_tokens,
        PARTS=count,
        GROUP=max(power_of_two(group), 16),
        KEYS=keys,
        WIDTH=block,
        LANES=lane_block,
        num_warps=4,
        num_stages=(2 if block <= 128 else 1) if precise else 3 if roomy(q) else 2,
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
            WIDTH=block,
            num_warps=4,
        )
    return out


accelerate("paged_attention", paged_attention)
