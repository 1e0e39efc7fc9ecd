"""What a model wants of an image: its size, its numbers, their order, and the tokens that stand for it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from flare.contract.base import ContractModel

Positive = Annotated[int, Field(gt=0)]
Level = Annotated[int, Field(ge=0, le=255)]


class ImageFit(StrEnum):
    """How an image gets sides that are multiples of a whole number of patches. Each value names an
    interpreter in `flare.frontend.images`, never a model."""

    STRETCH = "stretch"  # both sides are rounded, within the bounds of the area; the image fills them
    PAD = "pad"  # sides are rounded up; the image keeps its proportions, black fills right and bottom


class ImageProfile(ContractModel):
    """Pixels are RGB, resized with a bicubic filter, divided by 255, then `(x - mean) / std` by channel, F32.

    Patches are squares of `patch` pixels, repeated `temporal` times, in the order channel, time, row, column;
    `merge` x `merge` neighbours follow each other and become one feature. The area of an image lies between
    `min_pixels` and `max_pixels`, which bound what is resized, and not what a client may send. `placeholder`
    is the token that a template writes once for an image and that stands for each of its features.

    An image whose longer side is more than `max_aspect_ratio` times the shorter one is refused; with None
    none is. Transparent pixels are laid over the colour `background`; with None transparency is dropped.
    """

    fit: ImageFit
    patch: Positive
    merge: Positive
    temporal: Positive
    min_pixels: Positive
    max_pixels: Positive
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    placeholder: int = Field(ge=0)
    max_aspect_ratio: Positive | None = 200
    background: tuple[Level, Level, Level] | None = None

    @property
    def unit(self) -> int:
        """Sides are multiples of so many pixels."""
        return self.patch * self.merge

    @property
    def patch_elements(self) -> int:
        """Numbers of one patch."""
        return 3 * self.temporal * self.patch**2

    @model_validator(mode="after")
    def _possible(self) -> ImageProfile:
        if not self.unit**2 <= self.max_pixels or self.min_pixels > self.max_pixels:
            raise ValueError(f"no image has between {self.min_pixels} and {self.max_pixels} pixels")
        if min(self.std) <= 0:
            raise ValueError(f"standard deviations {self.std}")
        return self
