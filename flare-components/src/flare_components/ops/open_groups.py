"""The ring of the tokens of an open group, and the pages of what complete groups became.

Tokens 0 to g - 1 of a sequence are group 0, and so on. Entries of the last E >= g tokens are kept in the row,
token p in entry p mod E, so that a sequence can be cut inside a group.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from flare_components.ops.lanes import active_lanes, check_lanes


def close_groups(
    fresh: Tensor,
    ring: Tensor,
    pages: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    live_rows: Tensor,
    group: int,
    pool: Callable[[Tensor, slice], Tensor],
) -> None:
    """Write what `pool` makes of every group that a row completes, and keep the last entries.

    fresh [N, *S]: an entry per token; ring [rows, E, *S], strided in rows; pages [P, G, D], strided in P, G
    groups a page; page_table i32[L, MP]; query_start i32[L + 1]; context_lens i32[L]: tokens including these
    rows; live_rows i32[L], -1 idle. `pool` takes the members [C, group, *S] of the C groups that a lane
    completes and the rows of fresh that complete them, and returns [C, D].
    """
    extent, page_groups = ring.shape[1], pages.shape[1]
    for span in active_lanes(fresh.shape[0], query_start, live_rows, context_lens).all:
        kept, new = ring[span.row], fresh[span.start : span.stop]
        held = span.past % group
        complete = (held + span.count) // group
        if complete:
            opened = torch.arange(span.past - held, span.past) % extent
            members = torch.cat((kept.index_select(0, opened), new[: complete * group - held]))
            ends = slice(span.start + group - 1 - held, span.stop, group)
            pooled = pool(members.unflatten(0, (complete, group)), ends)
            places = torch.arange(complete) + span.past // group
            page = page_table[span.lane].index_select(0, places // page_groups)
            pages.index_put_((page.long(), places % page_groups), pooled)
        last = torch.arange(max(span.count - extent, 0), span.count)
        kept.index_copy_(0, (last + span.past) % extent, new[-extent:])


def check_groups(
    entry: tuple[int, ...],
    dtype: torch.dtype,
    ring: Tensor,
    pages: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    live_rows: Tensor,
    group: int,
) -> None:
    """What fake kernels that close groups demand. entry and dtype: of what is kept of a token; the last
    dimension is the width of pooled keys."""
    torch._check(
        ring.shape[2:] == entry and pages.shape[2:] == entry[-1:],
        lambda: f"ring is [rows, E, *{list(entry)}], pages are [P, G, {entry[-1]}]",
    )
    torch._check(0 < group <= ring.shape[1], lambda: "the ring does not hold a group")
    torch._check(ring.dtype == pages.dtype == dtype, lambda: "keys and their state differ in type")
    torch._check(page_table.shape[0] == live_rows.shape[0], lambda: "page_table is [L, MP]")
    check_lanes(query_start, live_rows, context_lens)
