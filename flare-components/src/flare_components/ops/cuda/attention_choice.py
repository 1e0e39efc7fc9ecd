"""`flare::paged_attention`: more rows than lanes as tiles, no more by the fastest kernel for such rows.

Which kernel is the fastest is timed (`tuning`) where a library's takes the operands; the first candidate is
the one that is always there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flare_components.ops.cuda import attention_xqa, timing, tuning
from flare_components.ops.cuda.attention import Operands, attend_few
from flare_components.ops.cuda.attention_tiles import attend_many
from flare_components.ops.cuda.launch import cdiv
from flare_components.ops.cuda.tuning import Candidate, choose
from flare_components.ops.schema import accelerate

_TOKENS = 8192
"""Context of every lane while candidates are timed, or the capacity where that is less."""
_MOST_BYTES = 1 << 30
"""Pages that are made for timing."""
UNQUALIFIED = "FLARE_UNQUALIFIED_KERNELS"
"""Unless empty: also compare kernels that are right by themselves, but with which no core has been written
and served yet."""


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
    operands = (q, k_pages, v_pages, page_table, query_start, context_lens)
    if q.shape[0] > context_lens.shape[0]:
        return attend_many(operands, scale)
    return attend_lanes(operands, scale, None)


def attend_lanes(operands: Operands, scale: float, arrivals: Tensor | None) -> Tensor:
    """No more rows than lanes; operands and arrivals as those of `attention.attend_few`."""
    if not attention_xqa.takes(operands):
        return attend_few(operands, scale, arrivals)
    q, k_pages, _, page_table, _, contexts = operands
    pages = tuple(k_pages.shape[1:3])
    shape = (*q.shape, contexts.shape[0], *pages, page_table.shape[1], q.dtype, arrivals is not None)
    chosen = choose("paged_attention", shape, lambda: candidates(operands), lambda: timed(operands, arrivals))
    out: Tensor = chosen.call(*operands, scale, arrivals)
    return out


def candidates(operands: Operands) -> Sequence[Candidate]:
    """Ours; then XQA, while candidates are timed and unqualified ones are asked for. A report has a line
    about a library that is not there."""
    found = [Candidate("rows alone", _rows_alone)]
    if not tuning.measures() or not os.environ.get(UNQUALIFIED):
        return found
    q, k_pages = operands[:2]
    page_tokens, kv_heads = k_pages.shape[1:3]
    reason = attention_xqa.unavailable(q.dtype, page_tokens, q.shape[2], q.shape[1] // kv_heads, q.device)
    if reason:
        tuning.note(f"decode attention has no kernel of FlashInfer to compare with: {reason}")
        return found
    return [*found, Candidate(attention_xqa.name(), attention_xqa.attend_xqa)]


def timed(operands: Operands, arrivals: Tensor | None) -> list[tuple[Any, ...]]:
    """Sets of operands of the same shapes, every row a lane of `_TOKENS` tokens, which together exceed the L2
    cache."""
    q, k_pages, _, page_table, starts, contexts = operands
    rows, (page_tokens, kv_heads, width) = q.shape[0], k_pages.shape[1:]
    page_bytes = 2 * page_tokens * kv_heads * width * q.element_size()
    free, _ = torch.cuda.mem_get_info(q.device)
    affordable = min(free // 4, _MOST_BYTES) // (rows * page_bytes)
    count = max(min(page_table.shape[1], cdiv(_TOKENS, page_tokens), affordable), 1)
    sets = max(min(timing.rotations(q.device, rows * count * page_bytes), affordable // count), 1)
    pool = torch.randn(sets * rows * count, 2, page_tokens, kv_heads, width, device=q.device).to(q.dtype)
    places = torch.randperm(pool.shape[0], device=q.device).to(page_table.dtype).view(sets, rows, count)
    lanes = torch.arange(contexts.shape[0] + 1, device=q.device)
    found = []
    for entries in places:
        table = torch.full_like(page_table, -1)
        table[:rows, :count] = entries
        found.append(
            (
                torch.randn_like(q),
                pool[:, 0],
                pool[:, 1],
                table,
                lanes.clamp(max=rows).to(starts.dtype),
                torch.where(lanes[1:] <= rows, count * page_tokens, 0).to(contexts.dtype),
                width**-0.5,
                None if arrivals is None else torch.zeros_like(arrivals),
            )
        )
    return found


def _rows_alone(*given: Any) -> Tensor:
    operands, (scale, arrivals) = given[:6], given[6:]
    return attend_few(operands, scale, arrivals)


accelerate("paged_attention", paged_attention)
