"""What a recipe package writes against, and how it is found. Imports without torch.

A recipe distribution declares entry points in the group `flare.recipes`. Each is named like a model that a
user types after `flare prepare`; its value is a light module with `@hookimpl` functions (see `hookspecs`),
the same for all models of a recipe. The name is found in metadata, and only the module behind it is imported.
Everything heavy stays behind the import string of `RecipeDescriptor.recipe` until the recipe is used.

A checkpoint source likewise has an entry point in `flare.sources`, named like its URI scheme.
"""

from flare.recipes.checkpoint_text import CheckpointText
from flare.recipes.descriptor import RECIPE_API_VERSION, ModelEntry, RecipeDescriptor
from flare.recipes.hookspecs import hookimpl, hookspec
from flare.recipes.loading import load_recipe
from flare.recipes.metadata import GROUP, SOURCES
from flare.recipes.probe import RecipeRow
from flare.recipes.recipe import BuiltModel, FrontendFiles, Recipe
from flare.recipes.registry import Registry, discover
from flare.recipes.source import CheckpointSource, LocalCheckpoint, Phase, ProgressReporter

__all__ = [
    "GROUP",
    "RECIPE_API_VERSION",
    "SOURCES",
    "BuiltModel",
    "CheckpointSource",
    "CheckpointText",
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
