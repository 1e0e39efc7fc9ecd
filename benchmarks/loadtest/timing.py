"""Arithmetic on times of arrival."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from loadtest.completion import Completion
from loadtest.errors import BenchmarkError


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


def tokens_per_second(completions: Sequence[Completion]) -> float:
    """Tokens of all streams together in their common window, over its length.

    Events after the window's start up to its end count, each as the mean number of tokens per event of its
    stream: the server's usage decides how many tokens there were, not the number of events.
    """
    start, end = common_window(completions)
    tokens = sum(
        completion.tokens_per_event * sum(start < arrived <= end for arrived in completion.times)
        for completion in completions
    )
    return tokens / (end - start)


def gaps(completion: Completion, window: tuple[float, float]) -> list[float]:
    """Seconds between neighbouring events with text, both inside `window`.

    Raises: BenchmarkError when the window has no two events of the stream.
    """
    start, end = window
    inside = [arrived for arrived in completion.times if start <= arrived <= end]
    if len(inside) < 2:
        raise BenchmarkError("a stream sent hardly any text while all decoded; ask for more output tokens")
    return [later - earlier for earlier, later in pairwise(inside)]
