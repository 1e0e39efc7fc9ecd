"""`flare::short_conv`: causal depthwise convolution over a few taps, then SiLU, with caller-owned history.

Products and sums are elementwise in FP32, in the order of the taps, and rounded once to the weights' type
before SiLU, whose result has the type of x. So a row has the same bits however a sequence is cut.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.elementwise import silu
from flare_components.ops.lanes import active_lanes, check_lanes
from flare_components.ops.schema import define


def short_conv(
    x: Tensor, weight: Tensor, history: Tensor, query_start: Tensor, live_rows: Tensor, dilation: int
) -> Tensor:
    """`silu(sum_j weight[:, 0, j] * x[t - (K - 1 - j) * dilation])` for every row t of every lane.

    x [N, C], strided in N; weight [C, 1, K], as a depthwise Conv1d keeps it, in x's type or FP32; history
    [R, C, T] in x's type with T = (K - 1) * dilation, strided in R: the last T inputs of the sequence in row
    r, newest last, zero before its beginning; query_start i32[L + 1]; live_rows i32[L], -1 idle. Returns
    [N, C], zero for rows of no active lane. The history of active lanes moves on by their rows.
    """
    lanes = active_lanes(x.shape[0], query_start, live_rows)
    taps = weight.squeeze(1).t()
    out = x.new_empty(x.shape) if lanes.complete else x.new_zeros(x.shape)
    if lanes.single:
        inputs = x if lanes.rows is None else x.index_select(0, lanes.rows)
        past = history.index_select(0, lanes.state_rows).transpose(1, 2)
        window = torch.cat((past, inputs.unsqueeze(1)), 1)
        history.index_copy_(0, lanes.state_rows, window[:, 1:].transpose(1, 2))
        convolved = _convolve(window, taps, dilation).squeeze(1)
        if lanes.rows is None:
            return convolved
        out.index_copy_(0, lanes.rows, convolved)
    for span in lanes.longer:
        kept = history[span.row]
        window = torch.cat((kept.t(), x[span.start : span.stop])).unsqueeze(0)
        kept.copy_(window[0, span.count :].t())
        out[span.start : span.stop] = _convolve(window, taps, dilation)[0]
    return out


def _convolve(window: Tensor, taps: Tensor, dilation: int) -> Tensor:
    """window [B, T + n, C], taps [K, C] -> [B, n, C] in the window's type; SiLU is taken in that of taps."""
    count = window.shape[1] - (len(taps) - 1) * dilation
    wide, weight = window.float(), taps.float()
    total = wide[:, :count] * weight[0]
    for tap in range(1, len(taps)):
        total.addcmul_(wide[:, tap * dilation : tap * dilation + count], weight[tap])
    return silu(total.to(taps.dtype)).to(window.dtype)


def _fake(
    x: Tensor, weight: Tensor, history: Tensor, query_start: Tensor, live_rows: Tensor, dilation: int
) -> Tensor:
    channels = x.shape[1]
    torch._check(weight.dim() == 3 and weight.shape[:2] == (channels, 1), lambda: "weight is [C, 1, K]")
    taps = (weight.shape[2] - 1) * dilation
    torch._check(history.shape[1:] == (channels, taps), lambda: "history is [R, C, (K - 1) * dilation]")
    torch._check(x.dtype == history.dtype, lambda: "x and history differ in type")
    torch._check(weight.dtype in (x.dtype, torch.float32), lambda: "weight is of x's type or FP32")
    check_lanes(query_start, live_rows)
    return x.new_empty(x.shape)


define(
    "short_conv(Tensor x, Tensor weight, Tensor(a!) history, Tensor query_start, Tensor live_rows, "
    "int dilation) -> Tensor",
    cpu=short_conv,
    fake=_fake,
)
