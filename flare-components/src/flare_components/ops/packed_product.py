"""Products with packed matrices on the CPU: decoded a tile of rows at a time, never as a whole."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from flare_components.ops.linear import linear

TILE_ELEMENTS = 1 << 18
"""Elements of a decoded tile, 1 MiB in FP32."""


def packed_product(x: Tensor, rows: int, decode: Callable[[int, int], Tensor], *, step: int = 1) -> Tensor:
    """`x @ W.T` for a matrix W [rows, C] that `decode(start, stop)` gives rows of in FP32.

    x [N, C] of any float type -> FP32 [N, rows]. Sums are FP32; a row of x has the same bits beside any
    others. Tiles start at multiples of `step` and hold TILE_ELEMENTS, or `step` rows where these are more.
    """
    wide = x.float()
    tile = max(TILE_ELEMENTS // max(x.shape[1], 1) // step, 1) * step
    out = torch.empty(x.shape[0], rows)
    for start in range(0, rows, tile):
        stop = min(start + tile, rows)
        out[:, start:stop] = linear(wide, decode(start, stop), None)
    return out


def finish(product: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """FP32 product [N, R] plus bias [R], rounded once."""
    return (product if bias is None else product.add_(bias.float())).to(dtype)
