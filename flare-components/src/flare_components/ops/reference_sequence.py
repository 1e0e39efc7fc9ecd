"""Slow, plain references of operators that keep state of a sequence, token by token, in FP64 where arithmetic
is rounded. As `reference`, for tests only. State is written in place, as the operators do."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import softplus

from flare_components.ops.reference_rows import norm_rotary


def _rows(query_start: Tensor, owners: Tensor) -> Iterator[tuple[int, int, int]]:
    """(lane, row of the batch, state row) of every live row, in order."""
    for lane, owner in enumerate(owners.tolist()):
        for row in range(*query_start[lane : lane + 2].tolist()) if owner >= 0 else ():
            yield lane, row, owner


def _last(query_start: Tensor, context_lens: Tensor, lane: int, row: int) -> int:
    """The number, from 0, of the token in `row`."""
    return int(context_lens[lane]) - int(query_start[lane + 1]) + row


def short_conv(
    x: Tensor, weight: Tensor, history: Tensor, query_start: Tensor, live_rows: Tensor, dilation: int
) -> Tensor:
    """Token by token; the sum rounded to the weight's type before SiLU."""
    out, taps = torch.zeros_like(x), weight.shape[2]
    for _, row, owner in _rows(query_start, live_rows):
        window = torch.cat((history[owner], x[row].unsqueeze(1)), 1)
        total = sum(weight[:, 0, tap].double() * window[:, tap * dilation].double() for tap in range(taps))
        assert isinstance(total, Tensor)
        rounded = total.to(weight.dtype).double()
        out[row] = (rounded * torch.sigmoid(rounded)).to(x.dtype)
        history[owner] = window[:, 1:]
    return out


def gated_delta_rule(
    qkv: Tensor,
    a: Tensor,
    b: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    state: Tensor,
    query_start: Tensor,
    live_rows: Tensor,
    lower_bound: float | None = None,
) -> Tensor:
    """Token by token and head by head; the state in FP64 between tokens of one call."""
    heads, dk, dv = state.shape[1:]
    keys = (qkv.shape[1] - heads * dv) // 2
    out = torch.zeros(qkv.shape[0], heads, dv, dtype=qkv.dtype)
    memory = {owner: state[owner].double() for owner in live_rows.tolist() if owner >= 0}
    for _, row, owner in _rows(query_start, live_rows):
        q, k, v = qkv[row].double().split([keys, keys, heads * dv])
        for head in range(heads):
            key_head = slice(head * keys // (heads * dk) * dk, (head * keys // (heads * dk) + 1) * dk)
            unit_q, unit_k = (p[key_head] / (p[key_head].pow(2).sum() + 1e-6).sqrt() for p in (q, k))
            gate = (a[row].double() + dt_bias.double()).view(heads, -1)[head]
            rate = torch.exp(a_log[head].double())
            bounded = lower_bound is not None
            decay = lower_bound / (1 + torch.exp(-rate * gate)) if bounded else -rate * softplus(gate)
            beta = torch.sigmoid(b[row, head].double()).to(b.dtype).double()
            s = memory[owner][head]
            s *= torch.exp(decay).unsqueeze(1)
            s += torch.outer(unit_k, beta * (v[head * dv : (head + 1) * dv] - unit_k @ s))
            out[row, head] = (unit_q @ s / dk**0.5).to(qkv.dtype)
    for owner, s in memory.items():
        state[owner] = s.float()
    return out


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
    """Python integers, wrapped to 64 signed bits."""
    tables, order = multipliers.shape
    heads = moduli.shape[1] // (order - 1)
    out = torch.full((len(ids), *moduli.shape), -1)
    for lane, row, owner in _rows(query_start, live_rows):
        past = min(_last(query_start, context_lens, lane, row), order - 1)
        known = history[owner].tolist()[order - 1 - past :]
        text = [*known, int(ids[row])]
        for table, n in itertools.product(range(tables), range(2, order + 1)):
            mix = 0
            for shift in range(n):
                before = text[len(text) - 1 - shift : len(text) - 1]
                broken = shift > 0 and (shift >= len(text) or boundary in before)
                token = boundary if broken else text[len(text) - 1 - shift]
                product = token * int(multipliers[table, shift])
                mix ^= (product + (1 << 63)) % (1 << 64) - (1 << 63)
            for head in range((n - 2) * heads, (n - 1) * heads):
                out[row, table, head] = mix % int(moduli[table, head]) + int(offsets[table, head])
        kept = ([-1] * (order - 1) + text)[-(order - 1) :]
        history[owner] = torch.tensor(kept, dtype=history.dtype)
    return out


def group_starts(
    positions: Tensor,
    anchors: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    live_rows: Tensor,
    group: int,
) -> Tensor:
    """Token by token."""
    out = torch.zeros_like(positions)
    for lane, row, owner in _rows(query_start, live_rows):
        if _last(query_start, context_lens, lane, row) % group == 0:
            anchors[owner] = positions[:, row]
        out[:, row] = anchors[owner]
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
    """Token by token."""
    extent, page_groups = open_keys.shape[1], pages.shape[1]
    for lane, row, owner in _rows(query_start, live_rows):
        last = _last(query_start, context_lens, lane, row)
        open_keys[owner, last % extent] = keys[row]
        if last % group == group - 1:
            members = torch.stack([open_keys[owner, (last - i) % extent] for i in range(group)])
            mean = members.double().mean(0).to(keys.dtype).view(1, 1, -1)
            turned = norm_rotary(mean, weight, cos[row : row + 1], sin[row : row + 1], eps, offset)
            number = last // group
            pages[page_table[lane, number // page_groups], number % page_groups] = turned.view(-1)


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
    """Query by query and group by group."""
    out = torch.full((q.shape[0], count), -1, dtype=torch.int32)
    for lane, row, _ in _rows(query_start, context_lens - 1):
        scores = []
        for number in range((_last(query_start, context_lens, lane, row) + 1) // group):
            page, place = divmod(number, pages.shape[1])
            key = pages[page_table[lane, page], place].double()
            score = (q[row].double() @ key).clamp_min(0)
            score = score if weights is None else score * weights[row].double()
            scores.append((-float(score.sum()), number))
        best = sorted(number for _, number in sorted(scores)[:count])
        out[row, : len(best)] = torch.tensor(best, dtype=torch.int32)
    return out


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
    """Query by query."""
    page_tokens, shared = k_pages.shape[1], q.shape[1] // k_pages.shape[2]
    out = torch.zeros_like(q)
    for lane, row, _ in _rows(query_start, context_lens - 1):
        last = _last(query_start, context_lens, lane, row)
        chosen = set(selected[row].tolist())
        closed = (last + 1) // group
        token = torch.tensor([t for t in range(last + 1) if t // group in chosen or t // group >= closed])
        where = page_table[lane, token // page_tokens].long(), token % page_tokens
        keys = k_pages[where].double().repeat_interleave(shared, 1)
        values = v_pages[where].double().repeat_interleave(shared, 1)
        scores = (keys * q[row].double()).sum(2) * scale
        out[row] = (torch.softmax(scores, 0).unsqueeze(2) * values).sum(0).to(q.dtype)
    return out
