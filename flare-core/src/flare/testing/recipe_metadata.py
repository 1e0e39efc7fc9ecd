"""Checks of what a recipe package says about itself: entry points, light import, sampling defaults."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from types import ModuleType

import importlib_metadata as metadata
import pluggy

from flare.contract import DefaultSampling
from flare.recipes import GROUP, RecipeDescriptor, hookspecs
from flare.testing.failure import blaming, require

HEAVY = ("torch", "transformers", "flare_components")


def descriptors_of(module: ModuleType) -> tuple[RecipeDescriptor, ...]:
    """What the hook `flare_recipe_descriptors` of a light module gives. Raises AssertionError without it."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    with blaming("descriptor"):
        manager.register(module)
        manager.check_pending()
        found = tuple(one for answer in manager.hook.flare_recipe_descriptors() for one in answer)
    require(
        bool(found),
        "descriptor",
        f"{module.__name__} gives none; it needs a function flare_recipe_descriptors marked @hookimpl",
    )
    for one in found:
        require(isinstance(one, RecipeDescriptor), "descriptor", f"{one!r} is not a RecipeDescriptor")
    return found


def light_module(target: RecipeDescriptor | ModuleType | str) -> ModuleType:
    """The light module meant by `target`. A descriptor's is found by the entry points of its models."""
    if isinstance(target, ModuleType):
        return target
    if isinstance(target, str):
        return importlib.import_module(target)
    models = {model.name for model in target.models}
    for point in metadata.entry_points(group=GROUP):
        if point.name in models:
            module = point.load()
            if isinstance(module, ModuleType) and target in descriptors_of(module):
                return module
    raise AssertionError(
        f"entry points: no installed distribution has one in {GROUP} for {' or '.join(sorted(models))}"
    )


def check_entry_points(module: ModuleType, descriptors: Sequence[RecipeDescriptor]) -> None:
    """Every model has an entry point that names `module`, and no other name does; extras exist."""
    name = module.__name__
    points = [point for point in metadata.entry_points(group=GROUP) if point.value == name]
    require(
        bool(points),
        "entry points",
        f"no installed distribution names {name} in the group {GROUP}; install the package",
    )
    models = {model.name for descriptor in descriptors for model in descriptor.models}
    named = {point.name for point in points}
    if missing := sorted(models - named):
        lines = "; ".join(f'{model} = "{name}"' for model in missing)
        raise AssertionError(f'entry points: [project.entry-points."{GROUP}"] lacks {lines}')
    require(
        named <= models, "entry points", f"{', '.join(sorted(named - models))} is no model of a descriptor"
    )
    distribution = points[0].dist
    extras = set() if distribution is None else set(distribution.metadata.get_all("Provides-Extra") or ())
    for descriptor in descriptors:
        absent = sorted(set(descriptor.requires_extras) - extras)
        require(not absent, "entry points", f"the distribution has no extra {', '.join(absent)}")


def check_light_import(module: ModuleType) -> None:
    """Importing `module` and calling its hook in a fresh process loads nothing heavy."""
    code = (
        f"import sys; sys.path[:] = {sys.path!r}\n"
        f"import importlib; importlib.import_module({module.__name__!r}).flare_recipe_descriptors()\n"
        f"print(*(name for name in {HEAVY!r} if name in sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = run.stderr.strip().splitlines()[-1:] or [""]
    require(run.returncode == 0, "light import", f"{module.__name__} cannot be imported alone: {last[0]}")
    loaded = run.stdout.split()
    require(
        not loaded,
        "light import",
        f"{module.__name__} imports {', '.join(loaded)}; keep that behind the descriptor's import string",
    )


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
