"""Edits that admit, bias or forbid tokens before penalties: grammar mask, logit bias, minimum length.

Rows are 1-D float32 arrays [V], edited in place.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float32]


def apply_grammar_mask(row: Row, mask: NDArray[np.int32]) -> None:
    """Forbid every token whose bit in `mask` i32[ceil(V/32)] (low bit first) is 0."""
    if (mask == -1).all():  # a free lane: comparing words costs a hundredth of unpacking bits
        return
    bits = np.unpackbits(mask.view(np.uint8), count=row.size, bitorder="little")
    row[bits == 0] = -np.inf


def apply_bias(row: Row, ids: NDArray[np.int32], values: NDArray[np.float32]) -> None:
    """Add `values` f32[B] to tokens `ids` i32[B]; -1 entries are unused, a repeated id adds up.

    https://platform.openai.com/docs/api-reference/chat/create (`logit_bias`).
    """
    used = ids >= 0
    np.add.at(row, ids[used], values[used])


def forbid_stop(row: Row, stop_ids: NDArray[np.int32]) -> None:
    """Forbid the tokens `stop_ids` i32[K] (-1 unused): the request has not reached its minimum length."""
    row[stop_ids[stop_ids >= 0]] = -np.inf
