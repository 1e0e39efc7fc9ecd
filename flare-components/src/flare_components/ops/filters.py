"""Min-p, top-k and top-p as one cut through the sorted logits, with exact ties.

Each filter keeps an upper set of the values, so together they keep every token whose logit reaches one
value. Equal logits are therefore kept or dropped together; no filter splits a tie:

* min-p keeps tokens with probability at least `min_p` times the largest;
* top-k keeps every token not below the k-th largest of those;
* top-p keeps every token for which the tokens strictly above it hold less than `top_p` of what is left.

The cut is looked for among some hundreds of the largest logits, then some thousands; only when those do
not decide it (flat distributions, wide ties, large k) are all values sorted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

# Candidates of the bounded passes, at least. Sorting all of 49152 values takes 1 ms here, a pass 0.1.
PASSES = (256, 2048)

Row = NDArray[np.float32]
Weights = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Filters:
    """Parameters of one request: `top_k` 0, `top_p` 1 and `min_p` 0 switch a filter off."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float


def weigh(values: Row, peak: float, temperature: float) -> Weights:
    """Unnormalised probabilities exp((value - peak) / temperature), float64; 1 at the peak."""
    weights = np.subtract(values, peak, dtype=np.float64)
    weights /= temperature
    return np.exp(weights, out=weights)


def keep(row: Row, peak: float, filters: Filters) -> tuple[NDArray[np.int64] | None, Weights]:
    """Kept tokens in vocabulary order and their weights; None for the ids when all V tokens are kept.

    row f32[V] with finite maximum `peak`; -inf is a forbidden token.
    """
    top_k = filters.top_k if 0 < filters.top_k < row.size else 0
    top_p = filters.top_p < 1.0
    if not (top_k or top_p or filters.min_p > 0.0):
        return None, weigh(row, peak, filters.temperature)
    mass = None
    if top_p and not top_k and filters.min_p <= 0.0:
        mass = float(weigh(row, peak, filters.temperature).sum())
    for size in (*PASSES, row.size):
        if top_k > size:
            continue
        ids = candidates(row, size)
        values = row[ids]
        descending = -np.sort(-values)
        count = _count(descending, ids.size == row.size, peak, filters, top_k, mass)
        if count is not None:
            kept = values >= descending[count - 1]
            return ids[kept], weigh(values[kept], peak, filters.temperature)
    raise AssertionError("the whole vocabulary decides every filter")


def candidates(row: Row, least: int) -> NDArray[np.int64]:
    """Ids in vocabulary order of all tokens not below some bound that at least `least` tokens reach.

    The bound is the `least`-th largest of the maxima of about three times as many groups: cheaper than
    selecting exactly `least` tokens, and never between equal logits.
    """
    width = row.size // (3 * least)
    if width < 2:
        return np.arange(row.size)
    groups = row.size // width
    # A group is every `groups`-th token: this axis is reduced in vectors.
    maxima = row[: groups * width].reshape(width, groups).max(axis=0)
    place = groups - least
    return np.flatnonzero(row >= np.partition(maxima, place)[place])


def _count(
    values: Row, complete: bool, peak: float, filters: Filters, top_k: int, mass: float | None
) -> int | None:
    """How many of `values` (descending) are kept, or None when values that are not listed matter.

    `top_k` is at most their number, 0 for off; `mass` is the weight of the whole vocabulary when top-p is
    the only filter, else None.
    """
    size = values.size
    count = int(np.count_nonzero(values > -np.inf))
    complete = complete or count < size
    weights = weigh(values, peak, filters.temperature)
    if filters.min_p > 0.0:
        count = min(count, int(np.count_nonzero(weights >= filters.min_p)))
    if top_k:
        count = min(count, int(np.count_nonzero(values >= values[top_k - 1])))
    if filters.top_p < 1.0:
        if mass is None and count == size and not complete:
            return None
        cumulative = torch.cumsum(torch.from_numpy(weights), 0).numpy()
        total = cumulative[count - 1] if mass is None else mass
        last = int(np.searchsorted(cumulative, filters.top_p * total))
        if last < size:
            count = min(count, int(np.count_nonzero(values >= values[last])))
    return count if count < size or complete else None
