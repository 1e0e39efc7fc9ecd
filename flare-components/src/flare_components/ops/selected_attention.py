"""`flare::select_groups` and `flare::selected_attention`: attention over the groups that score best.

A row scores the pooled keys of all groups that are complete at its position, attends to the tokens of the
best `count` of them and to those of the group that is still open. While no more than `count` groups are
complete that is ordinary causal attention, and runs as such.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.attention import paged_attention
from flare_components.ops.lanes import Span, attending, check_lanes
from flare_components.ops.schema import define

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default

# Rows whose keys are gathered together (of 2048 tokens more than a few rows only take more memory: 16 took
# 1.7 times as long as 4 with two key heads of 256), rows scored together, and bytes of scores held at once:
# they bound the memory of a long prefill.
_ROW_BLOCK = 4
_SCORE_BLOCK = 64
_SCORE_BYTES = 128 << 20


def select_groups(
    q: Tensor,
    pages: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    group: int,
    count: int,
    weights: Tensor | None = None,
) -> Tensor:
    """Groups of tokens that each row attends to: i32[N, count], ascending, then -1.

    q [N, H, D]; pages [P, G, D], strided in P: pooled keys, G groups a page; page_table i32[L, MP];
    query_start i32[L + 1]; context_lens i32[L]: tokens including these rows, 0 for an inactive lane. A row
    whose last token is number t (from 0) chooses among groups 0 to (t + 1) // group - 1 by the sum over heads
    of `max(q . key, 0)` in FP32, each times the row's weight of the head where there are weights [N, H] (of
    any sign); among equal scores the lower group wins. A positive factor common to all scores would change
    nothing, so there is none. Rows of no active lane have -1 only.
    """
    out = torch.full((q.shape[0], count), -1, dtype=torch.int32)
    for span in _attending(q, query_start, context_lens):
        seen = torch.arange(span.past + 1, span.past + span.count + 1).unsqueeze(1) // group
        groups = (span.past + span.count) // group
        if groups <= count:
            every = torch.arange(count, dtype=torch.int32)
            out[span.start : span.stop] = every.masked_fill(every >= seen, -1)
            continue
        page = page_table[span.lane, : -(-groups // pages.shape[1])]
        keys = pages.index_select(0, page).flatten(0, 1)[:groups].float().t()
        block = max(1, min(_SCORE_BLOCK, _SCORE_BYTES // (4 * q.shape[1] * groups)))
        for start in range(0, span.count, block):
            part = slice(start, min(start + block, span.count))
            rows = slice(span.start + part.start, span.start + part.stop)
            heads = None if weights is None else weights[rows]
            out[rows] = _best(q[rows], keys, heads, seen[part], count)
    return out


def _best(q: Tensor, keys: Tensor, weights: Tensor | None, seen: Tensor, count: int) -> Tensor:
    """q [n, H, D], keys f32[D, groups], weights [n, H], seen i64[n, 1]: groups of a row -> i64[n, count]."""
    groups = keys.shape[1]
    scores = torch.matmul(q.float(), keys).relu_()
    if weights is not None:
        scores.mul_(weights.float().unsqueeze(2))
    scores = scores.sum(1)
    scores.masked_fill_(torch.arange(groups) >= seen, -torch.inf)
    best = torch.sort(scores, dim=1, descending=True, stable=True).indices[:, :count]
    # Groups that a row does not see sort behind all others and are dropped.
    best = best.masked_fill_(best >= seen, groups).sort(1).values
    return best.masked_fill_(best == groups, -1)


def _attending(q: Tensor, query_start: Tensor, context_lens: Tensor) -> tuple[Span, ...]:
    return attending(q.shape[0], query_start, context_lens).all


def selected_attention(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    selected: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    group: int,
    scale: float,
) -> Tensor:
    """Attention of N rows over the tokens of their selected groups and of the open group.

    Operands as of `paged_attention`; selected i32[N, B]: groups as `select_groups` returns them; a page holds
    whole groups of `group` tokens. Returns [N, H, D]; rows of no active lane are zero.
    """
    sparse = context_lens >= (selected.shape[1] + 1) * group
    lanes = k_pages, v_pages, page_table, query_start
    if not bool(sparse.any()):
        return paged_attention(q, *lanes, context_lens, scale)
    out = paged_attention(q, *lanes, context_lens.masked_fill(sparse, 0), scale)
    for span in _attending(q, query_start, context_lens.masked_fill(~sparse, 0)):
        _sparse_rows(q, k_pages, v_pages, selected, page_table, span, group, scale, out)
    return out


def _sparse_rows(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    selected: Tensor,
    page_table: Tensor,
    span: Span,
    group: int,
    scale: float,
    out: Tensor,
) -> None:
    """Write the rows of `span` in out [N, H, D]."""
    page_tokens, kv_heads = k_pages.shape[1:3]
    for start in range(span.start, span.stop, _ROW_BLOCK):
        rows = slice(start, min(start + _ROW_BLOCK, span.stop))
        last = torch.arange(rows.start, rows.stop) - span.start + span.past
        tokens = chosen_tokens(selected[rows].long(), last.unsqueeze(1), group)
        absent = tokens < 0
        # Token 0 stands for absent ones: it is the lane's own, so no foreign NaN gets under the mask.
        tokens.masked_fill_(absent, 0)
        page = page_table[span.lane].long()[tokens // page_tokens]
        keys, values = (kv[page, tokens % page_tokens].transpose(1, 2) for kv in (k_pages, v_pages))
        mask = torch.zeros(tokens.shape).masked_fill_(absent, -torch.inf)[:, None, None]
        grouped = q[rows].unflatten(1, (kv_heads, -1))
        out[rows] = _flash(grouped, keys, values, attn_mask=mask, scale=scale)[0].flatten(1, 2)


def chosen_tokens(selected: Tensor, last: Tensor, group: int) -> Tensor:
    """selected i64[n, B], last i64[n, 1], the number of each row's own token -> i64[n, (B + 1) * group]: the
    tokens of the selected groups and of the open one, -1 for none."""
    within = torch.arange(group)
    chosen = (selected * group).unsqueeze(2) + within
    chosen = chosen.masked_fill_(selected.unsqueeze(2) < 0, -1).flatten(1)
    opened = (last + 1) // group * group + within
    return torch.cat((chosen, opened.masked_fill_(opened > last, -1)), 1)


def _fake_select(
    q: Tensor,
    pages: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    group: int,
    count: int,
    weights: Tensor | None = None,
) -> Tensor:
    torch._check(weights is None or weights.shape == q.shape[:2], lambda: "weights are [N, H]")
    torch._check(
        q.dim() == 3 and pages.shape[2:] == q.shape[2:], lambda: "q is [N, H, D], pages are [P, G, D]"
    )
    torch._check(page_table.shape[0] == context_lens.shape[0], lambda: "page_table is [L, MP]")
    torch._check(group > 0 and count > 0, lambda: "group and count are positive")
    check_lanes(query_start, context_lens)
    return q.new_empty((q.shape[0], count), dtype=torch.int32)


def _fake_attention(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    selected: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    group: int,
    scale: float,
) -> Tensor:
    torch._check(q.dim() == 3 and k_pages.dim() == 4, lambda: "q is [N, H, D], pages are [P, T, KVH, D]")
    torch._check(k_pages.shape == v_pages.shape, lambda: "key and value pages differ in shape")
    torch._check(q.shape[2] == k_pages.shape[3], lambda: "q and pages differ in head width")
    torch._check(q.shape[1] % k_pages.shape[2] == 0, lambda: "key heads do not divide query heads")
    torch._check(q.dtype == k_pages.dtype == v_pages.dtype, lambda: "q and pages differ in type")
    torch._check(selected.dim() == 2 and selected.shape[0] == q.shape[0], lambda: "selected is [N, B]")
    torch._check(k_pages.shape[1] % group == 0, lambda: "a page holds whole groups")
    torch._check(page_table.shape[0] == context_lens.shape[0], lambda: "page_table is [L, MP]")
    check_lanes(query_start, context_lens)
    return q.new_empty(q.shape)


define(
    "select_groups(Tensor q, Tensor pages, Tensor page_table, Tensor query_start, Tensor context_lens, "
    "int group, int count, Tensor? weights=None) -> Tensor",
    cpu=select_groups,
    fake=_fake_select,
)
define(
    "selected_attention(Tensor q, Tensor k_pages, Tensor v_pages, Tensor selected, Tensor page_table, "
    "Tensor query_start, Tensor context_lens, int group, float scale) -> Tensor",
    cpu=selected_attention,
    fake=_fake_attention,
)
