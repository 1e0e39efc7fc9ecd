"""Distributions with entry points of Flare's groups, as an installer would leave them on the path."""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Iterable
from pathlib import Path

from flare.recipes import GROUP, RecipeRow, Registry, discover

DESCRIPTOR = """
from flare.recipes import ModelEntry, RecipeDescriptor, hookimpl

@hookimpl
def flare_recipe_descriptors():
    return [RecipeDescriptor(
        name="{recipe}", title="A recipe", api_version={api_version}, architectures=("SomeForCausalLM",),
        models=[ModelEntry(name=name, checkpoint="/nowhere", license="MIT") for name in {models!r}],
        recipe="{heavy}",
    )]
"""


def plugin(recipe: str, *models: str, api_version: int = 1, heavy: str = "nowhere_at_all:RECIPE") -> str:
    """Source of a light module with one recipe."""
    return DESCRIPTOR.format(recipe=recipe, models=models, api_version=api_version, heavy=heavy)


def install(
    site: Path,
    distribution: str,
    source: str,
    *models: str,
    version: str = "1.0",
    requires: Iterable[str] = (),
    group: str = GROUP,
) -> None:
    """Write the module `distribution` and metadata with an entry point for each of `models`."""
    site.mkdir(exist_ok=True)
    (site / f"{distribution}.py").write_text(textwrap.dedent(source))
    describe(
        site / f"{distribution}-{version}.dist-info", distribution, *models, version=version, group=group
    )
    with (site / f"{distribution}-{version}.dist-info" / "METADATA").open("a") as headers:
        headers.writelines(f"Requires-Dist: {requirement}\n" for requirement in requires)


def describe(info: Path, distribution: str, *models: str, version: str = "1.0", group: str = GROUP) -> None:
    """Write a metadata directory (dist-info, or egg-info) alone."""
    info.mkdir(parents=True)
    headers = "METADATA" if info.suffix == ".dist-info" else "PKG-INFO"
    (info / headers).write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    points = "\n".join(f"{name} = {distribution}" for name in models)
    (info / "entry_points.txt").write_text(f"[{group}]\n{points}\n")
    importlib.invalidate_caches()


def discover_in(*sites: Path, **environment: str) -> Registry:
    """Discover the plugins of `sites` alone."""
    return discover([str(site) for site in sites], environment)


def row_of(registry: Registry, name: str) -> RecipeRow:
    """The one row of this name."""
    (row,) = [row for row in registry.rows if row.name == name]
    return row
