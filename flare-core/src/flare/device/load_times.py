"""When each part of loading ran."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class LoadTimes:
    """Parts of one load, which may overlap. `spans` has, by part, begin and end in milliseconds from here;
    what ran before has negative ones."""

    def __init__(self) -> None:
        self._origin = time.perf_counter()
        self.spans: dict[str, tuple[float, float]] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A part that runs inside this context."""
        began = self._now()
        yield
        self.spans[name] = (began, self._now())

    def add(self, name: str, began: float, ended: float) -> None:
        """A part that ran elsewhere, perhaps before: `time.perf_counter` when it began and ended."""
        self.spans[name] = 1000 * (began - self._origin), 1000 * (ended - self._origin)

    def _now(self) -> float:
        return 1000 * (time.perf_counter() - self._origin)
