"""When each part of loading ran."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class LoadTimes:
    """Parts of one load, which may overlap. `spans` has, by part, begin and end in milliseconds from here."""

    def __init__(self) -> None:
        self._origin = time.perf_counter()
        self.spans: dict[str, tuple[float, float]] = {}

    @property
    def now(self) -> float:
        """Milliseconds since loading began."""
        return 1000 * (time.perf_counter() - self._origin)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A part that runs inside this context."""
        began = self.now
        yield
        self.spans[name] = (began, self.now)
