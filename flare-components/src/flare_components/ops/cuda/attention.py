"""Attention for decoding: every row alone, its context cut into parts that run side by side and are joined
by the last of them, or by a second kernel. It takes any mix of lanes: a row finds its lane among
`query_start` on the device.

Scores, their maxima and sums are FP32. What lies past a lane's context is never read. A part's length
depends on the lane's context alone, so a row's bits do not depend on its company.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from flare_components.ops.cuda.attention_parts import join, join_parts
from flare_components.ops.cuda.launch import (
    await_inputs,
    cdiv,
    overlap,
    power_of_two,
    processors,
    roomy,
)

Operands = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
"""q, k_pages, v_pages, page_table, query_start and context_lens of `paged_attention`."""

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
def row_of_lane(starts, contexts, row, lanes, LANES: tl.constexpr):
    """The lane of a row, and how many tokens the row sees: none of a lane without a context."""
    index = tl.arange(0, LANES)
    ends = tl.load(starts + index + 1, mask=index < lanes, other=2147483647)
    lane = tl.sum((ends <= row).to(tl.int32), 0)
    context = tl.load(contexts + lane, mask=lane < lanes, other=0)
    end = tl.load(starts + lane + 1, mask=lane < lanes, other=0)
    visible = tl.where(context > 0, context - end + row + 1, 0)
    return lane, visible


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
    arrivals,
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
    SLOTS: tl.constexpr,
    GROUP: tl.constexpr,
    KEYS: tl.constexpr,
    WIDTH: tl.constexpr,
    LANES: tl.constexpr,
    MEMBERS: tl.constexpr,
    JOIN: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Program (row, key head, part). With one part it writes out, else its part's result, maximum and sum;
    with JOIN the last part of a row and key head, counted in arrivals [rows * key heads], joins them and sets
    the count back."""
    await_inputs(OVERLAP)
    row, kv_head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    lane, visible = row_of_lane(starts, contexts, row, lanes, LANES)
    length = tl.cdiv(tl.cdiv(visible, PARTS), KEYS) * KEYS
    used = tl.cdiv(visible, tl.maximum(length, 1))  # the others are empty
    if not JOIN or part < tl.maximum(used, 1):
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
        if JOIN:
            alone = used <= 1
        else:
            alone = PARTS == 1
        if alone:
            result = result / tl.where(total == 0.0, 1.0, total)[:, None]
            to = out + place[:, None] * width + column[None, :]
            tl.store(to, result.to(out.dtype.element_ty), mask=live)
        else:
            tl.store(part_peaks + place * PARTS + part, peak, mask=head < group)
            tl.store(part_totals + place * PARTS + part, total, mask=head < group)
            # An empty part has total 0: its result is not read.
            if first < last:
                kept = part_results + (place * PARTS + part)[:, None] * width + column[None, :]
                tl.store(kept, result, mask=live)
            if JOIN:
                # The barrier orders the whole program's stores before the count of its one thread.
                tl.debug_barrier()
                if tl.atomic_add(arrivals + row * tl.num_programs(1) + kv_head, 1, sem="acq_rel") == used - 1:
                    first_head = row.to(tl.int64) * heads + kv_head * group
                    join(
                        part_results,
                        part_peaks,
                        part_totals,
                        out,
                        first_head,
                        group,
                        used,
                        width,
                        PARTS,
                        SLOTS,
                        WIDTH,
                        MEMBERS,
                    )
                    tl.store(arrivals + row * tl.num_programs(1) + kv_head, 0)


def parts(rows: int, kv_heads: int, capacity: int, keys: int, multiprocessors: int) -> int:
    """How many parts a row's context is cut into: enough for two programs a multiprocessor."""
    wanted = cdiv(2 * multiprocessors, max(rows * kv_heads, 1))
    return max(min(wanted, cdiv(capacity, keys), _MOST_PARTS), 1)


def attend_few(operands: Operands, scale: float, arrivals: Tensor | None) -> Tensor:
    """Every row alone, no more rows than lanes; operands as those of `paged_attention`; a page is
    contiguous, and so are a head's query and a row of the table.

    arrivals: zeros i32[rows * key heads] to count the parts that are done, so that the last one joins them,
    and zeros again afterwards; None joins them by a second kernel."""
    q, k_pages, v_pages, page_table, _, context_lens = operands
    rows, heads, width = q.shape
    page_tokens, kv_heads = k_pages.shape[1:3]
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if not rows:
        return out
    block, precise = max(power_of_two(width), 16), q.element_size() == 4
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
        context_lens if arrivals is None else arrivals,
        context_lens.shape[0],
        heads,
        heads // kv_heads,
        width,
        q.stride(0),
        q.stride(1),
        k_pages.stride(0),
        v_pages.stride(0),
        kv_heads * width,
        page_table.stride(0),
        scale,
        PAGE=page_tokens,
        PARTS=count,
        SLOTS=power_of_two(count),
        GROUP=max(power_of_two(heads // kv_heads), 16),
        KEYS=keys,
        WIDTH=block,
        LANES=power_of_two(context_lens.shape[0]),
        MEMBERS=power_of_two(heads // kv_heads),
        JOIN=arrivals is not None and count > 1,
        num_warps=4,
        num_stages=(2 if block <= 128 else 1) if precise else 3 if roomy(q) else 2,
        **overlap(q),
    )
    if count > 1 and arrivals is None:
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
            **overlap(q),
        )
    return out
