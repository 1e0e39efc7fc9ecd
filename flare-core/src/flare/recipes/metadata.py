"""Entry points of plugins as the metadata of installed distributions declares them. Nothing is imported.

A distribution found twice on `sys.path` (an editable install and the metadata it left in its source tree)
counts once: the first wins, as it does when Python imports. Metadata that cannot be read is a defect of its
own entries and hides no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import importlib_metadata as metadata
from packaging.version import InvalidVersion, Version

from flare.recipes.requirement import unmet_core

if TYPE_CHECKING:
    from importlib_metadata import IDistribution

GROUP = "flare.recipes"
"""Entry points of recipes; each is named like a model that it prepares."""

SOURCES = "flare.sources"
"""Entry points of checkpoint sources; each is named like its URI scheme."""

_Facts = tuple[str, str, str | None, str | None]


@dataclass(frozen=True)
class PluginEntry:
    """One entry point. `name` is what users type, `value` the module (or `module:attribute`) behind it.

    `unmet` is the requirement on flare-core that this one does not meet. `defect` is one line that says why
    the metadata itself cannot be used. Either means that nothing may be imported.
    """

    name: str
    distribution: str
    version: str
    value: str
    group: str
    unmet: str | None = None
    defect: str | None = None

    @property
    def origin(self) -> str:
        """Distribution and version, for messages."""
        return f"{self.distribution} {self.version}"

    @property
    def module(self) -> str:
        """The module that is imported."""
        return self.value.partition(":")[0].strip()

    def load(self) -> Any:
        """Import the module and return what the entry point names. Raises whatever that raises."""
        return metadata.EntryPoint(name=self.name, value=self.value, group=self.group).load()


def plugin_entries(group: str, path: Sequence[str] | None = None) -> tuple[PluginEntry, ...]:
    """Every entry point of `group`, sorted by name. `path` replaces `sys.path`."""
    found = metadata.distributions() if path is None else metadata.distributions(path=list(path))
    chosen: dict[str, IDistribution] = {}
    for distribution in found:
        key = _key(distribution)
        if key not in chosen or _replaces(distribution, chosen[key]):
            chosen[key] = distribution
    entries = [entry for key in chosen for entry in _entries(key, chosen[key], group)]
    return tuple(sorted(dict.fromkeys(entries), key=lambda entry: (entry.name, entry.origin, entry.value)))


def _entries(key: str, distribution: IDistribution, group: str) -> list[PluginEntry]:
    try:
        points = [point for point in distribution.entry_points if point.group == group]
    except Exception as error:  # a malformed file raises whatever its parser stumbles over
        if not _mentions(distribution, group, error):
            return []
        name, version, *_ = _facts(key, distribution)
        problem = f"its entry_points.txt cannot be read: {type(error).__name__}"
        return [PluginEntry(name, name, version, "", group, defect=problem)]
    if not points:
        return []
    name, version, unmet, defect = _facts(key, distribution)
    return [PluginEntry(point.name, name, version, point.value, group, unmet, defect) for point in points]


def _facts(key: str, distribution: IDistribution) -> _Facts:
    """Name, version, unmet requirement and defect of a distribution."""
    if not _readable(distribution):
        place = distribution.locate_file("")
        defect = f"no readable METADATA in {place}, left by an uninstalled or half installed package"
        return key, "unknown", None, f"{defect}; install {key} again, or delete what is left of it"
    headers = distribution.metadata
    name, version = headers.get("Name"), headers.get("Version")
    if not name or not version:
        return name or key, version or "unknown", None, "its METADATA has no Name or no Version"
    try:
        return name, version, unmet_core(distribution.requires or ()), None
    except ValueError as error:
        return (
            name,
            version,
            None,
            f"its METADATA has a malformed requirement: {' '.join(str(error).split())}",
        )


def _key(distribution: IDistribution) -> str:
    """What makes two findings one distribution. From the name of its directory, so that the metadata of
    everything else that is installed need not be parsed."""
    try:
        return str(getattr(distribution, "_normalized_name", None) or distribution.name)
    except Exception:  # nothing in it says its name: it stays apart from all others
        return f"unnamed-{id(distribution)}"


def _replaces(found: IDistribution, kept: IDistribution) -> bool:
    """Whether a later finding of the same distribution is the better one.

    What was found first on the path stays, unless it is a remainder without METADATA. Of two in one
    directory, where the order means nothing, the newer one counts.
    """
    if not _readable(kept) or not _readable(found):
        return not _readable(kept) and _readable(found)
    return found.locate_file("") == kept.locate_file("") and _version(found) > _version(kept)


def _readable(distribution: IDistribution) -> bool:
    try:
        # The empty name is an egg-info that is a file.
        return any(distribution.read_text(file) for file in ("METADATA", "PKG-INFO", ""))
    except (OSError, ValueError):
        return False


def _version(distribution: IDistribution) -> Version:
    try:
        return Version(distribution.metadata.get("Version") or "")
    except InvalidVersion:
        return Version("0")


def _mentions(distribution: IDistribution, group: str, error: Exception) -> bool:
    """Whether unreadable entry points are ours to report: broken metadata is mostly somebody else's."""
    if isinstance(error, UnicodeDecodeError):
        return group.encode() in error.object
    try:
        return group in (distribution.read_text("entry_points.txt") or "")
    except Exception:
        return False
