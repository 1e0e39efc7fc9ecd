"""Host delivery of tables: the rows that a step's tokens need, copied from the core into its upload.

A row is read where the core file is mapped, and nothing else of it stays in memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flare.contract import Program, TableResource
from flare.device.lookups import lookup_of
from flare.device.table_reader import TableReader
from flare.engine.token_rows import TokenRows
from flare.scheduler import Lane, Plan

View = NDArray[Any]


class TableRows:
    """Packs TABLE_ROWS of one table, u8[N, R, row bytes], for one program. Rows of padding are 0.

    Raises CoreError for a lookup that this engine does not know.
    """

    def __init__(self, table: TableResource, contents: NDArray[np.uint8], program: Program) -> None:
        self._read = TableReader(contents, table.row_bytes)
        self._lookup = lookup_of(table)
        self._token_rows = TokenRows(program)

    def __call__(self, view: View, plan: Plan) -> None:
        """Fill `view` for the tokens of `plan`."""
        view[:] = 0
        for lane, rows in self._token_rows.of(plan):
            before = lane.request.tokens[max(lane.consumed - self._lookup.context, 0) : lane.consumed]
            view[rows] = self._read(self._lookup.rows(before, _inputs(lane)))


def _inputs(lane: Lane) -> list[int]:
    """What the lane consumes: tokens of its history, then proposals."""
    known = list(lane.request.tokens[lane.consumed : lane.consumed + lane.length])
    return known + list(lane.proposals[: lane.length - len(known)])
