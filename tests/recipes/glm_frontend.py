"""The frontend that the recipe makes of the tiny checkpoint's texts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from glm_image_samples import PROCESSOR, stored
from glm_towers import images_of

from flare.contract import Frontend
from flare.frontend import FrontendAssets
from flare.prepare import Assets, Checkpoint
from flare.recipes import FrontendFiles
from flare_recipe_glm.recipe import RECIPE
from flare_recipe_glm.tiny_template import TEMPLATE
from flare_recipe_glm.tiny_text import TOKENS, tokenizer


def files(**changes: Any) -> FrontendFiles:
    """With `changes` of the checkpoint's assets."""
    made: dict[str, Any] = {
        "tokenizer": tokenizer().to_str().encode(),
        "chat_template": TEMPLATE,
        "special_tokens": {"eos_token": "<|endoftext|>"},
        "image_processor": PROCESSOR,
    }
    checkpoint = SimpleNamespace(assets=Assets(**{**made, **changes}))
    config = SimpleNamespace(
        text=SimpleNamespace(vocab_size=320),
        images=images_of({**stored(), "image_token_id": TOKENS["<|image|>"]}),
    )
    return RECIPE.frontend.assets(cast(Checkpoint, checkpoint), cast(Any, config), RECIPE.sampling)


def assets() -> FrontendAssets:
    """As a server has them."""
    made = files()
    frontend: Frontend = made.frontend
    assert frontend.template_asset is not None
    return FrontendAssets(
        frontend, made.assets[frontend.tokenizer_asset], made.assets[frontend.template_asset].decode()
    )
