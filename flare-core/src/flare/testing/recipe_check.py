"""Whether a recipe package is complete and consistent: everything that can be said without numbers."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import ModuleType

from flare.contract import DType
from flare.recipes import RecipeDescriptor, load_recipe
from flare.testing.failure import blaming
from flare.testing.recipe_metadata import check_installed, check_sampling, module_of
from flare.testing.recipe_model import check_model


def check_recipe(target: RecipeDescriptor | ModuleType | str, *, dtype: DType = DType.F32) -> None:
    """Check an installed recipe package, given its light module, the module's name, or one descriptor.

    * recipe package: an entry point of the group `flare.recipes` for every model and none else, extras that
      exist, and a light module that imports neither torch nor Transformers (tried in a fresh process).
    * sampling defaults: a source, a date, defaults inside their own ranges.
    * meta device: the model is built without allocating weights.
    * tensor map: every model tensor is made of checkpoint tensors that exist and fit, and every checkpoint
      tensor is used or ignored on purpose, for the oracle's tiny checkpoint.
    * cache schemes, capacities: geometry and a serving plan follow from the declaration.
    * frontend: its assets can be read, its end tokens are in the vocabulary.
    * retained modules: each really runs in prefill and decode.

    Raises AssertionError `part: problem` for the first of these that fails.
    """
    found = check_installed(module_of(target))
    descriptors = (target,) if isinstance(target, RecipeDescriptor) else found
    for descriptor in descriptors:
        with blaming("descriptor"):
            recipe = load_recipe(descriptor)
        check_sampling(recipe.sampling)
        with tempfile.TemporaryDirectory() as directory:
            with blaming("oracle"):
                checkpoint = recipe.oracle.tiny_checkpoint(Path(directory) / "tiny")
            check_model(recipe, checkpoint, dtype)
