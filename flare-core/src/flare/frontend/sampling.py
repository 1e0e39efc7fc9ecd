"""Sampling parameters of a request, held to the policy that the core declares."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

from flare.contract import DefaultSampling
from flare.errors import RequestError

ZeroTemperature = Literal["reject", "clamp"]

LOWEST_TEMPERATURE = 0.01
"""Below this, dividing logits by the temperature loses all but one token to rounding."""

_WHY_NOT_GREEDY = (
    "temperature must be above 0: greedy decoding collapses the model's probability distribution, which "
    f"degrades and repeats. Use a small temperature such as {LOWEST_TEMPERATURE}, or start the server with "
    "--zero-temperature=clamp"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRequest:
    """What a client asked for; None where it left the choice to the core. Meanings as in the OpenAI API and
    vLLM's `SamplingParams`; `top_k` 0 or -1 switches the filter off."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParameters:
    """Complete parameters, inside the core's ranges. `top_k` 0 is off."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float


class SamplingPolicy:
    """The declared defaults and ranges. An absent range fixes a parameter at its default; a value outside a
    range clamps to the nearer end. A `top_k` that is off is the widest: it clamps to the upper end unless the
    range includes 0. Temperatures clamp to at least `LOWEST_TEMPERATURE`."""

    def __init__(self, defaults: DefaultSampling, zero_temperature: ZeroTemperature = "reject") -> None:
        self._defaults = defaults
        self._zero_temperature = zero_temperature

    def resolve(self, request: SamplingRequest) -> SamplingParameters:
        """Parameters to draw with. Raises RequestError, naming the field, for a value without a meaning and
        for temperature 0 unless the policy clamps it."""
        self._validate(request)
        values = {field.name: self._value(field.name, request) for field in fields(SamplingParameters)}
        return SamplingParameters(
            temperature=max(values["temperature"], LOWEST_TEMPERATURE),
            top_k=round(values["top_k"]),
            top_p=values["top_p"],
            min_p=values["min_p"],
            repetition_penalty=values["repetition_penalty"],
            presence_penalty=values["presence_penalty"],
            frequency_penalty=values["frequency_penalty"],
        )

    def _value(self, name: str, request: SamplingRequest) -> float:
        asked: float | None = getattr(request, name)
        bounds = getattr(self._defaults.ranges, name)
        if asked is None or bounds is None:
            return float(getattr(self._defaults, name))
        if name == "top_k" and asked <= 0:
            return 0.0 if bounds.low <= 0 else float(bounds.high)
        return float(bounds.clamp(asked))

    def _validate(self, request: SamplingRequest) -> None:
        for field in fields(request):
            value = getattr(request, field.name)
            if value is not None and not math.isfinite(value):
                raise RequestError(f"{field.name} must be a finite number, got {value}", field=field.name)
        temperature = request.temperature
        if temperature is not None and (
            temperature < 0 or (temperature == 0 and self._zero_temperature == "reject")
        ):
            raise RequestError(f"{_WHY_NOT_GREEDY}; got {temperature:g}", field="temperature")
        for name, valid, expected in (
            ("top_k", _at_least(request.top_k, -1), "a count, or 0 or -1 for no limit"),
            ("top_p", _within(request.top_p, 0.0, 1.0) and request.top_p != 0, "above 0 and at most 1"),
            ("min_p", _within(request.min_p, 0.0, 1.0), "between 0 and 1"),
            ("repetition_penalty", _above(request.repetition_penalty, 0.0), "above 0"),
            ("presence_penalty", _within(request.presence_penalty, -2.0, 2.0), "between -2 and 2"),
            ("frequency_penalty", _within(request.frequency_penalty, -2.0, 2.0), "between -2 and 2"),
        ):
            if not valid:
                raise RequestError(f"{name} must be {expected}, got {getattr(request, name)}", field=name)


def _at_least(value: float | None, low: float) -> bool:
    return value is None or value >= low


def _above(value: float | None, low: float) -> bool:
    return value is None or value > low


def _within(value: float | None, low: float, high: float) -> bool:
    return value is None or low <= value <= high
