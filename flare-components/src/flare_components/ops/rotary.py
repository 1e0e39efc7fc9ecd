"""`flare::rotary`: rotary position embedding in the half-rotation layout.

For a head x = (a, b) of two halves the result is `x * cos + (-b, a) * sin`, as Transformers'
`apply_rotary_pos_emb`, with one rounding fewer.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from flare_components.ops.schema import define


@lru_cache(maxsize=8)
def signs(width: int, dtype: torch.dtype) -> Tensor:
    """[width]: -1 for the first half, 1 for the second."""
    return torch.ones(width, dtype=dtype).index_fill_(0, torch.arange(width // 2), -1)


def _joined(q: Tensor, k: Tensor) -> Tensor:
    """[N, H + KVH, D]: a view when k follows q in every row, which is how a fused projection leaves them."""
    rows, heads, width = q.shape
    if (
        q.stride() == k.stride()
        and k.storage_offset() - q.storage_offset() == heads * width
        and q.stride(1) == width
        and q.stride(2) == 1
        and q.untyped_storage().data_ptr() == k.untyped_storage().data_ptr()
    ):
        return q.as_strided((rows, heads + k.shape[1], width), q.stride())
    return torch.cat((q, k), 1)


def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """q [N, H, D], k [N, KVH, D], cos and sin [N, D], all of one type -> rotated q and k.

    The results are views of one new [N, H + KVH, D] tensor.
    """
    x = _joined(q, k)
    width = x.shape[2]
    out = torch.mul(x, cos.unsqueeze(1))
    out.addcmul_(x.roll(width // 2, -1), (sin * signs(width, sin.dtype)).unsqueeze(1))
    rotated_q, rotated_k = out.split((q.shape[1], k.shape[1]), 1)
    return rotated_q, rotated_k


def _fake(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    rows, heads, width = q.shape
    torch._check(k.shape[0] == rows and k.shape[2] == width and width % 2 == 0, lambda: "k does not fit q")
    torch._check(cos.shape == (rows, width) and sin.shape == cos.shape, lambda: "cos and sin are [N, D]")
    torch._check(q.dtype == k.dtype == cos.dtype == sin.dtype, lambda: "q, k, cos and sin differ in type")
    out = q.new_empty(rows, heads + k.shape[1], width)
    rotated_q, rotated_k = out.split((heads, k.shape[1]), 1)
    return rotated_q, rotated_k


define("rotary(Tensor q, Tensor k, Tensor cos, Tensor sin) -> (Tensor, Tensor)", cpu=rotary, fake=_fake)
