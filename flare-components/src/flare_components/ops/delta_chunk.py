"""Rows of a delta rule that are solved together, for one lane.

What each row corrects depends on the rows before it: a unit triangular system, solved for the corrections
themselves and for how they depend on the state at the chunk's beginning. Source: Yang et al., "Parallelizing
Linear Transformers with the Delta Rule over Sequence Length" (2024).

Every decay that is used lies between two rows, or between a row and an end of the chunk, and is at most one.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Decayed(NamedTuple):
    """Products of a chunk's rows with the decay between them; c rows.

    system [H, c, c]: of weighted keys with earlier keys (what is not below the diagonal has no meaning);
    reads [H, c, c]: of queries with keys up to their own; since and until [H, c, 1 or DK]: the decay from the
    chunk's beginning to a row, with the row's own, and from a row to the chunk's end, without it.
    """

    system: Tensor
    reads: Tensor
    since: Tensor
    until: Tensor


def solve_chunk(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, state: Tensor) -> Tensor:
    """q and k [H, c, DK], v [H, c, DV], decay [H, c, 1 or DK] (logarithms), beta [H, c] -> [H, c, DV];
    advances state [H, DK, DV]."""
    weighted = k * beta.unsqueeze(2)
    products = _by_head if decay.shape[2] == 1 else _by_channel
    system, reads, since, until = products(q, k, weighted, decay)
    known = torch.cat((v * beta.unsqueeze(2), weighted * since), 2)
    solved = torch.linalg.solve_triangular(system, known, upper=False, unitriangular=True)
    values, dependence = solved.split((v.shape[2], k.shape[2]), 2)
    corrections = torch.baddbmm(values, dependence, state, alpha=-1)
    out = torch.bmm(q * since, state)
    out.baddbmm_(reads, corrections)
    state.mul_(since[:, -1:].transpose(1, 2))
    state.baddbmm_((k * until).transpose(1, 2), corrections)
    return out


def _by_head(q: Tensor, k: Tensor, weighted: Tensor, decay: Tensor) -> Decayed:
    """One decay for all channels of a head: it factors out of the products."""
    total = decay.squeeze(2).cumsum(1)
    later = torch.ones(total.shape[1], total.shape[1], dtype=torch.bool).triu_(1)
    between = (total.unsqueeze(2) - total.unsqueeze(1)).masked_fill_(later, -torch.inf).exp_()
    system = torch.bmm(weighted, k.transpose(1, 2)).mul_(between)
    reads = torch.bmm(q, k.transpose(1, 2)).mul_(between)
    return Decayed(system, reads, total.exp().unsqueeze(2), (total[:, -1:] - total).exp_().unsqueeze(2))


def _by_channel(q: Tensor, k: Tensor, weighted: Tensor, decay: Tensor) -> Decayed:
    """A decay of its own for every channel.

    `exp(total_i - total_j)` does not factor into a part of row i and a part of row j that both fit FP32: over
    64 rows either leaves its range. So pairs of rows are taken by the smallest aligned block of 2, 4, 8, ...
    rows that holds both: the later row lies in its second half, the earlier one in its first, and the decay
    between them is that from the middle to the one times that from the other to the middle. Both are at most
    one, and both are sums of decays, without a difference that would cancel.
    """
    heads, count, width = k.shape
    size = 1 << (count - 1).bit_length()
    extra = (0, 0, 0, size - count)
    keys, since = (torch.nn.functional.pad(x, extra) for x in (k, decay))
    rows = torch.nn.functional.pad(torch.stack((weighted, q), 2), (0, 0, *extra))
    until = torch.zeros_like(since)
    products = torch.zeros(heads, size, 2, size)
    products[:, :, 1].diagonal(dim1=1, dim2=2).copy_((rows[:, :, 1] * keys).sum(-1))
    half = 1
    while half < size:
        blocks = heads * (size // (2 * half))
        sinces, untils, earlier = (x.view(blocks, 2, half, width) for x in (since, until, keys))
        later = rows.view(blocks, 2, half, 2, width)[:, 1] * sinces[:, 1].exp().unsqueeze(2)
        earlier = earlier[:, 0] * untils[:, 0].exp()
        met = torch.bmm(later.flatten(1, 2), earlier.transpose(1, 2))
        pairs = products.view(heads, size // (2 * half), 2, half, 2, size // (2 * half), 2, half)
        within = pairs[:, :, 1, :, :, :, 0].diagonal(dim1=1, dim2=4)
        within.copy_(met.view(heads, -1, half, 2, half).movedim(1, -1))
        halves = sinces[:, :, -1:].clone()
        sinces[:, 1] += halves[:, 0]
        untils[:, 0] += halves[:, 1]
        half *= 2
    part = slice(count)
    system, reads = products[:, part, :, part].contiguous().unbind(2)
    return Decayed(system, reads, since[:, part].exp_(), until[:, part].exp_())
