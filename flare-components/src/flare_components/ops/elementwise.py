"""Elementwise functions whose bits do not depend on an element's place.

Torch's own sigmoid, SiLU and softplus compute the last elements of a tensor, those that fill no vector, with
another exponential, so a row's bits would depend on how many rows there are. Its exp and log1p compute all
elements alike.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Above this, softplus(x) is x in FP32.
_LINEAR_FROM = 20.0


def sigmoid(x: Tensor) -> Tensor:
    """f32: the logistic function of x of any floating type, in FP32 and not rounded to x's type."""
    return torch.neg(x.float()).exp_().add_(1).reciprocal_()


def silu(x: Tensor) -> Tensor:
    """`x * sigmoid(x)` in FP32, rounded once to x's type; contiguous."""
    return sigmoid(x).mul_(x).to(x.dtype)


def softplus(x: Tensor) -> Tensor:
    """`log(1 + exp(x))`, x f32."""
    return torch.where(x > _LINEAR_FROM, x, x.exp().log1p_())
