"""`flare::pool_gated_groups`: keys pooled over groups of tokens by learned gates."""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.open_groups import check_groups, close_groups
from flare_components.ops.schema import define


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
    """Write the pooled key of every group that a row completes, and keep keys and gates of the last tokens.

    keys and gates [N, D], strided in N; bias [g, D]: added to the gate of each of the g tokens of a group;
    open_pairs [rows, E, 2, D], strided in rows: a token's key, then its gate; pages [P, G, D], strided in P,
    G groups a page; page_table i32[L, MP]; query_start i32[L + 1]; context_lens i32[L]: tokens including
    these rows; live_rows i32[L], -1 idle. A pooled key is, element by element, the mean of the group's keys
    weighted by the softmax over its tokens of gate + bias, all in FP32, and rounded once to the type of keys.
    """

    def pooled(members: Tensor, _: slice) -> Tensor:
        key, gate = members.float().unbind(2)
        # Not torch's softmax: its exponential depends on an element's place.
        gate = gate + bias.float()
        weights = (gate - gate.amax(1, keepdim=True)).exp_()
        return ((weights * key).sum(1) / weights.sum(1)).to(keys.dtype)

    pairs, group = torch.stack((keys, gates), 1), bias.shape[0]
    close_groups(pairs, open_pairs, pages, page_table, query_start, context_lens, live_rows, group, pooled)


def _fake(
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
    torch._check(keys.dim() == 2 and keys.shape == gates.shape, lambda: "keys and gates are [N, D]")
    torch._check(keys.dtype == gates.dtype, lambda: "keys and gates differ in type")
    torch._check(bias.dim() == 2 and bias.shape[1:] == keys.shape[1:], lambda: "bias is [g, D]")
    entry, lengths = (2, keys.shape[1]), (page_table, query_start, context_lens, live_rows)
    check_groups(entry, keys.dtype, open_pairs, pages, *lengths, bias.shape[0])


define(
    "pool_gated_groups(Tensor keys, Tensor gates, Tensor bias, Tensor(a!) open_pairs, Tensor(b!) pages, "
    "Tensor page_table, Tensor query_start, Tensor context_lens, Tensor live_rows) -> ()",
    cpu=pool_gated_groups,
    fake=_fake,
)
