"""Arithmetic between several residual streams and one layer input.

`flare::scaled_silu`, `flare::gated_stream_mean` and `flare::gated_streams`. A row of S streams is [S * H],
stream by stream.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from flare_components.ops.elementwise import sigmoid, silu
from flare_components.ops.schema import define

_SMALLEST = 1e-6


def scaled_silu(x: Tensor, scale: float) -> Tensor:
    """`silu(x * scale)`. x [N, D], strided in N -> [N, D], contiguous; the product is rounded to x's type."""
    return silu(torch.mul(x, scale))


def gated_stream_mean(gate: Tensor, x: Tensor, streams: int) -> Tensor:
    """The mean over streams of `sigmoid(gate) * x`. gate and x [N, S * H] -> [N, H].

    Sigmoid and product are rounded to x's type, the mean is summed in FP32.
    """
    return (
        (sigmoid(gate).to(x.dtype) * x).unflatten(1, (streams, -1)).mean(1, dtype=torch.float32).to(x.dtype)
    )


def gated_streams(key: Tensor, query: Tensor, value: Tensor) -> Tensor:
    """A value for every stream, gated by how well the stream's query meets its key.

    key and query [N, S * H], value [N, H] -> [N, S * H]: `sigmoid(sign(a) * sqrt(max(|a|, 1e-6))) * value`
    with `a = key . query / sqrt(H)` of the stream, all in FP32.
    """
    width = value.shape[1]
    product = (key.float() * query.float()).unflatten(1, (-1, width))
    met = product.sum(2, keepdim=True).div_(math.sqrt(width))
    gate = sigmoid(met.abs().clamp_min_(_SMALLEST).sqrt_().mul_(met.sign()))
    return (gate * value.float().unsqueeze(1)).flatten(1).to(value.dtype)


def _fake_silu(x: Tensor, scale: float) -> Tensor:
    return x.new_empty(x.shape)


def _fake_mean(gate: Tensor, x: Tensor, streams: int) -> Tensor:
    torch._check(gate.shape == x.shape and gate.dtype == x.dtype, lambda: "gate does not fit x")
    torch._check(x.dim() == 2 and x.shape[1] % streams == 0, lambda: "x is [N, S * H]")
    return x.new_empty(x.shape[0], x.shape[1] // streams)


def _fake_gated(key: Tensor, query: Tensor, value: Tensor) -> Tensor:
    torch._check(key.shape == query.shape and key.dtype == query.dtype, lambda: "key does not fit query")
    torch._check(key.shape[1] % value.shape[1] == 0, lambda: "key is [N, S * H], value is [N, H]")
    return value.new_empty(key.shape)


define("scaled_silu(Tensor x, float scale) -> Tensor", cpu=scaled_silu, fake=_fake_silu)
define(
    "gated_stream_mean(Tensor gate, Tensor x, int streams) -> Tensor", cpu=gated_stream_mean, fake=_fake_mean
)
define("gated_streams(Tensor key, Tensor query, Tensor value) -> Tensor", cpu=gated_streams, fake=_fake_gated)
