"""Rotary tables of a step: at every row, and at the first token of every row's group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from flare_components.serving.batch import Batch, ModelState


@dataclass(frozen=True)
class RotaryTables:
    """cos and sin [N, R] at the rows' own positions, group_cos and group_sin [N, R] at those of the first
    token of the group that each row belongs to."""

    cos: Tensor
    sin: Tensor
    group_cos: Tensor
    group_sin: Tensor


class GroupRotary(nn.Module):
    """Tables for positions of several axes with interleaved frequencies.

    `frequencies` f32[F] is a constant of the recipe; `shares` are the frequencies of every axis. State:
    scheme `anchors`, a counter with one integer per axis: where the group of the last token began.
    """

    def __init__(
        self,
        *,
        frequencies: int,
        shares: Sequence[int],
        group: int,
        dtype: torch.dtype,
        scale: float = 1.0,
        anchors: str = "group_position",
    ) -> None:
        super().__init__()
        self.shares, self.group, self.dtype, self.scale = list(shares), group, dtype, scale
        self.anchors = anchors
        self.register_buffer("frequencies", torch.empty(frequencies, dtype=torch.float32, device="meta"))

    def forward(self, positions: Tensor, batch: Batch, state: ModelState) -> RotaryTables:
        """positions i32[A, N] on every axis. Once in a step."""
        lanes = batch.query_start, batch.context_lens, batch.live_rows
        starts = torch.ops.flare.group_starts(positions, state.rows[self.anchors][0], *lanes, self.group)
        cos, sin = torch.ops.flare.rotary_tables(
            torch.cat((positions, starts), 1), self.frequencies, self.shares, self.scale, self.dtype
        )
        rows = positions.shape[1]
        return RotaryTables(cos[:rows], sin[:rows], cos[rows:], sin[rows:])
