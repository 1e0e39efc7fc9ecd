"""Log-probabilities of the model's own distribution: before temperature, penalties and filters."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from flare_components.ops.filters import candidates

Row = NDArray[np.float32]


def log_normalizer(row: Row, peak: float) -> float:
    """log(sum(exp(row))) of row f32[V] with finite maximum `peak`, summed in float64."""
    return peak + math.log(np.exp(row - np.float32(peak)).sum(dtype=np.float64))


def most_likely(row: Row, count: int) -> tuple[NDArray[np.int64], Row]:
    """Ids and logits of the `count` largest entries, descending; of equal logits the smaller id is first,
    also where a tie crosses the end of the list. Fewer when V is smaller."""
    if count == 0:
        return np.empty(0, np.int64), np.empty(0, np.float32)
    ids = candidates(row, count)
    ids = ids[np.argsort(-row[ids], kind="stable")[:count]]
    return ids, row[ids]
