"""`flare::linear`: a matrix product whose rows do not depend on how many rows run together.

oneDNN's kernels give a row the same bits at any row count (measured, and tested, from 1 to 512 rows in BF16;
in FP32 a single row takes another path, so rows are padded to four). `torch.nn.functional.linear` hands FP32
to MKL instead, whose choice of kernel, and so of bits, follows the row count and the processor. Padding also
pays: four rows are faster than one or two (`binding.py`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.schema import define

MIN_ROWS = 4
"""Fewer rows run as this many."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x [N, in], weight [out, in], bias [out] or None -> [N, out]."""
    if x.dtype != torch.float32:
        return torch.nn.functional.linear(x, weight, bias)
    if torch.backends.mkldnn.is_available():
        return _onednn(x, weight, bias)
    return _blocks(x, weight, bias)


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    rows = x.shape[0]
    padded = torch.nn.functional.pad(x, (0, 0, 0, max(MIN_ROWS - rows, 0))).contiguous()
    product: Tensor = torch.ops.mkldnn._linear_pointwise(padded, weight, bias, "none", [], "")
    return product[:rows]


def _blocks(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """One product for every MIN_ROWS rows: what holds for any library, at the price of many small calls."""
    rows = x.shape[0]
    padded = torch.nn.functional.pad(x, (0, 0, 0, -rows % MIN_ROWS))
    products = [torch.nn.functional.linear(part, weight, bias) for part in padded.split(MIN_ROWS)]
    return torch.cat(products)[:rows]


def _fake(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    torch._check(x.dim() == weight.dim() == 2 and x.shape[1] == weight.shape[1], lambda: "shapes differ")
    torch._check(x.dtype == weight.dtype, lambda: f"x is {x.dtype}, weight is {weight.dtype}")
    return x.new_empty(x.shape[0], weight.shape[0])


define("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor", cpu=linear, fake=_fake)
