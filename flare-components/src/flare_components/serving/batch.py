"""What a model's forward sees: packed token rows, lanes, and its state. Shapes: N rows, L lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Packed inputs of one program.

    ids i32[N] (-1 padding), positions i32[N], lanes i32[N] (-1 padding), query_start i32[L+1],
    context_lens i32[L] (tokens in the cache including this batch, 0 for an idle lane),
    page_table i32[L, MP], slot_mapping i64[N] (-1 padding), live_rows i32[L] (-1 idle). table_rows: for every
    table, the R rows u8[N, R, row bytes] of each token, zero for padding, whoever read them.
    Of a model with an image encoder: rope_positions i32[3, N] (time, row, column) and, in prefill, features
    [F, H] of a request's images with feature_indices i32[N] (-1 for text).
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
    features: Tensor | None = None
    feature_indices: Tensor | None = None
    rope_positions: Tensor | None = None

    def axial_positions(self) -> Tensor:
        """i32[3, N]: `rope_positions`, or those of text, which are equal on every axis."""
        return self.positions.expand(3, -1) if self.rope_positions is None else self.rope_positions

    def with_features(self, embedded: Tensor) -> Tensor:
        """Embedded tokens [N, H], features of images in the place of those that stand for them."""
        if self.features is None or self.feature_indices is None:
            return embedded
        features = torch.ops.flare.gather_rows(self.features, self.feature_indices)
        return torch.where((self.feature_indices >= 0).unsqueeze(1), features, embedded)


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


class ImageEncoder(Protocol):
    """Makes features of an image. A model that has one keeps it as `image_encoder`, and finds features and
    positions in its batches. `merge`^2 patches of `patch_elements` numbers make a feature of `width`."""

    patch_elements: int
    merge: int
    width: int

    def __call__(self, patches: Tensor, grid: Tensor) -> Tensor:
        """patches f32[N, patch_elements] of one image and grid i32[3] (`ValueSource.IMAGE_GRID`) -> features
        [N / merge^2, width] in the type of embeddings; those behind the image are not kept."""
