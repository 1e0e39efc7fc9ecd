"""How many patches vision programs take, and how many features a request may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flare.contract import ImageProfile
from flare.errors import CapacityError

if TYPE_CHECKING:
    from flare.prepare.plan import CapacityRequest

SMALLEST_PATCHES = 256
MOST_PATCHES = 16384
"""Of one image when nothing else is asked for: about four million pixels at 16 pixels a patch."""
_GROWTH = 4
_IMAGES = 4


def image_sizes(
    request: CapacityRequest, images: ImageProfile | None, context: int
) -> tuple[tuple[int, ...], int]:
    """Patch capacities of vision programs, ascending, and feature rows; none without images.

    Raises CapacityError when the smallest image of the profile has more patches than are asked for.
    """
    if images is None:
        if request.image_patches is not None or request.image_features is not None:
            raise CapacityError("this model takes no images", field="image_patches")
        return (), 0
    block = images.merge**2
    largest = (
        min(request.image_patches or MOST_PATCHES, images.max_pixels // images.patch**2) // block * block
    )
    least = -(-images.min_pixels // images.patch**2)
    least = max(least, block)
    if largest < least:
        raise CapacityError(
            f"image-patches must be at least {least}: the smallest image of this model has so many",
            field="image_patches",
        )
    sizes = [SMALLEST_PATCHES]
    while sizes[-1] < largest:
        sizes.append(sizes[-1] * _GROWTH)
    features = request.image_features or min(_IMAGES * largest // block, context)
    return (*(size for size in sizes if size < largest and size % block == 0), largest), features


def bounded(images: ImageProfile | None, patches: tuple[int, ...]) -> ImageProfile | None:
    """The profile with images no larger than the largest program takes."""
    if images is None:
        return None
    most = min(images.max_pixels, patches[-1] * images.patch**2)
    return images.model_copy(update={"max_pixels": most})
