"""The heavy half of a recipe: imported for the model that was chosen, and for no other."""

from __future__ import annotations

import importlib

from flare.errors import PluginError, RecipeError
from flare.recipes.descriptor import RecipeDescriptor
from flare.recipes.plugin import contained
from flare.recipes.probe import api_mismatch
from flare.recipes.recipe import Recipe


def load_recipe(descriptor: RecipeDescriptor) -> Recipe:
    """Import and return the object behind `descriptor.recipe`.

    Raises: RecipeError when it was written for another API version (both are named), cannot be imported
    (with the original exception as its cause) or is not a `Recipe`.
    """
    if mismatch := api_mismatch(descriptor):
        raise RecipeError(f"recipe {descriptor.name} is {mismatch}", field="api_version")
    module, _, attribute = descriptor.recipe.partition(":")
    try:
        with contained(module):
            loaded = getattr(importlib.import_module(module), attribute)
    except PluginError as error:
        extras = ", ".join(descriptor.requires_extras)
        hint = f" (it needs the extras: {extras})" if extras else ""
        message = f"recipe {descriptor.name}: cannot import {descriptor.recipe}: {error}{hint}"
        raise RecipeError(message, field="recipe") from error.__cause__
    if not isinstance(loaded, Recipe):
        kind = type(loaded).__name__
        raise RecipeError(
            f"recipe {descriptor.name}: {descriptor.recipe} is a {kind}, not a Recipe", field="recipe"
        )
    return loaded
