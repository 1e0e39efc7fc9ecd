"""Embeddings from rows of a table as the host delivers them: bytes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flare.contract import DType
from flare.device.torch_types import TORCH_DTYPES
from flare_components.modules.parameters import empty_parameter


class TableEmbedding(nn.Module):
    """Rows u8[N, R, row bytes] -> [N, R * C] of `dtype`: the R rows of a token one behind the other.

    stored: the type of the C elements of a row; None for NVFP4, C/2 bytes of codes and then C/16 of scales,
    with one `global_scale` f32[1] for the table.
    """

    def __init__(self, stored: DType | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.stored, self.dtype = None if stored is None else TORCH_DTYPES[stored], dtype
        if stored is None:
            self.global_scale = empty_parameter(1, dtype=torch.float32)

    def forward(self, rows: Tensor) -> Tensor:
        """rows u8[N, R, row bytes] -> [N, R * C]."""
        if self.stored is not None:
            return rows.view(self.stored).flatten(1).to(self.dtype)
        decoded: Tensor = torch.ops.flare.nvfp4_rows(rows.flatten(0, 1), self.global_scale, self.dtype)
        return decoded.view(rows.shape[0], -1)
