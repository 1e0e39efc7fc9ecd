"""Slow, plain references of the operators of latent attention, token by token and head by head, in FP64 where
arithmetic is rounded. As `reference`, for tests only."""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.reference_sequence import _last, _rows


def paged_write(entries: Tensor, pages: Tensor, slot_mapping: Tensor) -> None:
    """Row by row."""
    for row, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            pages[slot // pages.shape[1], slot % pages.shape[1]] = entries[row]


def pool_gated_groups(
    keys: Tensor,
    gates: Tensor,
    bias: Tensor,
    open_pairs: Tensor,
    pages: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    live_rows: Tensor,
) -> None:
    """Token by token; softmax and mean of a whole group in FP64."""
    extent, page_groups, group = open_pairs.shape[1], pages.shape[1], bias.shape[0]
    for lane, row, owner in _rows(query_start, live_rows):
        last = _last(query_start, context_lens, lane, row)
        open_pairs[owner, last % extent, 0] = keys[row]
        open_pairs[owner, last % extent, 1] = gates[row]
        if last % group == group - 1:
            first = last - group + 1
            pairs = torch.stack([open_pairs[owner, token % extent] for token in range(first, last + 1)])
            share = torch.softmax(pairs[:, 1].double() + bias.double(), 0)
            number = last // group
            page = page_table[lane, number // page_groups]
            pages[page, number % page_groups] = (share * pairs[:, 0].double()).sum(0).to(pages.dtype)


def latent_attention(
    q: Tensor,
    key_up: Tensor,
    value_up: Tensor,
    pages: Tensor,
    selected: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    group: int,
    scale: float,
) -> Tensor:
    """Query by query and head by head, keys and values of every token."""
    out = q.new_zeros(*q.shape[:2], value_up.shape[1])
    for lane, row, _ in _rows(query_start, context_lens - 1):
        last = _last(query_start, context_lens, lane, row)
        chosen, closed = set(selected[row].tolist()), (last + 1) // group
        token = torch.tensor([t for t in range(last + 1) if t // group in chosen or t // group >= closed])
        page_tokens = pages.shape[1]
        latents = pages[page_table[lane, token // page_tokens].long(), token % page_tokens].double()
        for head in range(q.shape[1]):
            keys, values = (latents @ up[head].double().t() for up in (key_up, value_up))
            scores = torch.softmax(keys @ q[row, head].double() * scale, 0)
            out[row, head] = (scores @ values).to(q.dtype)
    return out
