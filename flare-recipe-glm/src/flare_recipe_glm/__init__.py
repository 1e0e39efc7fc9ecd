"""GLM 5.3 Flash for Flare. This module is the plugin: light, so that listing recipes stays fast."""

from __future__ import annotations

from collections.abc import Sequence

from flare.recipes import RecipeDescriptor, hookimpl
from flare_recipe_glm.descriptor import DESCRIPTOR


@hookimpl
def flare_recipe_descriptors() -> Sequence[RecipeDescriptor]:
    """The one recipe of this package."""
    return (DESCRIPTOR,)
