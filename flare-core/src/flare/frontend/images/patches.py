"""Pixels to patches: resized, normalised, and ordered as a vision encoder reads them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from flare.contract import ImageProfile
from flare.errors import RequestError
from flare.frontend.images.fit import fitted


@dataclass(frozen=True, slots=True)
class PreparedImage:
    """`patches` F32 [time * rows * columns, patch elements] as bytes, of a `grid` (time, rows, columns) that
    becomes `features` rows. `identity` names pixels and profile."""

    identity: bytes
    grid: tuple[int, int, int]
    features: int
    patches: bytes


def prepared(image: Image.Image, profile: ImageProfile, where: str) -> PreparedImage:
    """An RGB image, as the model of `profile` reads it. Raises RequestError for one that is too elongated."""
    width, height = image.size
    most = profile.max_aspect_ratio
    if most is not None and max(height, width) > most * min(height, width):
        raise RequestError(
            f"{where} has {width} x {height} pixels: one side is over {most} times the other", field=where
        )
    place = fitted(height, width, profile)
    pixels = _on_canvas(image, place.content, place.canvas)
    patches = _patches(_normalised(pixels, profile), profile)
    rows, columns = (side // profile.patch for side in place.canvas)
    return PreparedImage(
        identity=_identity(image, profile),
        grid=(1, rows, columns),
        features=rows * columns // profile.merge**2,
        patches=patches.tobytes(),
    )


def _on_canvas(image: Image.Image, content: tuple[int, int], canvas: tuple[int, int]) -> NDArray[np.uint8]:
    """u8[height, width, 3]."""
    height, width = content
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    pixels = np.zeros((*canvas, 3), dtype=np.uint8)
    pixels[:height, :width] = np.asarray(image)
    return pixels


def _normalised(pixels: NDArray[np.uint8], profile: ImageProfile) -> NDArray[np.float32]:
    """f32[height, width, 3]. A pixel has 256 values: a table per channel has the results."""
    levels = np.arange(256, dtype=np.uint8).astype(np.float64) * (1 / 255)
    result = np.empty(pixels.shape, dtype=np.float32)
    for channel, (mean, std) in enumerate(zip(profile.mean, profile.std, strict=True)):
        table = (levels.astype(np.float32) - np.float32(mean)) / np.float32(std)
        result[..., channel] = table[pixels[..., channel]]
    return result


def _patches(pixels: NDArray[np.float32], profile: ImageProfile) -> NDArray[np.float32]:
    """f32[rows * columns, 3 * temporal * patch * patch], merged neighbours behind each other."""
    patch, merge = profile.patch, profile.merge
    height, width, channels = pixels.shape
    blocks = pixels.reshape(
        height // profile.unit, merge, patch, width // profile.unit, merge, patch, channels
    ).transpose(0, 3, 1, 4, 6, 2, 5)  # block row, block column, row, column, channel, pixel row, pixel column
    count = height * width // patch**2
    single = blocks.reshape(count, channels, 1, patch, patch)
    return np.repeat(single, profile.temporal, axis=2).reshape(count, -1)


def _identity(image: Image.Image, profile: ImageProfile) -> bytes:
    """Digest of everything that decides about the patches, except the code here."""
    digest = hashlib.blake2b(digest_size=16)
    # Without defaults: a field that profiles get later leaves the identities of images as they were.
    digest.update(profile.model_dump_json(exclude_defaults=True).encode())
    digest.update(repr(image.size).encode())
    digest.update(image.tobytes())
    return digest.digest()
