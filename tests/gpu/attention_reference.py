"""Paged attention in float64, and operands of given lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def operands(
    generator: torch.Generator,
    lanes: Sequence[tuple[int, int]],
    *,
    heads: int,
    kv_heads: int,
    width: int,
    page: int,
    padding: int = 0,
    dtype: torch.dtype = torch.bfloat16,
) -> tuple[Any, ...]:
    """Operands of `flare::paged_attention` on the CPU. lanes: queries and context of each; padding: rows of
    no lane. Pages lie apart, in any order, and hold NaN wherever no token was written; unused table entries
    are -1."""
    needed = sum(-(-context // page) for _, context in lanes) + 1
    buffer = torch.full((needed, 2, 2, page, kv_heads, width), torch.nan).to(dtype)
    table = torch.full((len(lanes), needed), -1, dtype=torch.int32)
    free = torch.randperm(needed, generator=generator).tolist()
    for lane, (_, context) in enumerate(lanes):
        for first in range(0, context, page):
            table[lane, first // page] = where = free.pop()
            shape = (2, min(page, context - first), kv_heads, width)
            buffer[where, 1, :, : context - first] = torch.randn(shape, generator=generator).to(dtype)
    rows = sum(queries for queries, _ in lanes) + padding
    q = torch.randn((rows, heads + 2 * kv_heads, width), generator=generator).to(dtype)[:, :heads]
    starts = torch.tensor([0, *(queries for queries, _ in lanes)]).cumsum(0).int()
    contexts = torch.tensor([context for _, context in lanes], dtype=torch.int32)
    return q, buffer[:, 1, 0], buffer[:, 1, 1], table, starts, contexts, width**-0.5


def reference(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, table: Tensor, starts: Tensor, contexts: Tensor, scale: float
) -> Tensor:
    """f64 of q's shape."""
    out = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    page, kv_heads = k_pages.shape[1:3]
    group = q.shape[1] // kv_heads
    for lane, context in enumerate(contexts.tolist()):
        begin, end = starts[lane : lane + 2].tolist()
        if not context or begin == end:
            continue
        entries = table[lane, : -(-context // page)].long()
        keys, values = (
            pages[entries].flatten(0, 1)[:context].double().repeat_interleave(group, 1)
            for pages in (k_pages, v_pages)
        )
        scores = torch.einsum("qhd,khd->hqk", q[begin:end].double(), keys) * scale
        past = context - (end - begin)
        hidden = torch.ones(scores.shape[1:], dtype=torch.bool, device=q.device).triu(past + 1)
        weights = scores.masked_fill_(hidden, -torch.inf).softmax(-1)
        out[begin:end] = torch.einsum("hqk,khd->qhd", weights, values)
    return out
