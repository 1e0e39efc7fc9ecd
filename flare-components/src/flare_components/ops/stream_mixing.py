"""Residual streams that are mixed by a doubly stochastic matrix beside every layer.

`flare::collapse_streams` makes a layer's input of the streams, and the weights with which they take its
output; `flare::expand_streams` lets them take it; `flare::expand_collapse_streams` is the latter behind one
layer and the former ahead of the next, which see the same streams; `flare::stream_mean` ends a model. A row
of S streams is [S * H], stream by stream. Arithmetic is FP32, rounded once where streams or a layer's input
are written. Source: Xie et al., "mHC: Manifold-Constrained Hyper-Connections" (arXiv 2512.24880).
"""

from __future__ import annotations

from math import isqrt

import torch
from torch import Tensor

from flare_components.ops.elementwise import sigmoid
from flare_components.ops.linear import linear
from flare_components.ops.schema import define


def collapse_streams(
    residual: Tensor,
    weight: Tensor,
    base: Tensor,
    scale: Tensor,
    eps: float,
    balance_eps: float,
    iterations: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The input of a layer, and what the streams do with its output.

    residual [N, S * H]; weight [S * (S + 2), S * H] in its type or FP32; base f32[S * (S + 2)]; scale f32[3]
    -> input [N, H] in the residual's type, post f32[N, S], comb f32[N, S, S]. With f the row divided by
    `sqrt(mean(row^2) + eps)`, the rows of `scale * (weight f) + base` (one scale for each kind) are pre (S),
    post (S) and comb (S * S), and

    * `input = sum_s (sigmoid(pre_s) + balance_eps) * stream_s`,
    * `post = 2 * sigmoid(post)`,
    * `comb = softmax(comb, last) + balance_eps`, after which columns, and then `iterations - 1` times rows
      and columns, are divided by their sum + balance_eps (Sinkhorn and Knopp).
    """
    streams = isqrt(len(base) + 1) - 1
    wide = residual.float()
    length = torch.linalg.vector_norm(wide, 2, 1, True)
    inverse = (length * length).mul_(1 / wide.shape[1]).add_(eps).rsqrt_()
    kinds = [streams, streams, streams * streams]
    scales = scale.repeat_interleave(torch.tensor(kinds))
    mixed = linear(wide, weight.float(), None).mul_(inverse).mul_(scales).add_(base)
    pre, post, comb = mixed.split(kinds, 1)
    shares = sigmoid(pre).add_(balance_eps)
    parts = wide.unflatten(1, (streams, -1)).unbind(1)
    collapsed = parts[0] * shares[:, :1]
    for stream in range(1, streams):
        collapsed.addcmul_(parts[stream], shares[:, stream : stream + 1])
    balanced = _balanced(comb.unflatten(1, (streams, streams)), balance_eps, iterations)
    return collapsed.to(residual.dtype), sigmoid(post).mul_(2), balanced


def _balanced(logits: Tensor, eps: float, iterations: int) -> Tensor:
    comb = torch.softmax(logits, 2).add_(eps)
    comb.div_(comb.sum(1, keepdim=True).add_(eps))
    for _ in range(iterations - 1):
        comb.div_(comb.sum(2, keepdim=True).add_(eps))
        comb.div_(comb.sum(1, keepdim=True).add_(eps))
    return comb


def expand_streams(residual: Tensor, x: Tensor, post: Tensor, comb: Tensor) -> None:
    """Every stream becomes a mixture of all and takes x in its own measure, in place.

    residual [N, S * H]: `stream_s = post[:, s] * x + sum_t comb[:, t, s] * stream_t`; the first index of comb
    is the stream that is read. x [N, H]; post f32[N, S]; comb f32[N, S, S].
    """
    streams = post.shape[1]
    wide = residual.float().unflatten(1, (streams, 1, -1))
    total = post.unsqueeze(2) * x.float().unsqueeze(1)
    for stream in range(streams):
        total.addcmul_(comb[:, stream].unsqueeze(2), wide[:, stream])
    residual.copy_(total.flatten(1))


def expand_collapse_streams(
    residual: Tensor,
    x: Tensor,
    post: Tensor,
    comb: Tensor,
    weight: Tensor,
    base: Tensor,
    scale: Tensor,
    eps: float,
    balance_eps: float,
    iterations: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """`expand_streams`, then `collapse_streams` of the residual it wrote: x, post and comb are of the layer
    behind, the rest is of the one ahead."""
    expand_streams(residual, x, post, comb)
    return collapse_streams(residual, weight, base, scale, eps, balance_eps, iterations)


def stream_mean(residual: Tensor, streams: int) -> Tensor:
    """The mean of `streams` streams: [N, S * H] -> [N, H]."""
    parts = residual.unflatten(1, (streams, -1)).unbind(1)
    total = parts[0].float()
    for part in parts[1:]:
        total = total + part
    return total.div(streams).to(residual.dtype)


def _fake_collapse(
    residual: Tensor,
    weight: Tensor,
    base: Tensor,
    scale: Tensor,
    eps: float,
    balance_eps: float,
    iterations: int,
) -> tuple[Tensor, Tensor, Tensor]:
    rows, width = residual.shape
    torch._check(base.dim() == 1 and base.dtype == torch.float32, lambda: "base is f32[S * (S + 2)]")
    streams = isqrt(base.shape[0] + 1) - 1
    torch._check(
        streams > 0 and streams * (streams + 2) == base.shape[0] and width % streams == 0,
        lambda: f"{base.shape[0]} weights for streams of {width} together: base is [S * (S + 2)]",
    )
    torch._check(weight.shape == (base.shape[0], width), lambda: "weight is [S * (S + 2), S * H]")
    torch._check(
        weight.dtype in (residual.dtype, torch.float32), lambda: "weight is of the residual's type or FP32"
    )
    torch._check(scale.shape == (3,) and scale.dtype == torch.float32, lambda: "scale is f32[3]")
    torch._check(iterations > 0, lambda: f"{iterations} iterations")
    return (
        residual.new_empty(rows, width // streams),
        base.new_empty(rows, streams),
        base.new_empty(rows, streams, streams),
    )


def _fake_expand(residual: Tensor, x: Tensor, post: Tensor, comb: Tensor) -> None:
    rows, streams = post.shape
    torch._check(post.dtype == comb.dtype == torch.float32, lambda: "post and comb are f32")
    torch._check(comb.shape == (rows, streams, streams), lambda: "comb is [N, S, S]")
    torch._check(x.dim() == 2 and x.dtype == residual.dtype, lambda: "x is [N, H] in the residual's type")
    torch._check(x.shape[0] == rows and residual.shape == (rows, streams * x.shape[1]), lambda: "[N, S * H]")


def _fake_both(
    residual: Tensor,
    x: Tensor,
    post: Tensor,
    comb: Tensor,
    weight: Tensor,
    base: Tensor,
    scale: Tensor,
    eps: float,
    balance_eps: float,
    iterations: int,
) -> tuple[Tensor, Tensor, Tensor]:
    _fake_expand(residual, x, post, comb)
    torch._check(base.shape[0] == post.shape[1] * (post.shape[1] + 2), lambda: "layers differ in streams")
    return _fake_collapse(residual, weight, base, scale, eps, balance_eps, iterations)


def _fake_mean(residual: Tensor, streams: int) -> Tensor:
    torch._check(residual.dim() == 2 and streams > 0, lambda: "residual is [N, S * H]")
    torch._check(residual.shape[1] % streams == 0, lambda: "residual is [N, S * H]")
    return residual.new_empty(residual.shape[0], residual.shape[1] // streams)


define(
    "collapse_streams(Tensor residual, Tensor weight, Tensor base, Tensor scale, float eps, "
    "float balance_eps, int iterations) -> (Tensor, Tensor, Tensor)",
    cpu=collapse_streams,
    fake=_fake_collapse,
)
define(
    "expand_streams(Tensor(a!) residual, Tensor x, Tensor post, Tensor comb) -> ()",
    cpu=expand_streams,
    fake=_fake_expand,
)
define(
    "expand_collapse_streams(Tensor(a!) residual, Tensor x, Tensor post, Tensor comb, Tensor weight, "
    "Tensor base, Tensor scale, float eps, float balance_eps, int iterations) -> (Tensor, Tensor, Tensor)",
    cpu=expand_collapse_streams,
    fake=_fake_both,
)
define("stream_mean(Tensor residual, int streams) -> Tensor", cpu=stream_mean, fake=_fake_mean)
