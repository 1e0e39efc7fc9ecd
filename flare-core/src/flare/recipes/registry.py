"""What is installed: the list of models that can be prepared, and the choice of one.

Listing imports every light module, apart from the others; choosing imports the chosen one and no other.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from flare.errors import RecipeError
from flare.recipes.allowlist import ALLOWLIST, allowed, is_strict
from flare.recipes.descriptor import ModelEntry, RecipeDescriptor
from flare.recipes.light import heavy_import
from flare.recipes.metadata import GROUP, PluginEntry, plugin_entries
from flare.recipes.plugin import output_aside
from flare.recipes.probe import PluginReading, RecipeRow, decided, judged, read_plugin, unnamed


@dataclass(frozen=True)
class Registry:
    """`installed` are all entry points of recipes, `entries` those that `FLARE_RECIPES` leaves. With `strict`
    the rows also say whose light module imports something heavy."""

    installed: tuple[PluginEntry, ...]
    entries: tuple[PluginEntry, ...]
    strict: bool = False

    @cached_property
    def rows(self) -> tuple[RecipeRow, ...]:
        """One row for every model, by name. Imports the light modules; what they print goes to standard
        error. A plugin that is broken in whatever way is a row, never an exception."""
        settled = {entry: decided(entry, self._rivals(entry.name)) for entry in self.entries}
        open_entries = [entry for entry, row in settled.items() if row is None]
        with output_aside():
            readings = {module: self._read(entry) for module, entry in _modules(open_entries).items()}
        rows = [row for row in settled.values() if row is not None]
        rows += [judged(entry, readings[_module(entry)]) for entry in open_entries]
        for module, entry in _modules(open_entries).items():
            declared = {one.name for one in self.installed if one.distribution == entry.distribution}
            rows += unnamed(entry, readings[module], declared)
        return tuple(sorted(rows, key=lambda row: (row.name, row.distribution, row.version)))

    def choose(self, name: str) -> RecipeRow:
        """The row of model `name`, which can be prepared: its `descriptor` and `model` are not None.
        Imports the one light module behind it.

        Raises: RecipeError when nothing has this name (close ones are named), when two distributions have it
        (both are named), or when its recipe is broken or needs another flare-core. What the recipe raised is
        the cause.
        """
        rivals = self._rivals(name)
        entry = next(iter((*rivals, *(entry for entry in self.entries if entry.name == name))), None)
        if entry is None:
            raise RecipeError(self._unknown(name), field="model")
        row = decided(entry, rivals) or judged(entry, read_plugin(entry))
        match row.state:
            case "duplicate":
                raise RecipeError(
                    f"two recipes prepare {name}: {row.reason}; uninstall one, or name the distribution "
                    f"to use in {ALLOWLIST}",
                    field="model",
                )
            case "needs":
                raise RecipeError(
                    f"{name} comes from {row.distribution} {row.version}, which needs {row.reason}; "
                    f"upgrade flare-core, or install a {row.distribution} that fits",
                    field="model",
                )
            case "broken":
                message = (
                    f"the recipe of {name}, from {row.distribution} {row.version}, is broken: {row.reason}"
                )
                raise RecipeError(message, field="model") from row.error
        return row

    def find_model(self, name: str) -> tuple[RecipeDescriptor, ModelEntry]:
        """The recipe and the entry of model `name`. Raises: RecipeError, as `choose` does."""
        row = self.choose(name)
        assert row.descriptor is not None
        assert row.model is not None
        return row.descriptor, row.model

    def _rivals(self, name: str) -> tuple[PluginEntry, ...]:
        """Entries of this name. What an uninstalled package left behind takes no name from another."""
        return tuple(entry for entry in self.entries if entry.name == name and entry.defect is None)

    def _read(self, entry: PluginEntry) -> PluginReading:
        if self.strict and (heavy := heavy_import(entry)) is not None:
            return PluginReading(reason=str(heavy), error=heavy)
        return read_plugin(entry)

    def _unknown(self, name: str) -> str:
        known = list(dict.fromkeys(entry.name for entry in self.entries))
        close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        message = f"no recipe knows {name!r}" + (f"; did you mean {' or '.join(close)}?" if close else ".")
        if any(entry.name == name for entry in self.installed):
            message += f" It is installed, but {ALLOWLIST} leaves it out."
        if known:
            message += f" Known: {', '.join(known)}."
        elif self.installed:
            message += f" {ALLOWLIST} allows none of the installed recipes."
        else:
            message += f" No recipe is installed (group {GROUP})."
        return message


def discover(path: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> Registry:
    """Find the recipes that are installed, from metadata alone. `path` replaces `sys.path`.

    Raises: RecipeError when `FLARE_RECIPES` names something that is not installed.
    """
    installed = plugin_entries(GROUP, path)
    return Registry(installed, allowed(installed, environment), is_strict(environment))


def _module(entry: PluginEntry) -> tuple[str, str]:
    return entry.distribution, entry.value


def _modules(entries: Sequence[PluginEntry]) -> dict[tuple[str, str], PluginEntry]:
    """One entry for every module: a recipe with several models is read once."""
    return {_module(entry): entry for entry in reversed(entries)}
