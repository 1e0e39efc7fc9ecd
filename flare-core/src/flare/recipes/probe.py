"""From an entry point to its row of `flare recipes`: the one place where recipes are judged."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from flare.errors import PluginError
from flare.recipes.descriptor import RECIPE_API_VERSION, ModelEntry, RecipeDescriptor
from flare.recipes.metadata import PluginEntry
from flare.recipes.plugin import Refusal, answers_of, contained

State = Literal["ok", "broken", "needs", "duplicate"]


@dataclass(frozen=True)
class RecipeRow:
    """A model that can be named after `flare prepare`, or why it cannot be prepared.

    `state` is "ok" exactly when `descriptor` may be used; `reason` is one line for any other state, `error`
    the exception behind it, where there was one. Fields that could not be found out are None.
    """

    name: str
    distribution: str
    version: str
    state: State = "ok"
    reason: str = ""
    descriptor: RecipeDescriptor | None = None
    error: BaseException | None = field(default=None, compare=False)

    @property
    def status(self) -> str:
        """`ok`, `broken: WHY`, `needs flare-core>=X` or `duplicate: in A 1 and B 2`."""
        separator = " " if self.state == "needs" else ": "
        return self.state + (separator + self.reason if self.reason else "")

    @property
    def recipe(self) -> str | None:
        """The recipe that prepares the model."""
        return self.descriptor.name if self.descriptor else None

    @property
    def api_version(self) -> int | None:
        """The recipe API that the recipe was written for."""
        return self.descriptor.api_version if self.descriptor else None

    @property
    def model(self) -> ModelEntry | None:
        """The entry of the model in the recipe's descriptor."""
        models = self.descriptor.models if self.descriptor else ()
        return next((model for model in models if model.name == self.name), None)


@dataclass(frozen=True)
class PluginReading:
    """What the module behind an entry point answered; on failure `reason` says why, and `error` is the
    exception that the module raised, where it raised one."""

    descriptors: tuple[RecipeDescriptor, ...] = ()
    reason: str = ""
    error: BaseException | None = None


def read_plugin(entry: PluginEntry) -> PluginReading:
    """Import the light module behind `entry` and ask for its descriptors. Never raises but for ctrl-C."""
    try:
        found = answers_of(entry, "flare_recipe_descriptors")
        with contained(entry.module):
            return PluginReading(descriptors=tuple(_descriptor(item) for item in found))
    except PluginError as error:
        return PluginReading(reason=str(error), error=error.__cause__)


def decided(entry: PluginEntry, rivals: tuple[PluginEntry, ...]) -> RecipeRow | None:
    """The row of an entry whose fate the metadata decides; None when its module has to be read.

    `rivals` are all entries of its name whose metadata can be read.
    """
    if entry.defect is not None:
        return row_of(entry, "broken", entry.defect)
    if len(rivals) > 1:
        return row_of(entry, "duplicate", f"in {' and '.join(rival.origin for rival in rivals)}")
    if entry.unmet is not None:
        return row_of(entry, "needs", entry.unmet)
    return None


def judged(entry: PluginEntry, reading: PluginReading) -> RecipeRow:
    """The row of an entry whose module was read."""
    if reading.reason:
        return row_of(entry, "broken", reading.reason, error=reading.error)
    listing = [descriptor for descriptor in reading.descriptors if entry.name in model_names(descriptor)]
    if not listing:
        known = ", ".join(name for one in reading.descriptors for name in model_names(one)) or "none"
        return row_of(
            entry, "broken", f"no descriptor in {entry.value} lists this model; models there: {known}"
        )
    if len(listing) > 1:
        names = " and ".join(descriptor.name for descriptor in listing)
        return row_of(entry, "broken", f"its recipes {names} both list this model")
    mismatch = api_mismatch(listing[0])
    return row_of(entry, "broken" if mismatch else "ok", mismatch, listing[0])


def unnamed(entry: PluginEntry, reading: PluginReading, declared: set[str]) -> list[RecipeRow]:
    """Rows of models that a descriptor lists and nobody can name, for want of an entry point among the names
    that its distribution has `declared`."""
    reason = f"no entry point has this name: point one of the group {entry.group} to {entry.value}"
    return [
        replace(row_of(entry, "broken", reason, descriptor), name=name)
        for descriptor in reading.descriptors
        for name in model_names(descriptor)
        if name not in declared
    ]


def model_names(descriptor: RecipeDescriptor) -> list[str]:
    """Names of the models that a recipe prepares."""
    return [model.name for model in descriptor.models]


def api_mismatch(descriptor: RecipeDescriptor) -> str:
    """Why the recipe is written for another recipe API; empty when it is not."""
    if descriptor.api_version == RECIPE_API_VERSION:
        return ""
    return f"written for recipe API {descriptor.api_version}, this flare-core implements {RECIPE_API_VERSION}"


def row_of(
    entry: PluginEntry,
    state: State = "ok",
    reason: str = "",
    descriptor: RecipeDescriptor | None = None,
    error: BaseException | None = None,
) -> RecipeRow:
    """The row of `entry`."""
    return RecipeRow(entry.name, entry.distribution, entry.version, state, reason, descriptor, error)


def _descriptor(item: object) -> RecipeDescriptor:
    if not isinstance(item, RecipeDescriptor):
        kind = type(item).__name__
        raise Refusal(f"flare_recipe_descriptors gave a {kind}, not a RecipeDescriptor")
    # A subclass, or an instance made around validation, may lack or change anything.
    return RecipeDescriptor.model_validate(item.model_dump(warnings=False))
