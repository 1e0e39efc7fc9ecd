"""Arithmetic on times of arrival."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from flare.bench.errors import BenchmarkError
from flare.bench.stream import Completion


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of `values` do not exceed, between neighbours by linear interpolation.

    `values` must not be empty; `percent` is 0 to 100 (numpy's method "linear").
    """
    assert values
    assert 0 <= percent <= 100
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def common_window(completions: Sequence[Completion]) -> tuple[float, float]:
    """From the latest first text to the earliest last text: every stream decodes all the time between.

    Raises: BenchmarkError when there is no such time.
    """
    start = max(completion.times[0] for completion in completions)
    end = min(completion.times[-1] for completion in completions)
    if end <= start:
        raise BenchmarkError("the streams did not decode at the same time; ask for more output tokens")
    return start, end


def tokens_per_second(completions: Sequence[Completion], window: tuple[float, float]) -> float:
    """Tokens of all streams together in a window, over its length: those of events after its start up to its
    end. The server's usage decides how many tokens there were, not the number of events."""
    start, end = window
    tokens = sum(
        count
        for completion in completions
        for arrived, count in zip(completion.times, completion.counts, strict=True)
        if start < arrived <= end
    )
    return tokens / (end - start)


def gaps(times: Sequence[float], window: tuple[float, float]) -> list[float]:
    """Milliseconds between neighbouring `times`, both inside `window`.

    Raises: BenchmarkError when the window has no two of them.
    """
    start, end = window
    inside = [arrived for arrived in times if start <= arrived <= end]
    if len(inside) < 2:
        raise BenchmarkError("a stream sent hardly any text in the measured time; ask for more output tokens")
    return [1000 * (later - earlier) for earlier, later in pairwise(inside)]
