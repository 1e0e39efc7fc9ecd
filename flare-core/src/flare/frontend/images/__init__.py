"""Images in prompts: from what a client sends to patches, placeholders and positions.

`source` finds the bytes, `pixels` decodes them, `fit` decides the size, `patches` makes the numbers, `cache`
keeps them, `expansion` puts them into the prompt.
"""

from flare.frontend.images.cache import ImageCache
from flare.frontend.images.expansion import Expanded, PlacedImage, expand
from flare.frontend.images.patches import PreparedImage
from flare.frontend.images.pixels import ImageLimits
from flare.frontend.images.source import ImageAddress, ImagesWanted

__all__ = [
    "Expanded",
    "ImageAddress",
    "ImageCache",
    "ImageLimits",
    "ImagesWanted",
    "PlacedImage",
    "PreparedImage",
    "expand",
]
