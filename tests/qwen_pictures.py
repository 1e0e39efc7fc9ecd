"""Pictures, messages with them, and the prompts that the frontend of a checkpoint makes of them."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from flare.contract import DType
from flare.device.direct_images import EncodableImage
from flare.engine.messages import Image as SubmittedImage
from flare.frontend import FrontendAssets, Prompts
from flare.frontend.prompts import Prompt
from flare_recipe_qwen.recipe import RECIPE

F32 = DType.F32


def picture(width: int, height: int, seed: int) -> str:
    """The data address of a random picture."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "png")
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"


def message(*parts: str, role: str = "user") -> dict[str, Any]:
    """Of texts and data addresses."""
    return {
        "role": role,
        "content": [
            {"type": "image_url", "image_url": {"url": part}}
            if part.startswith("data:")
            else {"type": "text", "text": part}
            for part in parts
        ],
    }


def prompts(checkpoint: Path) -> Prompts:
    """The frontend of `checkpoint`."""
    opened = RECIPE.loader.open(checkpoint)
    files = RECIPE.frontend.assets(opened, RECIPE.loader.config(opened), RECIPE.sampling)
    template = files.frontend.template_asset
    assert template is not None
    return Prompts(
        FrontendAssets(
            files.frontend,
            files.assets[files.frontend.tokenizer_asset],
            files.assets[template].decode(),
        )
    )


def placed(prompt: Prompt) -> list[EncodableImage]:
    """The images of a prompt, as they are submitted."""
    return [
        SubmittedImage(
            start=one.start,
            tokens=one.image.features,
            identity=one.image.identity,
            grid=one.image.grid,
            patches=one.image.patches,
        )
        for one in prompt.images
    ]
