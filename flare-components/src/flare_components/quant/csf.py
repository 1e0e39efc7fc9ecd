"""Compressed E4M3 block scales, codec 0: a base byte per row and a four-bit offset per scale.

The bytes of a scale matrix [R, C] are kept exactly, in slabs of 16 rows:

* `fixed` U8 [R/16, 16 * (1 + C/2)]: per slab 16 row bases, then 16 rows of C/2 bytes with two offsets each,
  the even column's in the low nibble. A scale's byte is base plus offset.
* `exceptions` U32 [n], sorted: bytes that do not fit their row, as `byte << 24 | row * C + column`.

Checkpoints store them as `weight_scale.nvfp4_csf_fixed` and `weight_scale.nvfp4_csf_exceptions` (codec
"byte-window4-fixed-stream-u24-exceptions/1"). Source: `CsfScales` of FlashInfer 0.7.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from flare_components.quant.csf_exceptions import POSITIONS, patch, split

SLAB = 16
WINDOW = 16
HIGHEST_BASE = 256 - WINDOW


@dataclass(frozen=True)
class CsfScales:
    """The two streams of one matrix, as described above."""

    fixed: Tensor
    exceptions: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the scale matrix."""
        return self.fixed.shape[0] * SLAB, (self.fixed.shape[1] // SLAB - 1) * 2


def encode(scales: Tensor) -> CsfScales:
    """Compress scales [R, C], E4M3 or their bytes as U8; R is a multiple of 16, C even, R * C at most 2^24.

    A row's base is the lowest start of a window of 16 byte values that holds the most of its bytes.
    Raises ValueError for another shape.
    """
    rows, columns = scales.shape
    if rows % SLAB or columns % 2 or not 0 < rows * columns <= POSITIONS:
        raise ValueError(
            f"scales of shape {[rows, columns]} cannot be compressed: rows come in 16, columns in 2"
        )
    content = scales.view(torch.uint8).long()
    counts = torch.zeros(rows, 256, dtype=torch.long).scatter_add_(1, content, torch.ones_like(content))
    before = torch.nn.functional.pad(counts.cumsum(1), (1, 0))
    held = before[:, WINDOW:] - before[:, :-WINDOW]
    base = held.argmax(1, keepdim=True)  # the first of equals
    offset = content - base
    outside = (offset < 0) | (offset >= WINDOW)
    offset = offset.masked_fill(outside, 0).to(torch.uint8)
    packed = offset[:, ::2] | (offset[:, 1::2] << 4)
    fixed = torch.cat([base.to(torch.uint8).view(-1, SLAB), packed.view(rows // SLAB, -1)], 1)
    position = outside.flatten().nonzero().flatten()
    words = content.flatten()[position] << 24 | position
    return CsfScales(fixed, words.to(torch.uint32))


def decode(compressed: CsfScales) -> Tensor:
    """The bytes of the scales, U8 [R, C]. Raises ValueError for streams that no encoder writes."""
    fixed = compressed.fixed
    if fixed.dim() != 2 or fixed.dtype != torch.uint8 or fixed.shape[1] % SLAB or fixed.shape[1] < 2 * SLAB:
        raise ValueError(
            f"a fixed stream is U8 [R/16, 16 * (1 + C/2)], not {fixed.dtype} {list(fixed.shape)}"
        )
    if int(fixed[:, :SLAB].max()) > HIGHEST_BASE:
        raise ValueError(f"a row base is above {HIGHEST_BASE}")
    rows, columns = compressed.shape
    positions, content = split(compressed.exceptions, rows * columns)
    return patch(decode_fixed(fixed), positions, content)


def decode_fixed(fixed: Tensor) -> Tensor:
    """Bytes of the scales, U8 [R, C], before exceptions are put in."""
    rows = fixed.shape[0] * SLAB
    base = fixed[:, :SLAB].reshape(rows, 1)
    packed = fixed[:, SLAB:].reshape(rows, -1)
    offsets = torch.stack((packed & 15, packed >> 4), -1).flatten(1)
    return offsets.add_(base)
