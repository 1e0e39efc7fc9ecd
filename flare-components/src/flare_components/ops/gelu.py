"""`flare::gelu`: Gaussian error linear units, exact or by the hyperbolic tangent.

Torch's own approximate kernel gives the last elements of a tensor, those that fill no vector, other bits, so
a row's bits would depend on how many rows there are. Its erf and tanh compute all elements alike. Source:
Hendrycks and Gimpel (arXiv 1606.08415).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from flare_components.ops.schema import define


def gelu(x: Tensor, approximate: bool) -> Tensor:
    """x [...] -> `x * P(X <= x)` of X normally distributed, computed in FP32 and rounded once; contiguous.

    approximate: `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))` instead.
    """
    wide = x.float()
    if approximate:
        cubic = wide.square().mul_(0.044715).add_(1).mul_(wide)
        share = cubic.mul_(math.sqrt(2 / math.pi)).tanh_()
    else:
        share = torch.mul(wide, math.sqrt(0.5)).erf_()
    return share.add_(1).mul_(0.5).mul_(wide).to(x.dtype)


def _fake(x: Tensor, approximate: bool) -> Tensor:
    torch._check(x.is_floating_point(), lambda: "x is of floating type")
    return torch.empty_like(x, memory_format=torch.contiguous_format)


define("gelu(Tensor x, bool approximate) -> Tensor", cpu=gelu, fake=_fake)
