"""Settings from the environment: `FLARE_RECIPES` and `FLARE_STRICT_RECIPES`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from packaging.utils import canonicalize_name

from flare.errors import RecipeError
from flare.recipes.metadata import PluginEntry

ALLOWLIST = "FLARE_RECIPES"
"""Comma-separated names of entry points or distributions; set and empty it allows no recipe."""

STRICT = "FLARE_STRICT_RECIPES"
"""For authors and CI: `1` makes every unusable recipe an error, and looks for heavy imports."""


def allowed(entries: Sequence[PluginEntry], environment: Mapping[str, str]) -> tuple[PluginEntry, ...]:
    """The entries that `FLARE_RECIPES` leaves; all of them when it is not set.

    Raises: RecipeError for a name that is neither an installed entry point nor its distribution.
    """
    setting = environment.get(ALLOWLIST)
    if setting is None:
        return tuple(entries)
    wanted = {name.strip() for name in setting.split(",")} - {""}
    distributions = {canonicalize_name(name) for name in wanted}
    left = tuple(e for e in entries if e.name in wanted or canonicalize_name(e.distribution) in distributions)
    found = {name for entry in left for name in (entry.name, canonicalize_name(entry.distribution))}
    absent = sorted(name for name in wanted if not {name, canonicalize_name(name)} & found)
    if absent:
        installed = ", ".join(f"{entry.name} ({entry.distribution})" for entry in entries) or "nothing"
        raise RecipeError(
            f"{ALLOWLIST} names {', '.join(absent)}, which is not installed; installed: {installed}",
            field=ALLOWLIST,
        )
    return left


def is_strict(environment: Mapping[str, str]) -> bool:
    """Whether `FLARE_STRICT_RECIPES` is set. Raises: RecipeError for other values than 1, 0 and nothing."""
    setting = environment.get(STRICT, "")
    if setting not in ("", "0", "1"):
        raise RecipeError(f"{STRICT} is 1 or 0, not {setting!r}", field=STRICT)
    return setting == "1"
