"""Capacities and sampling ranges that cannot be are refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from flare.contract import Capacities, Range, SpeculativeShape

GOOD: dict[str, Any] = {
    "concurrency": 3,
    "context": 100,
    "pages": 10,
    "snapshot_rows": 5,
    "decode_lanes": (1, 2, 4),
    "prefill_tokens": (16, 32),
    "stop_token_ids": 4,
    "logit_bias": 0,
    "logprobs": 0,
}


def test_rows_are_dealt_without_overlap() -> None:
    capacities = Capacities(**GOOD, verification_width=2)
    assert capacities.rows == 1 + 3 * 2 + 5
    live = [capacities.live_row(slot) + step for slot in range(3) for step in range(2)]
    assert live == [1, 2, 3, 4, 5, 6]  # row 0 is the null row; snapshots follow


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"decode_lanes": (2, 1, 4)}, "ascending"),
        ({"decode_lanes": (1, 1, 4)}, "ascending"),
        ({"decode_lanes": (0, 4)}, "positive"),
        ({"decode_lanes": ()}, "decode_lanes"),
        ({"decode_lanes": (1, 2)}, "largest decode program has 2 lanes for concurrency 3"),
        ({"prefill_tokens": (32, 16)}, "ascending"),
        ({"prefill_tokens": ()}, "prefill_tokens"),
        ({"image_patches": (8, 4)}, "ascending"),
        ({"concurrency": 0}, "concurrency"),
        ({"context": 0}, "context"),
        ({"pages": 0}, "pages"),
        ({"snapshot_rows": -1}, "snapshot_rows"),
        ({"completion_tokens": 0}, "completion_tokens"),
    ],
)
def test_impossible(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Capacities(**GOOD | change)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 3, 4, 1), "rows 1 outside"),
        ((2, 3, 4, 9), "rows 9 outside"),
        ((2, 2, 4, 8), "width 4 exceeds depth 2"),
    ],
)
def test_impossible_speculation(shape: tuple[int, int, int, int], message: str) -> None:
    names = ("requests", "depth", "width", "rows")
    assert SpeculativeShape(requests=2, depth=3, width=4, rows=8).rows == 8
    with pytest.raises(ValidationError, match=message):
        SpeculativeShape(**dict(zip(names, shape, strict=True)))


def test_range_clamps_to_the_nearer_end() -> None:
    bounds = Range(low=0.5, high=2)
    assert [bounds.clamp(value) for value in (0, 0.5, 1, 2, 9)] == [0.5, 0.5, 1, 2, 2]
    for low, high in ((2.0, 1.0), (float("nan"), 1.0)):
        with pytest.raises(ValidationError, match="is above high"):
            Range(low=low, high=high)
