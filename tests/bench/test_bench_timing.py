"""Percentiles, and the window in which every stream decodes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flare.bench.errors import BenchmarkError
from flare.bench.stream import Completion
from flare.bench.timing import common_window, gaps, percentile, tokens_per_second


def stream(*times: float, tokens: int | None = None) -> Completion:
    tokens = len(times) if tokens is None else tokens
    return Completion(
        sent=0.0,
        times=times,
        counts=(tokens / len(times),) * len(times),
        text="",
        prompt_tokens=1,
        completion_tokens=tokens,
        cached_tokens=None,
    )


def rate(*completions: Completion) -> float:
    return tokens_per_second(completions, common_window(completions))


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=40),
    st.sampled_from([0, 1, 50, 90, 99, 100]),
)
def test_percentiles_are_those_of_numpy(values: list[float], percent: int) -> None:
    assert percentile(values, percent) == pytest.approx(float(np.percentile(values, percent)))


def test_one_stream_counts_the_tokens_after_its_first() -> None:
    assert rate(stream(1.0, 1.1, 1.2, 1.3, 1.4)) == pytest.approx(10)


def test_only_the_time_when_all_streams_decode_counts() -> None:
    early = stream(*(1.0 + step for step in range(10)))
    late = stream(*(4.5 + 0.5 * step for step in range(20)))
    assert common_window([early, late]) == (4.5, 10.0)
    # early: 5 to 10 is six tokens; late: 5.0 to 10.0 by halves is eleven.
    assert rate(early, late) == pytest.approx((6 + 11) / 5.5)
    assert rate(late, early) == pytest.approx((6 + 11) / 5.5)


def test_joined_tokens_count_as_many_as_they_are() -> None:
    assert rate(stream(0.0, 1.0, 2.0, tokens=12)) == pytest.approx(4)
    uneven = dataclasses.replace(stream(0.0, 1.0, 2.0, tokens=12), counts=(1.0, 3.0, 8.0))
    assert rate(uneven) == pytest.approx((3 + 8) / 2)


@pytest.mark.parametrize("second", [stream(2.0, 3.0), stream(5.0, 6.0)])
def test_streams_one_after_the_other_are_no_measurement(second: Completion) -> None:
    with pytest.raises(BenchmarkError, match="at the same time"):
        common_window([stream(0.0, 1.0, 2.0), second])


def test_one_event_has_no_speed() -> None:
    with pytest.raises(BenchmarkError, match="at the same time"):
        common_window([stream(1.0)])


def test_gaps_are_between_neighbours_inside_the_window() -> None:
    times = (1.0, 1.5, 3.5, 4.0)
    assert gaps(times, (1.0, 4.0)) == [500, 2000, 500]
    assert gaps(times, (1.2, 3.9)) == [2000]
    with pytest.raises(BenchmarkError, match="hardly any text"):
        gaps(times, (2.0, 3.9))
