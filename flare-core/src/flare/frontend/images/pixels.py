"""Encoded images to pixels, bounded before they are decoded."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass

from PIL import Image, ImageOps, UnidentifiedImageError

from flare.errors import RequestError

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
"""The formats of the OpenAI API (https://platform.openai.com/docs/guides/images-vision); of moving ones the
first picture."""


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """What a client may send: `most_bytes` of an encoded image, `most_pixels` of a decoded one."""

    most_bytes: int = 20 << 20
    most_pixels: int = 64 << 20


Colour = tuple[int, int, int]


def decoded(
    content: bytes | bytearray, limits: ImageLimits, where: str, background: Colour | None = None
) -> Image.Image:
    """RGB pixels, turned the way the camera was held (EXIF), over `background`; without one transparency is
    dropped.

    Raises RequestError, naming `where`, for other formats, damaged content, and too many pixels.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the bound is ours
            image = Image.open(io.BytesIO(content), formats=FORMATS)
            width, height = image.size
            if width * height > limits.most_pixels:
                raise RequestError(
                    f"{where} has {width} x {height} pixels, more than {limits.most_pixels}", field=where
                )
            image.load()
            upright = ImageOps.exif_transpose(image)
            return upright.convert("RGB") if background is None else _over(upright, background)
    except UnidentifiedImageError:
        raise RequestError(f"{where} is no image of {', '.join(FORMATS)}", field=where) from None
    except Image.DecompressionBombError as error:
        raise RequestError(f"{where}: {error}", field=where) from None
    except (OSError, SyntaxError, ValueError, EOFError, OverflowError) as error:
        raise RequestError(f"{where} cannot be decoded: {error}", field=where) from None


def _over(image: Image.Image, background: Colour) -> Image.Image:
    if not image.has_transparency_data:
        return image.convert("RGB")
    canvas = Image.new("RGBA", image.size, (*background, 255))
    return Image.alpha_composite(canvas, image.convert("RGBA")).convert("RGB")
