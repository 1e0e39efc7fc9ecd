"""Request parameters against declared defaults and ranges."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import pytest

from flare.contract import DefaultSampling, Range, SamplingRanges
from flare.errors import RequestError
from flare.frontend import SamplingPolicy, SamplingRequest

NAMES = tuple(SamplingRanges.model_fields)
DEFAULTS: dict[str, Any] = {
    "temperature": 0.7,
    "top_k": 20,
    "top_p": 0.8,
    "min_p": 0.05,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.25,
}
ASKED: dict[str, Any] = {
    "temperature": 0.3,
    "top_k": 7,
    "top_p": 0.5,
    "min_p": 0.2,
    "repetition_penalty": 1.3,
    "presence_penalty": -1.0,
    "frequency_penalty": 1.5,
}


def defaults(**ranges: Range) -> DefaultSampling:
    return DefaultSampling(**DEFAULTS, ranges=SamplingRanges(**ranges), source="card", date="2026-01-01")


def resolve(declared: DefaultSampling, **asked: Any) -> dict[str, Any]:
    return asdict(SamplingPolicy(declared).resolve(SamplingRequest(**asked)))


def test_absent_fields_take_the_defaults() -> None:
    wide = defaults(**{name: Range(low=-100, high=100) for name in NAMES})

    assert resolve(wide) == DEFAULTS


@pytest.mark.parametrize("name", NAMES)
def test_an_absent_range_fixes_the_parameter(name: str) -> None:
    assert resolve(defaults(), **{name: ASKED[name]}) == DEFAULTS


@pytest.mark.parametrize("name", NAMES)
def test_a_value_inside_its_range_is_taken(name: str) -> None:
    ranges = defaults(**{name: Range(low=-10, high=30)})

    assert resolve(ranges, **{name: ASKED[name]}) == {**DEFAULTS, name: ASKED[name]}


@pytest.mark.parametrize("name", NAMES)
def test_values_outside_clamp_to_the_nearer_end(name: str) -> None:
    asked = ASKED[name]
    above = defaults(**{name: Range(low=asked + 1, high=asked + 2)})
    below = defaults(**{name: Range(low=-5, high=asked - 0.25 if name != "top_k" else asked - 2)})

    assert resolve(above, **{name: asked})[name] == asked + 1
    if name not in ("temperature",):
        assert resolve(below, **{name: asked})[name] == below.ranges.model_dump()[name]["high"]


@pytest.mark.parametrize(("low", "expected"), [(0, 0), (5, 50)])
@pytest.mark.parametrize("off", [0, -1])
def test_top_k_off_is_the_widest(off: int, low: int, expected: int) -> None:
    assert resolve(defaults(top_k=Range(low=low, high=50)), top_k=off)["top_k"] == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in NAMES for value in (math.nan, math.inf, -math.inf)),
        ("temperature", -0.5),
        ("top_k", -2),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("top_p", -0.1),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("repetition_penalty", 0.0),
        ("presence_penalty", 2.5),
        ("frequency_penalty", -2.5),
    ],
)
def test_values_without_a_meaning_are_refused(name: str, value: float) -> None:
    with pytest.raises(RequestError) as caught:
        resolve(defaults(), **{name: value})
    assert caught.value.field == name


def test_temperature_zero_is_refused_with_the_reason() -> None:
    with pytest.raises(RequestError, match="greedy decoding collapses") as caught:
        resolve(defaults(temperature=Range(low=0.1, high=1)), temperature=0)
    assert caught.value.field == "temperature"


@pytest.mark.parametrize(("low", "expected"), [(0.0, 0.01), (0.001, 0.01), (0.2, 0.2)])
def test_temperature_zero_clamps_to_the_smallest_allowed(low: float, expected: float) -> None:
    policy = SamplingPolicy(defaults(temperature=Range(low=low, high=1)), zero_temperature="clamp")

    assert policy.resolve(SamplingRequest(temperature=0)).temperature == expected
    with pytest.raises(RequestError):
        policy.resolve(SamplingRequest(temperature=-1))


def test_temperature_zero_of_a_fixed_temperature_clamps_to_the_default() -> None:
    policy = SamplingPolicy(defaults(), zero_temperature="clamp")

    assert policy.resolve(SamplingRequest(temperature=0)).temperature == DEFAULTS["temperature"]
