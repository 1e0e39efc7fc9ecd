"""Snapshot rows: the continuation rows behind the null row 0 and the slots' live rows."""

from __future__ import annotations

from flare.cache.pool import FencedPool
from flare.contract import Capacities

NULL_ROW = 0


class RowPool(FencedPool):
    """Rows `capacities.rows - snapshot_rows` onwards; live rows belong to their slots for good."""

    def __init__(self, capacities: Capacities) -> None:
        super().__init__(first=capacities.live_row(capacities.concurrency), count=capacities.snapshot_rows)
