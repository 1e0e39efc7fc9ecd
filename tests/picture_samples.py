"""Pictures of noise, how they are sent, and a comparison of their patches with an image processor's."""

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

from flare.contract import ImageProfile
from flare.frontend.images.patches import prepared

SIZES = [
    (1, 1),
    (31, 33),
    (256, 256),
    (300, 417),
    (640, 480),
    (480, 640),
    (1280, 90),
    (33, 1000),
    (2000, 1500),
]
"""(width, height)"""


def picture(width: int, height: int, mode: str = "RGB", seed: int = 0) -> Image.Image:
    noise = np.random.default_rng([width, height, seed]).integers(0, 256, (height, width, 4), dtype=np.uint8)
    return Image.fromarray(noise, "RGBA").convert(mode)


def encoded(image: Image.Image, kind: str = "png", **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def address(image: Image.Image, kind: str = "png", **options: Any) -> str:
    return address_of(encoded(image, kind, **options), kind)


def address_of(content: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def compare(processor: Any, profile: ImageProfile, image: Image.Image) -> None:
    """Grid, number of features and patches."""
    want = processor(images=[image], return_tensors="np")
    found = prepared(image, profile, "image")
    assert found.grid == tuple(want["image_grid_thw"][0].tolist())
    assert found.features == np.prod(found.grid) // profile.merge**2
    patches = np.frombuffer(found.patches, np.float32).reshape(-1, profile.patch_elements)
    np.testing.assert_allclose(patches, want["pixel_values"], rtol=0, atol=3e-7)
