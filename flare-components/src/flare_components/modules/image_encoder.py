"""An image encoder: patches of one image to features."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flare_components.modules.parameters import empty_parameter


class ImageEncoder(nn.Module):
    """A transformer over the patches of one image, with axial rotary positions, whose results are merged to
    features. With a `side` there are learned positions too, interpolated from a square table of `side` rows.

    `blocks` are called as Transformers' vision blocks are, with the grid in the place of segment borders (see
    `FrameAttention`); `merger` makes [N / merge^2, width] of [N, hidden], of `merge`^2 rows after each other
    (`ConvolutionMerger` is one). `frequencies` f32[F] is a constant of the recipe. Source: Dosovitskiy et al.
    (arXiv 2010.11929); Wang et al. (arXiv 2409.12191).
    """

    def __init__(
        self,
        *,
        patch_elements: int,
        hidden: int,
        width: int,
        frequencies: int,
        merge: int,
        blocks: nn.ModuleList,
        merger: nn.Module,
        dtype: torch.dtype,
        side: int | None = None,
    ) -> None:
        super().__init__()
        self.patch_elements, self.width, self.merge = patch_elements, width, merge
        self.patch_proj = nn.Linear(patch_elements, hidden, device="meta", dtype=dtype)
        self.position_table = None if side is None else empty_parameter(side * side, hidden, dtype=dtype)
        self.register_buffer("frequencies", torch.empty(frequencies, dtype=torch.float32, device="meta"))
        self.blocks, self.merger = blocks, merger

    def forward(self, patches: Tensor, grid: Tensor) -> Tensor:
        """patches f32[N, patch_elements] in the order of `flare::patch_positions`, grid i32[3] -> features
        [N / merge^2, width]; those behind the image mean nothing, and change nothing."""
        positions = torch.ops.flare.patch_positions(grid, patches.shape[0], self.merge)
        x = self.patch_proj(patches.to(self.patch_proj.weight.dtype))
        if self.position_table is not None:
            x = x + torch.ops.flare.interpolated_rows(self.position_table, positions, grid)
        turns = torch.ops.flare.axial_tables(positions, self.frequencies)
        for block in self.blocks:
            x = block(x, cu_seqlens=grid, position_embeddings=turns)
        features: Tensor = self.merger(x)
        return features
