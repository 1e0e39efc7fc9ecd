"""Messages with pictures, and the prompts that the frontend of a checkpoint makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flare.contract import DType
from flare.device.direct_images import EncodableImage
from flare.engine.messages import Image as SubmittedImage
from flare.frontend import FrontendAssets, Prompts
from flare.frontend.prompts import Prompt
from flare_recipe_qwen.recipe import RECIPE

F32 = DType.F32


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
