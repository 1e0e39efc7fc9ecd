"""Pictures of noise, as clients send them."""

from __future__ import annotations

import base64
import io
from functools import cache


@cache
def picture(width: int, height: int, seed: int) -> str:
    """The `data:` address of a PNG of `width` x `height` random pixels, the same for the same `seed`."""
    import numpy as np
    from PIL import Image

    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "png")
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"
