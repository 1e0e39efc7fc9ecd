"""Which endpoints of a request become checkpoints."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

_MOST_CAPTURES = 8


def capture_budget(snapshot_rows: int, concurrency: int) -> int:
    """New checkpoints one request may publish: its share of the pool, at most eight, at least one when there
    is a pool at all."""
    if not snapshot_rows:
        return 0
    return min(max(snapshot_rows // concurrency, 1), _MOST_CAPTURES)


def prefill_endpoints(
    boundaries: Sequence[int],
    *,
    reused: int,
    prompt_length: int,
    max_tokens: int,
    budget: int,
    spacing: int = 1,
    answers_return_changed: bool = False,
) -> list[int]:
    """Token counts, ascending, at which prefill stops for a checkpoint.

    `boundaries` are complete-message ends, `reused` tokens are restored already. One capture is kept for the
    end of the request. The prompt's end comes next, when more than one token can follow it (one token shares
    the prompt's endpoint with the end). The rest goes to messages: all of them, or those nearest to equally
    spaced places between `reused` and the prompt's end; of two equally near ones the earlier.

    A message that ends fewer than `spacing` tokens behind the endpoint before it gets none: stopping for it
    costs a program, and continuing from the other end costs no more than one. Nor does the last message so
    close to the prompt's end: only the beginning of the answer lies between them, so nothing branches there,
    unless `answers_return_changed`: without their reasoning, say, whose mark may end the prompt.
    """
    endpoints: list[int] = []
    left = budget - 1
    if left > 0 and max_tokens > 1 and prompt_length > reused:
        endpoints.append(prompt_length)
        left -= 1
    eligible = _apart([reused, *boundaries], prompt_length, spacing, answers_return_changed)
    if left < len(eligible):
        eligible = _spread(eligible, reused, prompt_length, left)
    return sorted([*eligible, *endpoints])


def _apart(cuts: Sequence[int], end: int, spacing: int, branching: bool) -> list[int]:
    """The cuts behind the first that keep `spacing` tokens from the one before, the last also from `end`
    unless texts branch there."""
    last, kept = cuts[0], []
    newest = max(cuts)
    for cut in sorted(set(cuts[1:])):
        if cut - last >= spacing and cut < end and (branching or cut < newest or end - cut >= spacing):
            kept.append(cut)
            last = cut
    return kept


def _spread(eligible: Sequence[int], start: int, end: int, count: int) -> list[int]:
    chosen: set[int] = set()
    for index in range(1, count + 1):
        target = start + (end - start) * index / (count + 1)
        right = bisect_left(eligible, target)
        near = eligible[max(right - 1, 0) : right + 1]
        chosen.add(min(near, key=lambda cut: (abs(cut - target), cut)))
    return sorted(chosen)
