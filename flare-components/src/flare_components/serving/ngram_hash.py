"""Which rows of hashed n-gram tables a position reads, computed by the program."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flare_components.serving.batch import Batch, ModelState


class NgramHash(nn.Module):
    """Rows i64[N, E, G] of E tables for packed rows, -1 for padding; moves the token history `history` on.

    Rows of the three buffers are the `HashConstants` of one table each: constants of the recipe, or they come
    with the checkpoint.
    """

    def __init__(
        self, *, order: int, heads: int, boundary: int, tables: int = 1, history: str = "tokens"
    ) -> None:
        super().__init__()
        self.boundary, self.history = boundary, history
        columns = (order - 1) * heads
        for name, extent in (("multipliers", order), ("moduli", columns), ("offsets", columns)):
            self.register_buffer(name, torch.empty(tables, extent, dtype=torch.int64, device="meta"))

    def forward(self, batch: Batch, state: ModelState) -> Tensor:
        """Once in a step, before anything reads the rows."""
        rows: Tensor = torch.ops.flare.ngram_rows(
            batch.ids,
            state.rows[self.history][0],
            batch.query_start,
            batch.context_lens,
            batch.live_rows,
            self.multipliers,
            self.moduli,
            self.offsets,
            self.boundary,
        )
        return rows
