"""Where the token rows of a program's lanes lie, for values that the host uploads per token."""

from __future__ import annotations

from collections.abc import Iterator

from flare.contract import Program
from flare.scheduler import Lane, Plan


class TokenRows:
    """The rows of one program: a lane's follow right behind those of the lane before it; in a speculative
    program of rectangular shape every lane has as many."""

    def __init__(self, program: Program) -> None:
        shape = program.speculation
        rectangular = shape is not None and shape.rows == shape.requests * shape.width
        self._stride = shape.width if shape is not None and rectangular else 0

    def of(self, plan: Plan) -> Iterator[tuple[Lane, slice]]:
        """Every lane of `plan` with its rows."""
        cursor = 0
        for index, lane in enumerate(plan.lanes):
            start = index * self._stride if self._stride else cursor
            yield lane, slice(start, start + lane.length)
            cursor += lane.length
