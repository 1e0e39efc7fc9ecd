"""Checks of what a recipe package says about itself: entry points, light module, sampling defaults."""

from __future__ import annotations

from datetime import date
from types import ModuleType

import importlib_metadata as metadata

from flare.contract import DefaultSampling
from flare.recipes import GROUP, RecipeDescriptor, Registry
from flare.recipes.metadata import plugin_entries
from flare.recipes.probe import read_plugin
from flare.testing.failure import require


def module_of(target: RecipeDescriptor | ModuleType | str) -> str:
    """Name of the light module meant by `target`; a descriptor's is found by its models' entry points."""
    if isinstance(target, str):
        return target
    if isinstance(target, ModuleType):
        return target.__name__
    models = sorted(model.name for model in target.models)
    for entry in plugin_entries(GROUP):
        if entry.name in models and target in read_plugin(entry).descriptors:
            return entry.module
    raise AssertionError(
        f"recipe package: no installed distribution has an entry point in {GROUP} for {' or '.join(models)}"
    )


def check_installed(module: str) -> tuple[RecipeDescriptor, ...]:
    """Every model behind the light module `module` is ok in strict `flare recipes`. The descriptors."""
    entries = tuple(entry for entry in plugin_entries(GROUP) if entry.module == module)
    require(
        bool(entries),
        "recipe package",
        f"no installed distribution names {module} in the group {GROUP}; install the package",
    )
    rows = Registry(installed=entries, entries=entries, strict=True).rows
    for row in rows:
        require(row.state == "ok", "recipe package", f"{row.name} is {row.status}")
    descriptors = tuple(dict.fromkeys(row.descriptor for row in rows if row.descriptor is not None))
    extras = metadata.metadata(entries[0].distribution).get_all("Provides-Extra") or ()
    for descriptor in descriptors:
        absent = sorted(set(descriptor.requires_extras) - set(extras))
        require(not absent, "recipe package", f"its distribution has no extra {', '.join(absent)}")
    return descriptors


def check_sampling(sampling: DefaultSampling) -> None:
    """A source, a date in ISO form, and every default inside its own range."""
    require(bool(sampling.source.strip()), "sampling defaults", "source is empty: say where they were read")
    try:
        date.fromisoformat(sampling.date)
    except ValueError:
        raise AssertionError(f"sampling defaults: date {sampling.date!r} is not YYYY-MM-DD") from None
    for name in type(sampling.ranges).model_fields:
        allowed, value = getattr(sampling.ranges, name), getattr(sampling, name)
        if allowed is not None:
            require(
                allowed.low <= value <= allowed.high,
                "sampling defaults",
                f"{name} {value} is outside its own range {allowed.low} to {allowed.high}",
            )
