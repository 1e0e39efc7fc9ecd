"""`flare::linear`: a matrix product whose rows do not depend on how many rows run together.

oneDNN's BF16 kernels give a row the same bits at any row count (measured, and tested, from 1 to 512 rows).
The FP32 kernels of MKL and oneDNN do not below four rows, and MKL's only do at multiples of four, so rows
are padded. Padding also pays: four rows are faster than one or two (`binding.py`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.schema import define

MIN_ROWS = 4
"""Fewer rows run as this many."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x [N, in], weight [out, in], bias [out] or None -> [N, out]."""
    rows = x.shape[0]
    surplus = -rows % MIN_ROWS
    if x.dtype != torch.float32 or not surplus:
        return torch.nn.functional.linear(x, weight, bias)
    padded = torch.nn.functional.pad(x, (0, 0, 0, surplus))
    return torch.nn.functional.linear(padded, weight, bias)[:rows]


def _fake(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    torch._check(x.dim() == weight.dim() == 2 and x.shape[1] == weight.shape[1], lambda: "shapes differ")
    torch._check(x.dtype == weight.dtype, lambda: f"x is {x.dtype}, weight is {weight.dtype}")
    return x.new_empty(x.shape[0], weight.shape[0])


define("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor", cpu=linear, fake=_fake)
