"""`flare::gated_delta_rule`: a linear recurrence over key-value memory, with decay and error correction.

For one head with state S [DK, DV], row by row: `S *= exp(g)`; `S += k (beta * (v - S^T k))^T`; `o = S^T q`,
where q and k have length one, q is scaled by DK^-1/2, `g = -exp(a_log) * softplus(a + dt_bias)` and
`beta = sigmoid(b)`. Source: Yang, Kautz, Hatamizadeh, "Gated Delta Networks" (2024).

A lane with one row takes the recurrence as it stands. Longer ones run in chunks of CHUNK rows from the first
row of the call, so that a partition of a sequence into calls determines every bit, and another partition
agrees to rounding. The state and all arithmetic on it are FP32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.elementwise import sigmoid, softplus
from flare_components.ops.lanes import Span, active_lanes, check_lanes
from flare_components.ops.schema import define

CHUNK = 64
"""Rows that are solved together."""

_LENGTH_EPSILON = 1e-6


def gated_delta_rule(
    qkv: Tensor,
    a: Tensor,
    b: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    state: Tensor,
    query_start: Tensor,
    live_rows: Tensor,
) -> Tensor:
    """Outputs of N rows, and the state after them.

    qkv [N, 2 HK DK + H DV]: q, k and v of all heads side by side; each of HK key heads serves H / HK
    consecutive value heads. a and b [N, H], strided in N. a_log and dt_bias [H]. state f32[R, H, DK, DV],
    strided in R, zero at the beginning of a sequence. query_start i32[L + 1]; live_rows i32[L], -1 idle.
    Returns [N, H, DV] in qkv's type, zero for rows of no active lane; b's sigmoid is rounded to its type.
    """
    rows, (heads, key_width, value_width) = qkv.shape[0], state.shape[1:]
    lanes = active_lanes(rows, query_start, live_rows)
    split = qkv.shape[1] - heads * value_width
    wide = qkv.float()
    qk = wide[:, :split].unflatten(1, (2, -1, key_width))
    qk = qk * (qk * qk).sum(-1, keepdim=True).add_(_LENGTH_EPSILON).rsqrt_()
    q, k = qk.repeat_interleave(heads // qk.shape[2], 2).unbind(1)
    q = q * key_width**-0.5
    v = wide[:, split:].unflatten(1, (heads, value_width))
    beta = sigmoid(b).to(b.dtype).float()
    decay = softplus(a.float() + dt_bias.float()).mul_(a_log.float().exp().neg_())
    out = torch.zeros(rows, heads, value_width)
    for span in lanes.single:
        _step(q, k, v, decay, beta, state[span.row], out, span.start)
    for span in lanes.longer:
        _chunks(q, k, v, decay, beta, state[span.row], out, span)
    return out.to(qkv.dtype)


def _step(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, state: Tensor, out: Tensor, row: int
) -> None:
    key = k[row].unsqueeze(1)
    state.mul_(decay[row].exp().view(-1, 1, 1))
    error = v[row].unsqueeze(1) - torch.bmm(key, state)
    state.baddbmm_(key.transpose(1, 2), error.mul_(beta[row].view(-1, 1, 1)))
    out[row] = torch.bmm(q[row].unsqueeze(1), state).squeeze(1)


def _chunks(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, state: Tensor, out: Tensor, span: Span
) -> None:
    for start in range(span.start, span.stop, CHUNK):
        rows = slice(start, min(start + CHUNK, span.stop))
        # Copies begin where the allocator aligns them: the bits of products depend on alignment.
        parts = (x[rows].transpose(0, 1).contiguous() for x in (q, k, v, decay, beta))
        out[rows] = _chunk(*parts, state=state).transpose(0, 1)


def _chunk(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, *, state: Tensor) -> Tensor:
    """q and k [H, c, DK], v [H, c, DV], decay and beta [H, c] -> [H, c, DV]; advances state.

    What each row corrects depends on the rows before it: a unit triangular system, solved for the
    corrections themselves and for how they depend on the state at the chunk's beginning.
    """
    total = decay.cumsum(1)
    later = torch.ones(total.shape[1], total.shape[1], dtype=torch.bool).triu_(1)
    between = (total.unsqueeze(2) - total.unsqueeze(1)).masked_fill_(later, -torch.inf).exp_()
    since = total.exp().unsqueeze(2)
    weighted = k * beta.unsqueeze(2)
    system = torch.bmm(weighted, k.transpose(1, 2)).mul_(between)
    known = torch.cat((v * beta.unsqueeze(2), weighted * since), 2)
    solved = torch.linalg.solve_triangular(system, known, upper=False, unitriangular=True)
    values, reads = solved.split((v.shape[2], k.shape[2]), 2)
    corrections = torch.baddbmm(values, reads, state, alpha=-1)
    out = torch.bmm(q * since, state)
    out.baddbmm_(torch.bmm(q, k.transpose(1, 2)).mul_(between), corrections)
    until = (total[:, -1:] - total).exp_().unsqueeze(2)
    state.mul_(since[:, -1:])
    state.baddbmm_((k * until).transpose(1, 2), corrections)
    return out


def _fake(
    qkv: Tensor,
    a: Tensor,
    b: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    state: Tensor,
    query_start: Tensor,
    live_rows: Tensor,
) -> Tensor:
    torch._check(state.dim() == 4 and state.dtype == torch.float32, lambda: "state is f32[R, H, DK, DV]")
    heads, key_width, value_width = state.shape[1:]
    keys = qkv.shape[1] - heads * value_width
    torch._check(keys > 0 and keys % (2 * key_width) == 0, lambda: "qkv is [N, 2 HK DK + H DV]")
    torch._check(heads % (keys // (2 * key_width)) == 0, lambda: "key heads do not divide value heads")
    torch._check(a.shape == b.shape == (qkv.shape[0], heads), lambda: "a and b are [N, H]")
    torch._check(a_log.shape == dt_bias.shape == (heads,), lambda: "a_log and dt_bias are [H]")
    check_lanes(query_start, live_rows)
    return qkv.new_empty(qkv.shape[0], heads, value_width)


define(
    "gated_delta_rule(Tensor qkv, Tensor a, Tensor b, Tensor a_log, Tensor dt_bias, Tensor(a!) state, "
    "Tensor query_start, Tensor live_rows) -> Tensor",
    cpu=gated_delta_rule,
    fake=_fake,
)
