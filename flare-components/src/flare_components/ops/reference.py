"""Slow, plain references of the operators: the oracle of their tests. Nothing else imports this.

Every function takes the operands of the operator of its name and computes in the operands' type with FP64
or FP32 where the operator promises it.
"""

from __future__ import annotations

import torch
from torch import Tensor


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`x @ weight.T + bias` in FP64."""
    out = x.double() @ weight.double().T
    return (out if bias is None else out + bias.double()).to(x.dtype)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Statistics in FP32, cast back, times weight."""
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * normed.to(x.dtype)


def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Half rotation in FP64."""

    def rotate(x: Tensor) -> Tensor:
        a, b = x.double().chunk(2, -1)
        turned = torch.cat((-b, a), -1)
        out = x.double() * cos.double().unsqueeze(1) + turned * sin.double().unsqueeze(1)
        return out.to(x.dtype)

    return rotate(q), rotate(k)


def silu_and_mul(gate_up: Tensor, limit: float | None = None) -> Tensor:
    """`silu(gate) * up` in FP64, within the limit."""
    gate, up = gate_up.double().chunk(2, -1)
    if limit is not None:
        gate, up = torch.where(gate > limit, limit, gate), up.clip(-limit, limit)
    return (gate / (1 + torch.exp(-gate)) * up).to(gate_up.dtype)


def gather_rows(x: Tensor, index: Tensor) -> Tensor:
    """Row by row."""
    return torch.stack([x[i] if i >= 0 else torch.zeros_like(x[0]) for i in index.tolist()])


def slot_mapping(page_table: Tensor, positions: Tensor, lanes: Tensor, page_tokens: int) -> Tensor:
    """Row by row."""
    slots = []
    for lane, position in zip(lanes.tolist(), positions.tolist(), strict=True):
        if lane < 0:
            slots.append(-1)
        else:
            page = int(page_table[lane, position // page_tokens])
            slots.append(page * page_tokens + position % page_tokens)
    return torch.tensor(slots, dtype=torch.int64)


def paged_kv_write(k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, slot_mapping: Tensor) -> None:
    """Row by row, in place."""
    page_tokens = k_pages.shape[1]
    for row, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            k_pages[slot // page_tokens, slot % page_tokens] = k[row]
            v_pages[slot // page_tokens, slot % page_tokens] = v[row]


def paged_attention(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    scale: float,
) -> Tensor:
    """Query by query, in FP64."""
    page_tokens, group = k_pages.shape[1], q.shape[1] // k_pages.shape[2]
    out = torch.zeros_like(q)
    for lane, context in enumerate(context_lens.tolist()):
        start, stop = query_start[lane : lane + 2].tolist()
        for row in range(start, stop) if context else ():
            token = torch.arange(context - (stop - start) + (row - start) + 1)
            where = page_table[lane, token // page_tokens].long(), token % page_tokens
            keys = k_pages[where].double().repeat_interleave(group, 1)
            values = v_pages[where].double().repeat_interleave(group, 1)
            scores = (keys * q[row].double()).sum(2) * scale
            out[row] = (torch.softmax(scores, 0).unsqueeze(2) * values).sum(0).to(q.dtype)
    return out
