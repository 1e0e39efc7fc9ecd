"""The example recipe as a package, by the checker that recipe authors use."""

from __future__ import annotations

from pathlib import Path

import flare_recipe_smollm
from flare.testing import check_prompts, check_recipe
from flare_recipe_smollm.recipe import RECIPE


def test_the_package_is_complete() -> None:
    check_recipe(flare_recipe_smollm)


def test_prompts_are_those_of_transformers(tiny_checkpoint: Path) -> None:
    check_prompts(RECIPE, tiny_checkpoint)
