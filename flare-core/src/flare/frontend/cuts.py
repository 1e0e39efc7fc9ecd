"""From places in a text to exact cuts between its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def exact_cuts(offsets: NDArray[Any], marks: Sequence[int]) -> dict[int, int]:
    """By mark, the number of leading tokens that end exactly there, strictly inside; 0 where none do.

    `offsets` [tokens, 2] are the first character of every token and the one behind its last. A cut is exact
    when every token before it ends at or before the mark and every token after it starts at or after it: a
    token across a mark, or tokens that share a character, cannot be parted.
    """
    if not marks:
        return {}
    ends = np.maximum.accumulate(offsets[:, 1])
    starts = np.minimum.accumulate(offsets[::-1, 0])[::-1]
    counts = np.searchsorted(ends, marks, side="right").tolist()
    return {
        mark: count if 0 < count < len(offsets) and starts[count] >= mark else 0
        for mark, count in zip(marks, counts, strict=True)
    }
