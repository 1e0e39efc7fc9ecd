"""Distributions with a `flare.recipes` entry point, as an installer would leave them on the path."""

from __future__ import annotations

import importlib
import textwrap
from pathlib import Path

import importlib_metadata as metadata

from flare.recipes import GROUP, Registry, discover

DESCRIPTOR = """
from flare.recipes import ModelEntry, RecipeDescriptor, hookimpl

@hookimpl
def flare_recipe_descriptors():
    return [RecipeDescriptor(
        name="{recipe}", title="A recipe", api_version={api_version}, architectures=("SomeForCausalLM",),
        models=(ModelEntry(name="{model}", checkpoint="/nowhere", license="MIT"),),
        recipe="{heavy}",
    )]
"""


def plugin(recipe: str, model: str, *, api_version: int = 1, heavy: str = "nowhere_at_all:RECIPE") -> str:
    """Source of a light module with one recipe of one model."""
    return DESCRIPTOR.format(recipe=recipe, model=model, api_version=api_version, heavy=heavy)


def install(
    site: Path, distribution: str, source: str, *, version: str = "1.0", entry: str | None = None
) -> None:
    """Write the module `distribution` and the metadata that points to it."""
    site.mkdir(exist_ok=True)
    (site / f"{distribution}.py").write_text(textwrap.dedent(source))
    info = site / f"{distribution}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{entry or distribution} = {distribution}\n")
    importlib.invalidate_caches()


def discover_in(site: Path) -> Registry:
    """Discover the plugins of `site` alone."""
    found = metadata.distributions(path=[str(site)])
    return discover([point for one in found for point in one.entry_points if point.group == GROUP])
