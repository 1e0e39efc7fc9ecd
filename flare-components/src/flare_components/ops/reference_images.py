"""Slow, plain references of the operators on images: the oracle of their tests. Nothing else imports this."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def patch_positions(grid: Tensor, patches: int, merge: int) -> Tensor:
    """Patch by patch."""
    time, rows, columns = grid.tolist()
    places = [
        (block_row + row, block_column + column)
        for _ in range(time)
        for block_row in range(0, rows, merge)
        for block_column in range(0, columns, merge)
        for row in range(merge)
        for column in range(merge)
    ]
    places += [(-1, -1)] * (patches - len(places))
    return torch.tensor(places, dtype=torch.int32).T


def interpolated_rows(table: Tensor, positions: Tensor, grid: Tensor) -> Tensor:
    """Of the whole image at once, by torch's interpolation in FP64, then looked up."""
    side, (_, rows, columns) = math.isqrt(table.shape[0]), grid.tolist()
    square = table.double().view(1, side, side, -1).permute(0, 3, 1, 2)
    resized = torch.nn.functional.interpolate(square, (rows, columns), mode="bilinear", align_corners=True)
    out = torch.zeros(positions.shape[1], table.shape[1], dtype=torch.float64)
    for patch, (row, column) in enumerate(positions.T.tolist()):
        if row >= 0:
            out[patch] = resized[0, :, row, column]
    return out.to(table.dtype)


def axial_tables(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Patch by patch, in FP64."""
    angles = []
    for place in positions.T.tolist():
        half = [axis * frequency for axis in place for frequency in frequencies.double().tolist()]
        angles.append(half + half)
    wide = torch.tensor(angles, dtype=torch.float64)
    return wide.cos().float(), wide.sin().float()


def frame_attention(q: Tensor, k: Tensor, v: Tensor, grid: Tensor, scale: float) -> Tensor:
    """Row by row, in FP64."""
    time, rows, columns = grid.tolist()
    size, out = rows * columns, torch.zeros_like(q)
    for row in range(time * size):
        first = row // size * size
        keys, values = (x[first : first + size].double() for x in (k, v))
        weights = torch.softmax((keys * q[row].double()).sum(2) * scale, 0)
        out[row] = (weights.unsqueeze(2) * values).sum(0).to(q.dtype)
    return out


def gelu(x: Tensor, approximate: bool) -> Tensor:
    """In FP64."""
    wide = x.double()
    if approximate:
        inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
        return (0.5 * wide * (1 + torch.tanh(inner))).to(x.dtype)
    return (0.5 * wide * (1 + torch.erf(wide / math.sqrt(2)))).to(x.dtype)
