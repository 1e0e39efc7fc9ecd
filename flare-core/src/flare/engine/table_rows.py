"""Host delivery of tables: the rows that a step's tokens need, copied from the core into its upload.

A row is read where the core file is mapped: only what is asked for comes into memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flare.contract import Program, TableResource
from flare.engine.lookups import lookup_of
from flare.scheduler import Lane, Plan

View = NDArray[Any]


class TableRows:
    """Packs TABLE_ROWS of one table, u8[N, R, row bytes], for one program. Rows of padding are 0.

    Raises CoreError for a lookup that this engine does not know.
    """

    def __init__(self, table: TableResource, contents: NDArray[np.uint8], program: Program) -> None:
        self._rows = contents.reshape(table.rows, table.row_bytes)
        self._lookup = lookup_of(table)
        self._stride = _stride(program)

    def __call__(self, view: View, plan: Plan) -> None:
        """Fill `view` for the tokens of `plan`."""
        view[:] = 0
        for start, lane in self._placed(plan):
            inputs = _inputs(lane)
            before = lane.request.tokens[max(lane.consumed - self._lookup.context, 0) : lane.consumed]
            view[start : start + len(inputs)] = self._rows[self._lookup.rows(before, inputs)]

    def _placed(self, plan: Plan) -> Iterator[tuple[int, Lane]]:
        """Every lane with its first token row."""
        cursor = 0
        for index, lane in enumerate(plan.lanes):
            yield (index * self._stride if self._stride else cursor), lane
            cursor += lane.length


def _stride(program: Program) -> int:
    """Token rows of a lane, 0 when each lane's follow right behind the lane's before."""
    shape = program.speculation
    return shape.width if shape is not None and shape.rows == shape.requests * shape.width else 0


def _inputs(lane: Lane) -> list[int]:
    """What the lane consumes: tokens of its history, then proposals."""
    known = list(lane.request.tokens[lane.consumed : lane.consumed + lane.length])
    return known + list(lane.proposals[: lane.length - len(known)])
