"""What a model's forward sees: packed token rows, lanes, and its state. Shapes: N rows, L lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Packed inputs of one program.

    ids i32[N] (-1 padding), positions i32[N], lanes i32[N] (-1 padding), query_start i32[L+1],
    context_lens i32[L] (tokens in the cache including this batch, 0 for an idle lane),
    page_table i32[L, MP], slot_mapping i64[N] (-1 padding), live_rows i32[L] (-1 idle). table_rows: for every
    table whose rows the host delivers, the R rows u8[N, R, row bytes] of each token, zero for padding.
    """

    ids: Tensor
    positions: Tensor
    lanes: Tensor
    query_start: Tensor
    context_lens: Tensor
    page_table: Tensor
    slot_mapping: Tensor
    live_rows: Tensor
    table_rows: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelState:
    """Views of the declared cache schemes: `pages[scheme][layer]` is [pages, entries, *shape],
    `rows[scheme][layer]` is [rows, *shape]."""

    pages: Mapping[str, Sequence[Tensor]]
    rows: Mapping[str, Sequence[Tensor]]


class Forward(Protocol):
    """A model prepared for serving."""

    def hidden(self, batch: Batch, state: ModelState) -> Tensor:
        """Final hidden vectors [N, H]; reads and writes `state` for active rows only."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Vocabulary logits [k, V] of hidden vectors [k, H]."""
