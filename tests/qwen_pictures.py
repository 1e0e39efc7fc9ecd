"""Messages with pictures, and the prompts that the Qwen recipe makes of them."""

from __future__ import annotations

from pathlib import Path

from image_prompts import frontend_of, message, placed

from flare.contract import DType
from flare.frontend import Prompts
from flare_recipe_qwen.recipe import RECIPE

__all__ = ["F32", "message", "placed", "prompts"]

F32 = DType.F32


def prompts(checkpoint: Path) -> Prompts:
    """The frontend of `checkpoint`."""
    return frontend_of(RECIPE, checkpoint)
