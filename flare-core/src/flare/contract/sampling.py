"""Sampling policy that a recipe declares and every request is held to."""

from __future__ import annotations

from pydantic import Field, model_validator

from flare.contract.base import ContractModel


class Range(ContractModel):
    """Inclusive bounds of a request parameter; values outside clamp to the nearer end."""

    low: float
    high: float

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if not self.low <= self.high:
            raise ValueError(f"range low {self.low} is above high {self.high}")
        return self

    def clamp(self, value: float) -> float:
        """`value`, or the nearer end of the range when it lies outside."""
        return min(max(value, self.low), self.high)


class SamplingRanges(ContractModel):
    """One optional range per parameter. An absent range fixes the parameter at its default."""

    temperature: Range | None = None
    top_k: Range | None = None
    top_p: Range | None = None
    min_p: Range | None = None
    repetition_penalty: Range | None = None
    presence_penalty: Range | None = None
    frequency_penalty: Range | None = None


class DefaultSampling(ContractModel):
    """Complete sampling defaults from the model card, and the ranges a request may move in.

    `source` and `date` say where and when the recommendation was read.
    """

    temperature: float = Field(gt=0)
    top_k: int = Field(ge=0)
    top_p: float = Field(gt=0, le=1)
    min_p: float = Field(ge=0, le=1)
    repetition_penalty: float = Field(gt=0)
    presence_penalty: float
    frequency_penalty: float
    ranges: SamplingRanges = SamplingRanges()
    source: str
    date: str
