"""`flare::rms_norm` and `flare::add_rms_norm`: root mean square normalisation over the last dimension.

The arithmetic is that of Transformers' RMS norms: statistics in FP32, the normalised row cast back to the
activation type, then multiplied by the weight. Written for few calls, not for few operations: at decode
sizes each call costs more than its arithmetic.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from flare_components.ops.schema import define


@lru_cache(maxsize=8)
def _epsilon(eps: float) -> Tensor:
    return torch.full((1,), eps)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [..., D], weight [D] -> `weight * (x / sqrt(mean(x^2) + eps))`, in x's type."""
    length = torch.linalg.vector_norm(x, 2, -1, True, dtype=torch.float32)
    scale = torch.addcmul(_epsilon(eps), length, length, value=1 / x.shape[-1]).rsqrt_()
    return torch.mul(x, scale).to(x.dtype).mul_(weight)


def add_rms_norm(residual: Tensor, x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`residual += x` in place, then the norm of the sum. residual and x [..., D], weight [D]."""
    return rms_norm(residual.add_(x), weight, eps)


def _fake_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    torch._check(weight.shape == x.shape[-1:] and weight.dtype == x.dtype, lambda: "weight does not fit x")
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _fake_add_norm(residual: Tensor, x: Tensor, weight: Tensor, eps: float) -> Tensor:
    torch._check(residual.shape == x.shape and residual.dtype == x.dtype, lambda: "residual does not fit x")
    return _fake_norm(x, weight, eps)


define("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor", cpu=rms_norm, fake=_fake_norm)
define(
    "add_rms_norm(Tensor(a!) residual, Tensor x, Tensor weight, float eps) -> Tensor",
    cpu=add_rms_norm,
    fake=_fake_add_norm,
)
