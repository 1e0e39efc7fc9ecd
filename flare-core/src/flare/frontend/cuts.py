"""From places in a text to exact cuts between its tokens."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate


def exact_cuts(offsets: Sequence[tuple[int, int]], marks: Sequence[int]) -> dict[int, int]:
    """By mark, the number of leading tokens that end exactly there, strictly inside; 0 where none do.

    `offsets` are the (start, end) characters of every token. A cut is exact when every token before it ends
    at or before the mark and every token after it starts at or after it: a token across a mark, or tokens
    that share a character, cannot be parted.
    """
    if not marks:
        return {}
    ends = list(accumulate((end for _, end in offsets), max))
    starts = list(accumulate((start for start, _ in reversed(offsets)), min))[::-1]
    cuts = {}
    for mark in marks:
        count = bisect_right(ends, mark)
        cuts[mark] = count if 0 < count < len(offsets) and starts[count] >= mark else 0
    return cuts
