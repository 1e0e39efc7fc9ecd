"""Keys pooled over groups of tokens: where a group starts, and the pooled key of a completed group.

`flare::group_starts` and `flare::pool_groups`. A group's pooled key stands in pages; the raw keys of the last
tokens are kept in a ring (`open_groups`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.axial_rotary import norm_rotary
from flare_components.ops.lanes import active_lanes, check_lanes
from flare_components.ops.open_groups import check_groups, close_groups
from flare_components.ops.schema import define


def group_starts(
    positions: Tensor,
    anchors: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    live_rows: Tensor,
    group: int,
) -> Tensor:
    """The positions of the first token of every row's group: i32[A, N], zero for rows of no active lane.

    positions i32[A, N]; anchors i64[R, A], strided in R: the positions of the first token of the group that
    the last token of the sequence in row r belongs to, read only where that group is open, and written for
    active lanes; query_start i32[L + 1]; context_lens i32[L]: tokens including these rows; live_rows i32[L],
    -1 idle.
    """
    lanes = active_lanes(positions.shape[1], query_start, live_rows, context_lens)
    out = torch.zeros_like(positions)
    for span in lanes.all:
        tokens = torch.arange(span.past, span.past + span.count)
        first = tokens - tokens % group - span.past
        inside = positions[:, span.start : span.stop].index_select(1, first.clamp_min(0))
        before = anchors[span.row].to(positions.dtype).unsqueeze(1)
        starts = torch.where(first < 0, before, inside)
        out[:, span.start : span.stop] = starts
        anchors[span.row] = starts[:, -1].to(anchors.dtype)
    return out


def pool_groups(
    keys: Tensor,
    cos: Tensor,
    sin: Tensor,
    weight: Tensor,
    open_keys: Tensor,
    pages: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    live_rows: Tensor,
    group: int,
    eps: float,
    offset: float,
) -> None:
    """Write the pooled key of every group that a row completes, and keep the raw keys of the last tokens.

    keys [N, D], strided in N; cos and sin [N, R] at the first token of the row's group; weight [D];
    open_keys [rows, E, D], strided in rows; pages [P, G, D], strided in P, G groups a page;
    page_table i32[L, MP]; query_start i32[L + 1]; context_lens i32[L]: tokens including these rows; live_rows
    i32[L], -1 idle. A pooled key is `norm_rotary` of the mean of the group's keys, which is taken in FP32 and
    rounded to their type.
    """

    def pooled(members: Tensor, ends: slice) -> Tensor:
        mean = members.float().mean(1).to(keys.dtype)
        return norm_rotary(mean.unsqueeze(1), weight, cos[ends], sin[ends], eps, offset).squeeze(1)

    close_groups(keys, open_keys, pages, page_table, query_start, context_lens, live_rows, group, pooled)


def _fake_starts(
    positions: Tensor,
    anchors: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    live_rows: Tensor,
    group: int,
) -> Tensor:
    torch._check(
        positions.dim() == 2 and anchors.shape[1:] == positions.shape[:1], lambda: "anchors are [R, A]"
    )
    check_lanes(query_start, live_rows, context_lens)
    return positions.new_empty(positions.shape)


def _fake_pool(
    keys: Tensor,
    cos: Tensor,
    sin: Tensor,
    weight: Tensor,
    open_keys: Tensor,
    pages: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    live_rows: Tensor,
    group: int,
    eps: float,
    offset: float,
) -> None:
    rows, width = keys.shape
    torch._check(weight.shape == (width,), lambda: "weight is [D]")
    torch._check(cos.shape == sin.shape and cos.shape[0] == rows, lambda: "cos and sin are [N, R]")
    torch._check(cos.shape[1] <= width and cos.dtype == keys.dtype, lambda: "cos does not fit keys")
    lengths = page_table, query_start, context_lens, live_rows
    check_groups((width,), keys.dtype, open_keys, pages, *lengths, group)


define(
    "group_starts(Tensor positions, Tensor(a!) anchors, Tensor query_start, Tensor context_lens, "
    "Tensor live_rows, int group) -> Tensor",
    cpu=group_starts,
    fake=_fake_starts,
)
define(
    "pool_groups(Tensor keys, Tensor cos, Tensor sin, Tensor weight, Tensor(a!) open_keys, Tensor(b!) pages, "
    "Tensor page_table, Tensor query_start, Tensor context_lens, Tensor live_rows, int group, float eps, "
    "float offset) -> ()",
    cpu=pool_groups,
    fake=_fake_pool,
)
