"""`flare::ngram_rows`: rows of hashed embedding tables that the last tokens of every position choose.

For orders n = 2..M: `mix = xor_s(token_s * multiplier[s])` over shifts s = 0..n-1, in wrapping 64-bit
integers, and head h of that order reads row `mix mod moduli[h] + offsets[h]`; every table has constants of
its own. A boundary token ends the text
before it: a shift that reaches it, goes past it, or reaches before the beginning takes the boundary token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.lanes import Lanes, active_lanes, check_lanes
from flare_components.ops.schema import define


def ngram_rows(
    ids: Tensor,
    history: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    live_rows: Tensor,
    multipliers: Tensor,
    moduli: Tensor,
    offsets: Tensor,
    boundary: int,
) -> Tensor:
    """Table rows i64[N, E, G], -1 for rows of no active lane; the history of active lanes moves on.

    ids i32[N]; history i32[R, M - 1], strided in R: the last tokens of the sequence in row r, newest last,
    -1 before the beginning once it was written here, and not read there (lengths say what is before the
    beginning, so a row may start with any contents); query_start i32[L + 1]; context_lens i32[L]: tokens
    including these rows; live_rows i32[L], -1 idle; multipliers i64[E, M]; moduli and offsets i64[E, G], the
    heads of order 2 first; boundary: the token id that ends a text.
    """
    lanes = active_lanes(ids.shape[0], query_start, live_rows, context_lens)
    length = history.shape[1]
    ages = torch.arange(length, 0, -1)
    out = torch.full((ids.shape[0], *moduli.shape), -1, dtype=torch.int64)
    for rows, state_rows, count, pasts in _groups(lanes):
        past = pasts.unsqueeze(1)
        kept = history.index_select(0, state_rows).long().masked_fill_(ages > past, boundary)
        tokens = torch.cat((kept, ids.index_select(0, rows).long().view(-1, count)), 1)
        last = tokens[:, count:].masked_fill(ages > past + count, -1)
        history.index_copy_(0, state_rows, last.to(history.dtype))
        hashed = _hash(tokens, length, multipliers, moduli, boundary) + offsets
        out.index_copy_(0, rows, hashed.flatten(0, 1))
    return out


def _groups(lanes: Lanes) -> list[tuple[Tensor, Tensor, int, Tensor]]:
    """(batch rows i64[B * n], state rows i64[B], n, tokens before them i64[B]): single lanes in one."""
    alone = [(span,) for span in lanes.longer]
    groups = [*alone, lanes.single] if lanes.single else alone
    return [
        (
            torch.cat([torch.arange(span.start, span.stop) for span in spans]),
            torch.tensor([span.row for span in spans]),
            spans[0].count,
            torch.tensor([span.past for span in spans]),
        )
        for spans in groups
    ]


def _hash(tokens: Tensor, length: int, multipliers: Tensor, moduli: Tensor, boundary: int) -> Tensor:
    """tokens i64[B, length + n] -> i64[B, n, E, G], without offsets."""
    current = tokens[:, length:]
    mix = current.unsqueeze(2) * multipliers[:, 0]
    connected = torch.ones_like(current, dtype=torch.bool)
    orders = []
    for shift in range(1, length + 1):
        source = tokens[:, length - shift : tokens.shape[1] - shift]
        connected &= source != boundary
        mix = mix ^ (source.masked_fill(~connected, boundary).unsqueeze(2) * multipliers[:, shift])
        orders.append(mix)
    heads = moduli.shape[1] // length
    return torch.stack(orders, 3).repeat_interleave(heads, 3).remainder_(moduli)


def _fake(
    ids: Tensor,
    history: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    live_rows: Tensor,
    multipliers: Tensor,
    moduli: Tensor,
    offsets: Tensor,
    boundary: int,
) -> Tensor:
    length = history.shape[1]
    torch._check(ids.dim() == 1 and history.dim() == 2 and length > 0, lambda: "ids [N], history [R, M - 1]")
    torch._check(multipliers.shape[1:] == (length + 1,), lambda: "multipliers are [E, M]")
    torch._check(moduli.dim() == 2 and moduli.shape == offsets.shape, lambda: "moduli and offsets are [E, G]")
    torch._check(moduli.shape[0] == multipliers.shape[0], lambda: "multipliers and moduli differ in tables")
    torch._check(moduli.shape[1] % length == 0, lambda: "heads are equally many for every order")
    integers = (multipliers.dtype, moduli.dtype, offsets.dtype)
    torch._check(integers == (torch.int64,) * 3, lambda: "multipliers, moduli and offsets are i64")
    check_lanes(query_start, live_rows, context_lens)
    return ids.new_empty((ids.shape[0], *moduli.shape), dtype=torch.int64)


define(
    "ngram_rows(Tensor ids, Tensor(a!) history, Tensor query_start, Tensor context_lens, Tensor live_rows, "
    "Tensor multipliers, Tensor moduli, Tensor offsets, int boundary) -> Tensor",
    cpu=ngram_rows,
    fake=_fake,
)
