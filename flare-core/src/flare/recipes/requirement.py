"""Whether a distribution fits this flare-core, by its `Requires-Dist` and without importing it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from flare import __version__

CORE = "flare-core"
_NAME = re.compile(r"\s*([A-Za-z0-9._-]+)")


def unmet_core(requires: Iterable[str], installed: str = __version__) -> str | None:
    """The part of the requirements on flare-core that version `installed` does not meet, e.g.
    `flare-core>=2`; None when it fits.

    `requires` are requirement strings; those of extras and of other environments do not count.
    Raises: InvalidRequirement for a malformed requirement on flare-core.
    """
    unmet: set[str] = set()
    for text in requires:
        name = _NAME.match(text)
        # Only ours is parsed: a malformed requirement on something else is pip's to report.
        if name is None or canonicalize_name(name[1]) != CORE:
            continue
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        unmet.update(
            str(part) for part in requirement.specifier if not part.contains(installed, prereleases=True)
        )
    return CORE + ",".join(sorted(unmet)) if unmet else None
