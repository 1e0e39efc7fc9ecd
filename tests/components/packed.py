"""Storage of declared cache schemes, poisoned, and packed batches over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from flare.contract import BufferView, CacheScheme, page_geometry, row_geometry
from flare.contract.geometry import BlockGeometry
from flare.contract.schemes import GroupedScheme
from flare.device.torch_types import TORCH_DTYPES
from flare_components.serving import Batch, ModelState

Part = tuple[int, int]
"""A lane and how many tokens it consumes."""


class PackedState:
    """Pages and rows of `lanes` sequences, filled with NaN but for the null row; lanes begin in rows and
    pages that are out of order. Sequence l consumed `consumed[l]` tokens."""

    def __init__(
        self,
        schemes: Sequence[CacheScheme],
        *,
        lanes: int = 1,
        page_tokens: int = 8,
        context: int = 64,
        seed: int = 0,
    ) -> None:
        page, row = page_geometry(schemes, page_tokens), row_geometry(schemes)
        order = torch.Generator().manual_seed(seed)
        lane_pages = -(-context // page_tokens)
        pages, rows = 1 + lanes * lane_pages, 2 + lanes
        self.page_tokens = page_tokens
        self.page_bytes = torch.full((pages, page.nbytes), 0xFF, dtype=torch.uint8)
        self.row_bytes = torch.full((rows, row.nbytes), 0xFF, dtype=torch.uint8)
        self.row_bytes[0] = 0
        layers = {scheme.name: scheme.layers for scheme in schemes}
        layers |= {f"{s.name}.open": s.layers for s in schemes if isinstance(s, GroupedScheme)}
        self.state = ModelState(
            pages=_views(self.page_bytes, page, layers), rows=_views(self.row_bytes, row, layers)
        )
        self.table = (1 + torch.randperm(pages - 1, generator=order)).view(lanes, lane_pages).int()
        self.rows = (1 + torch.randperm(rows - 1, generator=order))[:lanes].tolist()
        self.consumed = [0] * lanes
        for lane in range(lanes):
            self.begin(lane)

    def begin(self, lane: int) -> None:
        """Lane starts a new sequence: its row becomes a copy of the null row, as a start program makes it."""
        self.row_bytes[self.rows[lane]] = self.row_bytes[0]
        self.consumed[lane] = 0

    def batch(
        self, parts: Sequence[Part], ids: Tensor | None = None, *, padding: int = 0, idle: int = 0
    ) -> Batch:
        """Lanes of `parts` in order, then `idle` lanes of one padding row each, then `padding` rows. The
        parts' tokens are consumed."""
        counts = [count for _, count in parts] + [1] * idle
        live, rows = sum(count for _, count in parts), sum(counts) + padding
        positions, lanes = torch.zeros(rows, dtype=torch.int32), torch.full((rows,), -1, dtype=torch.int32)
        contexts, tables, owners, start = [], [], [], 0
        for number, (lane, count) in enumerate(parts):
            past = self.consumed[lane]
            positions[start : start + count] = torch.arange(past, past + count)
            lanes[start : start + count] = number
            self.consumed[lane] = past + count
            contexts.append(past + count)
            tables.append(self.table[lane])
            owners.append(self.rows[lane])
            start += count
        page_table = torch.stack(tables + [torch.zeros_like(self.table[0])] * idle)
        packed = torch.full((rows,), -1, dtype=torch.int32)
        if ids is not None:
            packed[:live] = ids
        return Batch(
            ids=packed,
            positions=positions,
            lanes=lanes,
            query_start=torch.tensor([0, *counts]).cumsum(0).int(),
            context_lens=torch.tensor(contexts + [0] * idle, dtype=torch.int32),
            page_table=page_table,
            slot_mapping=torch.ops.flare.slot_mapping(page_table, positions, lanes, self.page_tokens),
            live_rows=torch.tensor(owners + [-1] * idle, dtype=torch.int32),
        )

    def sequence_bytes(self, lane: int) -> list[Tensor]:
        """What belongs to lane: its row and its pages."""
        return [self.row_bytes[self.rows[lane]], self.page_bytes[self.table[lane].long()]]


def _views(blocks: Tensor, geometry: BlockGeometry, layers: dict[str, int]) -> dict[str, list[Tensor]]:
    return {
        field.name: [
            as_tensor(blocks, geometry.view("", field.name, len(blocks), layer))
            for layer in range(layers[field.name])
        ]
        for field in geometry.fields
    }


def as_tensor(blocks: Tensor, view: BufferView) -> Tensor:
    """The tensor that `view` describes in the bytes of `blocks`."""
    typed = blocks.view(-1).view(TORCH_DTYPES[view.dtype])
    assert view.strides is not None
    return typed.as_strided(view.shape, view.strides, view.offset // typed.element_size())


Forward = Callable[[slice, Batch, ModelState], Tensor]
"""Outputs of the rows `slice` of one sequence, given as a batch of one lane."""


def in_cuts(forward: Forward, storage: PackedState, cuts: Sequence[int], ids: Tensor | None = None) -> Tensor:
    """Run one sequence on lane 0 in calls of `cuts` tokens; the outputs of all rows."""
    storage.begin(0)
    outputs, start = [], 0
    for count in cuts:
        part = slice(start, start + count)
        batch = storage.batch([(0, count)], None if ids is None else ids[part])
        outputs.append(forward(part, batch, storage.state))
        start += count
    return torch.cat(outputs)


def two_way_cuts(length: int) -> list[list[int]]:
    """One call, every cut in two, and one call for every token."""
    return [[length], *([cut, length - cut] for cut in range(1, length)), [1] * length]
