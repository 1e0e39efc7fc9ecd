"""Target sizes: sides that are whole numbers of merged patches, and areas within a profile's bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flare.contract import ImageFit, ImageProfile


@dataclass(frozen=True, slots=True)
class Fitted:
    """An image of `content` (height, width) in the top left corner of a `canvas`."""

    content: tuple[int, int]
    canvas: tuple[int, int]


def fitted(height: int, width: int, profile: ImageProfile) -> Fitted:
    """Where an image of `height` x `width` pixels goes."""
    return _FITS[profile.fit](height, width, profile)


def _stretched(height: int, width: int, profile: ImageProfile) -> Fitted:
    unit = profile.unit
    # Python rounds halves to even, and so does the processor that models were trained with.
    rows, columns = round(height / unit), round(width / unit)
    area = rows * columns * unit**2
    if area > profile.max_pixels:
        shrink = math.sqrt(height * width / profile.max_pixels)
        rows = max(1, math.floor(height / shrink / unit))
        columns = max(1, math.floor(width / shrink / unit))
    elif area < profile.min_pixels:
        grow = math.sqrt(profile.min_pixels / (height * width))
        rows, columns = math.ceil(height * grow / unit), math.ceil(width * grow / unit)
    size = rows * unit, columns * unit
    return Fitted(size, size)


def _padded(height: int, width: int, profile: ImageProfile) -> Fitted:
    canvas = _aligned(height, width, profile.unit)
    if canvas[0] * canvas[1] < profile.min_pixels:
        grow = math.sqrt(profile.min_pixels / (height * width))
        canvas = _aligned(max(1, math.ceil(height * grow)), max(1, math.ceil(width * grow)), profile.unit)
    if canvas[0] * canvas[1] > profile.max_pixels:
        canvas = _largest(height, width, profile)
    scale = min(canvas[0] / height, canvas[1] / width)
    if height * width >= profile.min_pixels:
        scale = min(1.0, scale)
    content = tuple(
        max(1, min(most, math.floor(side * scale)))
        for most, side in zip(canvas, (height, width), strict=True)
    )
    return Fitted((content[0], content[1]), canvas)


def _largest(height: int, width: int, profile: ImageProfile) -> tuple[int, int]:
    """The canvas of the tallest content, in the image's proportions, that is small enough."""
    best, low, high = (profile.unit, profile.unit), 1, height
    while low <= high:
        middle = (low + high) // 2
        canvas = _aligned(middle, max(1, math.floor(width * middle / height)), profile.unit)
        if canvas[0] * canvas[1] <= profile.max_pixels:
            best, low = canvas, middle + 1
        else:
            high = middle - 1
    return best


def _aligned(height: int, width: int, unit: int) -> tuple[int, int]:
    return -(-height // unit) * unit, -(-width // unit) * unit


_FITS = {ImageFit.STRETCH: _stretched, ImageFit.PAD: _padded}
