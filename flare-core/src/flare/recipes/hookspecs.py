"""The hooks of Flare (pluggy, project "flare"). A plugin implements those it needs with `@hookimpl`."""

from __future__ import annotations

from collections.abc import Sequence

import pluggy

from flare.recipes.descriptor import RecipeDescriptor
from flare.recipes.source import CheckpointSource

PROJECT = "flare"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def flare_recipe_descriptors() -> Sequence[RecipeDescriptor]:  # type: ignore[empty-body]
    """Return the descriptors of the recipes in this package (entry points of `flare.recipes`).

    Every model in them needs an entry point of its name, and every entry point a model. Called whenever
    recipes are listed, so it must be cheap: the module that implements it imports neither torch nor
    transformers, and does no input or output.
    """


@hookspec
def flare_checkpoint_sources() -> Sequence[CheckpointSource]:  # type: ignore[empty-body]
    """Return checkpoint sources, each for a URI scheme that no other source has.

    The module is imported when its entry point in `flare.sources`, named like the scheme, is wanted. The
    sources for `hf://`, `pypi://` and paths come with flare-core through this same hook.
    """
