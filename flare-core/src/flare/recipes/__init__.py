"""What a recipe package writes against, and how it is found. Imports without torch.

A recipe distribution declares an entry point in the group `flare.recipes` whose value is a light module
with `@hookimpl` functions (see `hookspecs`). Everything heavy stays behind the import string of
`RecipeDescriptor.recipe` and is imported only for the recipe that was chosen.
"""

from flare.recipes.descriptor import RECIPE_API_VERSION, ModelEntry, RecipeDescriptor
from flare.recipes.discovery import GROUP, RecipeRow, Registry, discover, load_recipe
from flare.recipes.hookspecs import hookimpl, hookspec
from flare.recipes.recipe import BuiltModel, FrontendFiles, Recipe
from flare.recipes.source import CheckpointSource, LocalCheckpoint, Phase, ProgressReporter

__all__ = [
    "GROUP",
    "RECIPE_API_VERSION",
    "BuiltModel",
    "CheckpointSource",
    "FrontendFiles",
    "LocalCheckpoint",
    "ModelEntry",
    "Phase",
    "ProgressReporter",
    "Recipe",
    "RecipeDescriptor",
    "RecipeRow",
    "Registry",
    "discover",
    "hookimpl",
    "hookspec",
    "load_recipe",
]
