"""`flare::gather_rows` and `flare::embedding`: rows of a table, with zero rows for padding."""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.schema import define


def gather_rows(x: Tensor, index: Tensor) -> Tensor:
    """x [R, ...], index i32 or i64 [N] -> [N, ...]; a negative index gives a zero row."""
    rows = x.index_select(0, index.clamp_min(0))
    absent = index.lt(0).view(-1, *[1] * (x.dim() - 1))
    return rows.masked_fill_(absent, 0)


def embedding(ids: Tensor, weight: Tensor) -> Tensor:
    """ids i32 or i64 [N], weight [V, D] -> [N, D]; a negative id (padding) gives a zero row."""
    return gather_rows(weight, ids)


def _fake_gather(x: Tensor, index: Tensor) -> Tensor:
    torch._check(index.dim() == 1 and not index.is_floating_point(), lambda: "index is an integer vector")
    return x.new_empty(index.shape[0], *x.shape[1:])


def _fake_embedding(ids: Tensor, weight: Tensor) -> Tensor:
    torch._check(weight.dim() == 2, lambda: "weight is [V, D]")
    return _fake_gather(weight, ids)


define("gather_rows(Tensor x, Tensor index) -> Tensor", cpu=gather_rows, fake=_fake_gather)
define("embedding(Tensor ids, Tensor weight) -> Tensor", cpu=embedding, fake=_fake_embedding)
