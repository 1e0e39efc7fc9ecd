"""Levels of effort that a template takes: protocols have more of them than models."""

from __future__ import annotations

from collections.abc import Callable, Sequence

LEVELS = ("minimal", "low", "medium", "high", "xhigh", "max")
"""Ascending, as the protocols name them; `none` is no level."""


def taken_efforts(takes: Callable[[str], bool]) -> tuple[str, ...]:
    """Those of `LEVELS` that a template takes, by asking it."""
    return tuple(level for level in LEVELS if takes(level))


def nearest_effort(asked: str, taken: Sequence[str]) -> str:
    """The level of `taken` next to `asked`, of two the higher. A word that is no level, and one of a template
    that takes none of them, stays: the template answers for it."""
    if asked in taken or asked not in LEVELS or not taken:
        return asked
    place = LEVELS.index(asked)
    return min(taken, key=lambda level: (abs(LEVELS.index(level) - place), -LEVELS.index(level)))
