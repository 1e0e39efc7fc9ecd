"""`flare::paged_attention`: causal attention of ragged lanes over their pages.

Pages are gathered into contiguous keys and values, then torch's CPU flash kernel runs with FP32 scores.
Decode lanes run together with the queries of a key head as rows of one product, so that grouped heads read
their keys once. Prefill lanes run in blocks of queries, each over just the keys it can see.

In BF16 the result of a decode lane has the same bits whatever the other lanes are: keys past its context
are blanked (a foreign or stale NaN would survive a mask) and masked, which adds exact zeros. In FP32 the
order of sums in MKL's products depends on addresses, so results agree to rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.attention_plan import (
    QUERY_BLOCK,
    DecodeGroup,
    PrefillLane,
    attention_plan,
    causal_mask,
)
from flare_components.ops.schema import define

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


def paged_attention(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    scale: float,
) -> Tensor:
    """Attention of N query rows over the pages of their lanes.

    q [N, H, D]; k_pages and v_pages [P, T, KVH, D], strided in P; page_table i32[L, MP]; query_start
    i32[L + 1]: lane l owns rows query_start[l] to query_start[l + 1]; context_lens i32[L]: tokens of the lane
    including these queries, whose keys were written before; 0 for an inactive lane. Query j of n sees
    `context - n + j + 1` tokens. H is a multiple of KVH. Returns [N, H, D]; rows of no active lane are zero.
    """
    starts, contexts = tuple(query_start.tolist()), tuple(context_lens.tolist())
    plan = attention_plan(q.shape[0], starts, contexts, k_pages.shape[1], page_table.shape[1])
    table = page_table.reshape(-1)
    if len(plan.decode) == 1 and plan.decode[0].rows is None:
        return _decode(q, k_pages, v_pages, table, plan.decode[0], scale)
    out = q.new_empty(q.shape) if plan.complete else q.new_zeros(q.shape)
    for group in plan.decode:
        assert group.rows is not None
        attended = _decode(q.index_select(0, group.rows), k_pages, v_pages, table, group, scale)
        out.index_copy_(0, group.rows, attended)
    for lane in plan.prefill:
        _prefill(q, k_pages, v_pages, table, lane, scale, out)
    return out


def _decode(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, table: Tensor, group: DecodeGroup, scale: float
) -> Tensor:
    """q [G, H, D] -> [G, H, D]."""
    lanes, heads, width = q.shape
    kv_heads = k_pages.shape[2]
    pages = table.index_select(0, group.entries)
    keys, values = k_pages.index_select(0, pages), v_pages.index_select(0, pages)
    if group.blank is not None:
        keys.view(-1, kv_heads, width).index_fill_(0, group.blank, 0)
        values.view(-1, kv_heads, width).index_fill_(0, group.blank, 0)
    attended = _flash(
        q.view(lanes, kv_heads, heads // kv_heads, width),
        keys.view(lanes, -1, kv_heads, width)[:, : group.width].transpose(1, 2),
        values.view(lanes, -1, kv_heads, width)[:, : group.width].transpose(1, 2),
        attn_mask=group.mask,
        scale=scale,
    )[0]
    return attended.reshape(lanes, heads, width)


def _prefill(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, table: Tensor, lane: PrefillLane, scale: float, out: Tensor
) -> None:
    """Write rows `lane.start:lane.stop` of out [N, H, D]."""
    rows, (heads, width), kv_heads = lane.stop - lane.start, q.shape[1:], k_pages.shape[2]
    grouped = (kv_heads, heads // kv_heads, width)
    pages = table.index_select(0, lane.entries)
    # [KVH, H / KVH, tokens, D]: the key head is the batch, and its query heads share it by a zero stride.
    keys, values = (
        kv_pages.index_select(0, pages).view(-1, kv_heads, 1, width).expand(-1, *grouped).permute(1, 2, 0, 3)
        for kv_pages in (k_pages, v_pages)
    )
    queries = q[lane.start : lane.stop].unflatten(1, grouped[:2]).permute(1, 2, 0, 3)
    target = out[lane.start : lane.stop].view(rows, *grouped).permute(1, 2, 0, 3)
    causal_attention(queries, keys, values, lane.context - rows, scale, target)


def causal_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    past: int,
    scale: float,
    target: Tensor,
    block: int = QUERY_BLOCK,
) -> None:
    """Attention of a chunk in blocks of queries, each over just the keys it can see.

    queries [B, H, n, D]; keys and values [B, H, tokens, D]: `past` tokens, then those of the queries; written
    to target [B, H, n, W], W <= D: the first elements of the result.
    """
    rows, width = queries.shape[2], target.shape[3]
    for first in range(0, rows, block):
        last = min(first + block, rows)
        seen = past + last
        attended = _flash(
            queries[:, :, first:last],
            keys[:, :, :seen],
            values[:, :, :seen],
            attn_mask=causal_mask(past + first, last - first, block),
            scale=scale,
        )[0]
        target[:, :, first:last].copy_(attended[..., :width])


def _fake(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    scale: float,
) -> Tensor:
    torch._check(q.dim() == 3 and k_pages.dim() == 4, lambda: "q is [N, H, D], pages are [P, T, KVH, D]")
    torch._check(k_pages.shape == v_pages.shape, lambda: "key and value pages differ in shape")
    torch._check(q.shape[2] == k_pages.shape[3], lambda: "q and pages differ in head width")
    torch._check(q.shape[1] % k_pages.shape[2] == 0, lambda: "key heads do not divide query heads")
    torch._check(q.dtype == k_pages.dtype == v_pages.dtype, lambda: "q and pages differ in type")
    torch._check(query_start.shape[0] == page_table.shape[0] + 1, lambda: "query_start is [L + 1]")
    torch._check(context_lens.shape[0] == page_table.shape[0], lambda: "context_lens is [L]")
    return q.new_empty(q.shape)


define(
    "paged_attention(Tensor q, Tensor k_pages, Tensor v_pages, Tensor page_table, Tensor query_start, "
    "Tensor context_lens, float scale) -> Tensor",
    cpu=paged_attention,
    fake=_fake,
)
