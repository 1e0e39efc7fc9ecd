"""Small pictures as clients send them, and the images that the scripted model takes."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

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
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(noise).save(stream, "png")
    return stream.getvalue()


def data_url(width: int, height: int, seed: int = 0) -> str:
    """The same as an address."""
    return f"data:image/png;base64,{base64.b64encode(png(width, height, seed)).decode()}"
