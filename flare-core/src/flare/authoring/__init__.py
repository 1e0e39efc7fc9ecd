"""Starting a recipe package: the files that `flare new-recipe` writes. `template/` holds them as text."""

from flare.authoring.package import write_recipe_package

__all__ = ["write_recipe_package"]
