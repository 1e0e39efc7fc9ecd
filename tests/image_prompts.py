"""Messages with pictures, the prompts that a frontend makes of them, and their images as submitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flare.device.direct_images import EncodableImage
from flare.engine.messages import Image as SubmittedImage
from flare.frontend import FrontendAssets, Prompts
from flare.frontend.images import Expanded
from flare.frontend.prompts import Prompt
from flare.recipes import Recipe


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


def frontend_of(recipe: Recipe, checkpoint: Path) -> Prompts:
    """The frontend that `recipe` makes of `checkpoint`."""
    opened = recipe.loader.open(checkpoint)
    files = recipe.frontend.assets(opened, recipe.loader.config(opened), recipe.sampling)
    template = files.frontend.template_asset
    assert template is not None
    return Prompts(
        FrontendAssets(
            files.frontend,
            files.assets[files.frontend.tokenizer_asset],
            files.assets[template].decode(),
        )
    )


def placed(prompt: Prompt | Expanded) -> list[EncodableImage]:
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
