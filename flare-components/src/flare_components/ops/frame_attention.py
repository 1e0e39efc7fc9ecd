"""`flare::frame_attention`: every patch of an image sees all patches of its own frame."""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.image_grid import check_grid
from flare_components.ops.schema import define

# The fused kernel itself: its choice among kernels would follow the number of rows.
_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


def frame_attention(q: Tensor, k: Tensor, v: Tensor, grid: Tensor, scale: float) -> Tensor:
    """Attention without a mask within frames.

    q, k and v [N, H, D], strided in N and H; grid i32[3] (see `image_grid`): each of grid[0] frames has
    grid[1] * grid[2] rows. -> [N, H, D], contiguous; rows behind the image are zero whatever q, k and v hold
    there.
    """
    frames, rows, columns = grid.tolist()
    size = rows * columns
    out = q.new_zeros(q.shape)
    for first in range(0, frames * size, size):
        frame = slice(first, first + size)
        query, keys, values = (x[frame].transpose(0, 1).unsqueeze(0) for x in (q, k, v))
        out[frame] = _flash(query, keys, values, scale=scale)[0][0].transpose(0, 1)
    return out


def _fake(q: Tensor, k: Tensor, v: Tensor, grid: Tensor, scale: float) -> Tensor:
    check_grid(grid)
    torch._check(q.dim() == 3 and q.shape == k.shape == v.shape, lambda: "q, k and v are [N, H, D]")
    torch._check(q.dtype == k.dtype == v.dtype, lambda: "q, k and v differ in type")
    return q.new_empty(q.shape)


define(
    "frame_attention(Tensor q, Tensor k, Tensor v, Tensor grid, float scale) -> Tensor",
    cpu=frame_attention,
    fake=_fake,
)
