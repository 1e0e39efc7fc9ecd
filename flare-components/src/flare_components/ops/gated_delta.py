"""`flare::gated_delta_rule`: a linear recurrence over key-value memory, with decay and error correction.

For one head with state S [DK, DV], row by row: `S *= exp(g)`; `S += k (beta * (v - S^T k))^T`; `o = S^T q`,
where q and k have length one, q is scaled by DK^-1/2 and `beta = sigmoid(b)`. The decay is one number for a
head, or one for each of its DK channels: `g = -exp(a_log) * softplus(a + dt_bias)`, or with a lower bound
`g = lower_bound * sigmoid(exp(a_log) * (a + dt_bias))`. Sources: Yang, Kautz, Hatamizadeh, "Gated Delta
Networks" (2024); for channels Zhang et al. (arXiv 2510.26692).

A lane with one row takes the recurrence as it stands. Longer ones run in chunks of CHUNK rows from the first
row of the call, so that a partition of a sequence into calls determines every bit, and another partition
agrees to rounding. The state and all arithmetic on it are FP32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.delta_chunk import solve_chunk
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
    lower_bound: float | None = None,
) -> Tensor:
    """Outputs of N rows, and the state after them.

    qkv [N, 2 HK DK + H DV]: q, k and v of all heads side by side; each of HK key heads serves H / HK
    consecutive value heads. b [N, H], strided in N; a_log [H]. a [N, H] and dt_bias [H] for a decay of heads,
    a [N, H DK] and dt_bias [H DK] for one of channels; a is strided in N. state f32[R, H, DK, DV], strided in
    R, zero at the beginning of a sequence. query_start i32[L + 1]; live_rows i32[L], -1 idle. lower_bound: of
    decays, below zero. Returns [N, H, DV] in qkv's type, zero for rows of no active lane; b's sigmoid is
    rounded to its type.
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
    decay = _decay(a.float() + dt_bias.float(), a_log, lower_bound)
    out = torch.zeros(rows, heads, value_width)
    for span in lanes.single:
        _step(q, k, v, decay, beta, state[span.row], out, span.start)
    for span in lanes.longer:
        _chunks(q, k, v, decay, beta, state[span.row], out, span)
    return out.to(qkv.dtype)


def _decay(gate: Tensor, a_log: Tensor, lower_bound: float | None) -> Tensor:
    """Logarithms f32[N, H, 1 or DK] from gates f32[N, H or H DK]."""
    rate = a_log.float().exp().unsqueeze(1)
    gate = gate.unflatten(1, (len(a_log), -1))
    if lower_bound is None:
        return softplus(gate).mul_(rate.neg_())
    return sigmoid(gate.mul_(rate)).mul_(lower_bound)


def _step(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, state: Tensor, out: Tensor, row: int
) -> None:
    key = k[row].unsqueeze(1)
    state.mul_(decay[row].exp().unsqueeze(2))
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
        out[rows] = solve_chunk(*parts, state=state).transpose(0, 1)


def _fake(
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
    torch._check(state.dim() == 4 and state.dtype == torch.float32, lambda: "state is f32[R, H, DK, DV]")
    heads, key_width, value_width = state.shape[1:]
    keys = qkv.shape[1] - heads * value_width
    torch._check(keys > 0 and keys % (2 * key_width) == 0, lambda: "qkv is [N, 2 HK DK + H DV]")
    torch._check(heads % (keys // (2 * key_width)) == 0, lambda: "key heads do not divide value heads")
    torch._check(
        b.shape == (qkv.shape[0], heads) and a_log.shape == (heads,), lambda: "b is [N, H], a_log [H]"
    )
    torch._check(
        a.dim() == 2 and a.shape[1] in (heads, heads * key_width), lambda: "a is [N, H] or [N, H DK]"
    )
    torch._check(
        a.shape[0] == qkv.shape[0] and dt_bias.shape == a.shape[1:], lambda: "dt_bias does not fit a"
    )
    torch._check(
        lower_bound is None or lower_bound < 0, lambda: f"a lower bound is below 0, not {lower_bound}"
    )
    check_lanes(query_start, live_rows)
    return qkv.new_empty(qkv.shape[0], heads, value_width)


define(
    "gated_delta_rule(Tensor qkv, Tensor a, Tensor b, Tensor a_log, Tensor dt_bias, Tensor(a!) state, "
    "Tensor query_start, Tensor live_rows, float? lower_bound=None) -> Tensor",
    cpu=gated_delta_rule,
    fake=_fake,
)
