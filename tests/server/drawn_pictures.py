"""Small pictures as clients send them, and the images that the scripted model takes."""

from __future__ import annotations

from picture_samples import address, encoded, picture

from flare.contract import ImageFit, ImageProfile

PROFILE = ImageProfile(
    fit=ImageFit.STRETCH,
    patch=4,
    merge=2,
    temporal=1,
    min_pixels=64,
    max_pixels=1024,
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.5, 0.5),
    placeholder=1,
)


def png(width: int, height: int, seed: int = 0) -> bytes:
    """A file of noise."""
    return encoded(picture(width, height, seed=seed))


def data_url(width: int, height: int, seed: int = 0) -> str:
    """The same as an address."""
    return address(picture(width, height, seed=seed))
