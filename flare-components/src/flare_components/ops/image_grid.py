"""Where the patches of an image lie: `flare::patch_positions`, and what encoders make of it.

An image has a grid i32[3]: patches in time, rows and columns. Its patches come frame by frame; within a frame
blocks of `merge` x `merge` neighbours follow each other in reading order, and so do the patches of a block.
Behind the patches of the image rows are padding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flare_components.ops.schema import define


def patch_positions(grid: Tensor, patches: int, merge: int) -> Tensor:
    """i32[2, N]: row and column of each of N `patches`, -1 behind those of the image.

    grid i32[3], whose rows and columns are multiples of merge.
    """
    time, rows, columns = grid.tolist()
    blocks = rows // merge, merge, columns // merge, merge
    frame = torch.stack(
        [
            axis.reshape(blocks).transpose(1, 2).flatten()
            for axis in torch.meshgrid(
                torch.arange(rows, dtype=torch.int32), torch.arange(columns, dtype=torch.int32), indexing="ij"
            )
        ]
    )
    positions = torch.full((2, patches), -1, dtype=torch.int32)
    positions[:, : time * rows * columns] = frame.repeat(1, time)
    return positions


def interpolated_rows(table: Tensor, positions: Tensor, grid: Tensor) -> Tensor:
    """What a square table says at every patch, when its corners lie at the corners of the image.

    table [S * S, D], row by row; positions i32[2, N]; grid i32[3]. -> [N, D]: the mean of the four nearest
    entries by their nearness, computed in FP32 and rounded to the table's type; zero for padding.
    """
    side = round(table.shape[0] ** 0.5)
    taps, shares = [], []
    for axis, extent in zip(positions.clamp_min(0), grid.tolist()[1:], strict=True):
        place = axis.float() * (side - 1) / max(extent - 1, 1)
        before = place.floor()
        behind = place - before
        taps.append((before.long(), (before.long() + 1).clamp_max(side - 1)))
        shares.append((1 - behind, behind))
    rows = torch.zeros(positions.shape[1], table.shape[1], dtype=torch.float32)
    for row, row_share in zip(taps[0], shares[0], strict=True):
        for column, share in zip(taps[1], shares[1], strict=True):
            entries = table.index_select(0, row * side + column).float()
            rows += entries * (row_share * share).unsqueeze(1)
    return rows.masked_fill_(positions[0].lt(0).unsqueeze(1), 0).to(table.dtype)


def axial_tables(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines for `flare::rotary`, whose half heads are divided between the axes.

    positions i32[A, N], padding -1; frequencies f32[F] in radians per position, the same of every axis.
    -> f32[N, 2 A F] each: the frequencies of axis 0, of axis 1, and all of them again.
    """
    angles = (positions.unsqueeze(2) * frequencies).transpose(0, 1).flatten(1)
    angles = torch.cat((angles, angles), 1)
    return angles.cos(), angles.sin()


def check_grid(grid: Tensor) -> None:
    """What every fake kernel demands of a grid."""
    torch._check(grid.shape == (3,) and not grid.is_floating_point(), lambda: "grid is i32[3]")


def _fake_positions(grid: Tensor, patches: int, merge: int) -> Tensor:
    check_grid(grid)
    torch._check(patches % merge**2 == 0, lambda: f"{patches} patches are no whole number of blocks")
    return grid.new_empty((2, patches), dtype=torch.int32)


def _fake_interpolated(table: Tensor, positions: Tensor, grid: Tensor) -> Tensor:
    check_grid(grid)
    torch._check(positions.dim() == 2 and positions.shape[0] == 2, lambda: "positions are i32[2, N]")
    torch._check(
        table.dim() == 2 and round(table.shape[0] ** 0.5) ** 2 == table.shape[0],
        lambda: "table is [S * S, D]",
    )
    return table.new_empty(positions.shape[1], table.shape[1])


def _fake_axial(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    torch._check(positions.dim() == 2 and frequencies.dim() == 1, lambda: "positions are [A, N]")
    torch._check(frequencies.dtype == torch.float32, lambda: "frequencies are f32[F]")
    shape = positions.shape[1], 2 * positions.shape[0] * frequencies.shape[0]
    return frequencies.new_empty(shape), frequencies.new_empty(shape)


define(
    "patch_positions(Tensor grid, int patches, int merge) -> Tensor",
    cpu=patch_positions,
    fake=_fake_positions,
)
define(
    "interpolated_rows(Tensor table, Tensor positions, Tensor grid) -> Tensor",
    cpu=interpolated_rows,
    fake=_fake_interpolated,
)
define(
    "axial_tables(Tensor positions, Tensor frequencies) -> (Tensor, Tensor)",
    cpu=axial_tables,
    fake=_fake_axial,
)
