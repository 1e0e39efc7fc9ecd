"""Finding recipes: entry points of the group `flare.recipes`, one pluggy plugin each.

A plugin that cannot be imported, returns nonsense or clashes with another becomes a row with a reason and
never hides the others. Only a recipe that was asked for by name raises.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

import importlib_metadata as metadata
import pluggy

from flare.errors import RecipeError
from flare.recipes import hookspecs
from flare.recipes.descriptor import RECIPE_API_VERSION, ModelEntry, RecipeDescriptor
from flare.recipes.recipe import Recipe

GROUP = "flare.recipes"


@dataclass(frozen=True)
class RecipeRow:
    """One line of `flare recipes`: a recipe, or a plugin that could not be read.

    `name` is the recipe's name, or the entry point's when there is no descriptor. `reason` is one line and
    set exactly when `status` is "broken"; `error` is the exception behind it, where there was one.
    """

    name: str
    distribution: str
    version: str
    status: Literal["ok", "broken"]
    reason: str | None = None
    descriptor: RecipeDescriptor | None = None
    error: BaseException | None = field(default=None, compare=False)

    def broken(self, reason: str, error: BaseException | None = None) -> RecipeRow:
        """This row, marked broken; an earlier reason stays."""
        if self.status == "broken":
            return self
        return replace(self, status="broken", reason=reason, error=error)


@dataclass(frozen=True)
class Registry:
    """What was found. `manager` holds every plugin that registered, for further hooks."""

    rows: tuple[RecipeRow, ...]
    manager: pluggy.PluginManager

    def find_model(self, name: str) -> tuple[RecipeDescriptor, ModelEntry]:
        """The recipe and the entry for a model's name, or for the name of a recipe with a single model.

        Raises: RecipeError, with the close names when nothing has this name, with the reason (and its
        exception chained) when the recipe behind it is broken.
        """
        for row in self.rows:
            for entry in row.descriptor.models if row.descriptor else ():
                if entry.name == name:
                    return _usable(row), entry
        for row in self.rows:
            if row.name == name:
                descriptor = _usable(row)
                if len(descriptor.models) > 1:
                    raise RecipeError(
                        f"recipe {name} has several models: {_listed(descriptor)}", field="model"
                    )
                return descriptor, descriptor.models[0]
        raise RecipeError(self._unknown(name), field="model")

    def _unknown(self, name: str) -> str:
        known = sorted({model for row in self.rows if row.descriptor for model in _names(row.descriptor)})
        close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        message = f"no recipe knows {name!r}"
        if close:
            message += f"; did you mean {' or '.join(close)}?"
        else:
            message += "."
        message += f" Known: {', '.join(known)}." if known else f" No recipe is installed (group {GROUP})."
        for row in self.rows:
            if row.status == "broken":
                message += f" {row.name} from {row.distribution} is broken: {row.reason}."
        return message


def discover(entry_points: Iterable[metadata.EntryPoint] | None = None) -> Registry:
    """Import every plugin of the group and list its recipes.

    `entry_points` replaces the installed ones. A broken plugin is a row, never an exception.
    """
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    found = metadata.entry_points(group=GROUP) if entry_points is None else entry_points
    rows: list[RecipeRow] = []
    for point in sorted(found, key=lambda point: (point.name, *_origin(point))):
        rows.extend(_read(manager, point))
    return Registry(rows=tuple(_without_clashes(rows)), manager=manager)


def load_recipe(descriptor: RecipeDescriptor) -> Recipe:
    """Import and return the heavy object behind `descriptor.recipe`.

    Raises: RecipeError when it was written for another API version (both are named), cannot be imported
    (with the original traceback chained) or is not a `Recipe`.
    """
    _check_api_version(descriptor)
    module, _, attribute = descriptor.recipe.partition(":")
    try:
        loaded = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        extras = ", ".join(descriptor.requires_extras)
        hint = f" (it needs the extras: {extras})" if extras else ""
        message = f"recipe {descriptor.name}: cannot import {descriptor.recipe}: {_one_line(error)}{hint}"
        raise RecipeError(message, field="recipe") from error
    if not isinstance(loaded, Recipe):
        kind = type(loaded).__name__
        raise RecipeError(
            f"recipe {descriptor.name}: {descriptor.recipe} is a {kind}, not a Recipe", field="recipe"
        )
    return loaded


def _read(manager: pluggy.PluginManager, point: metadata.EntryPoint) -> list[RecipeRow]:
    """The rows of one entry point: its recipes, or the plugin itself when broken."""
    distribution, version = _origin(point)
    plugin_row = RecipeRow(name=point.name, distribution=distribution, version=version, status="ok")
    try:
        descriptors = _descriptors(manager, point.load(), f"{distribution}:{point.name}")
    except (Exception, SystemExit) as error:  # a plugin must not end the command line either
        return [plugin_row.broken(_one_line(error), error)]
    return [_checked(replace(plugin_row, name=found.name, descriptor=found)) for found in descriptors]


def _descriptors(manager: pluggy.PluginManager, plugin: object, name: str) -> list[RecipeDescriptor]:
    if manager.is_registered(plugin):
        raise RecipeError(f"{name}: the same module is registered by {manager.get_name(plugin)}")
    manager.register(plugin, name=name)
    try:
        manager.check_pending()
        others = [other for other in manager.get_plugins() if other is not plugin]
        answers = manager.subset_hook_caller("flare_recipe_descriptors", remove_plugins=others)()
        descriptors = [descriptor for answer in answers for descriptor in answer]
        if not manager.get_hookcallers(plugin):
            raise RecipeError("implements no hook of flare (is @hookimpl missing?)")
        for descriptor in descriptors:
            if not isinstance(descriptor, RecipeDescriptor):
                raise RecipeError(
                    f"flare_recipe_descriptors gave a {type(descriptor).__name__}, not a RecipeDescriptor"
                )
    except Exception:
        # Half a plugin must not answer later hooks.
        manager.unregister(plugin)
        raise
    return descriptors


def _checked(row: RecipeRow) -> RecipeRow:
    assert row.descriptor is not None
    try:
        _check_api_version(row.descriptor)
    except RecipeError as error:
        return row.broken(_one_line(error), error)
    return row


def _check_api_version(descriptor: RecipeDescriptor) -> None:
    if descriptor.api_version != RECIPE_API_VERSION:
        raise RecipeError(
            f"recipe {descriptor.name} is written for recipe API {descriptor.api_version}, "
            f"this flare-core implements {RECIPE_API_VERSION}",
            field="api_version",
        )


def _without_clashes(rows: list[RecipeRow]) -> list[RecipeRow]:
    """Mark every recipe whose name, or whose model's name, another recipe has too."""
    owners: dict[str, list[RecipeRow]] = {}
    for row in rows:
        for name in {row.name, *_names(row.descriptor)} if row.descriptor else ():
            owners.setdefault(name, []).append(row)
    clashes = {name: rows for name, rows in owners.items() if len(rows) > 1}
    marked = []
    for row in rows:
        for name, clash in sorted(clashes.items()):
            if any(owner is row for owner in clash):
                origins = " and ".join(f"{owner.distribution} {owner.version}" for owner in clash)
                row = row.broken(f"duplicate name {name} in {origins}")
        marked.append(row)
    return marked


def _usable(row: RecipeRow) -> RecipeDescriptor:
    if row.status == "broken" or row.descriptor is None:
        message = f"recipe {row.name} from {row.distribution} {row.version} is broken: {row.reason}"
        raise RecipeError(message, field="recipe") from row.error
    return row.descriptor


def _origin(point: metadata.EntryPoint) -> tuple[str, str]:
    distribution = point.dist
    return (distribution.name, distribution.version) if distribution is not None else ("unknown", "unknown")


def _names(descriptor: RecipeDescriptor) -> list[str]:
    return [model.name for model in descriptor.models]


def _listed(descriptor: RecipeDescriptor) -> str:
    return ", ".join(_names(descriptor))


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, RecipeError) else f"{type(error).__name__}: {text}"
