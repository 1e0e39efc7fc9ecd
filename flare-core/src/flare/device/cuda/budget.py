"""How much of a GPU's memory the pages and rows of a core may take."""

from __future__ import annotations

from collections.abc import Iterable

from flare.contract import BufferSpec, PreparedContract, Region
from flare.device.cuda.context import Context
from flare.device.options import GPU_MEMORY_UTILIZATION, LoadOptions
from flare.device.sizing import BLOCK_REGIONS, Counts, counts_within

DRIVER_MARGIN = 64 << 20
"""Bytes left to the driver, which takes some when programs first run."""


class MemoryBudget:
    """Begins with the GPU as it is right after its context was made.

    `granularity` is that of the arena, whose regions are whole granules.
    """

    def __init__(
        self, context: Context, contract: PreparedContract, options: LoadOptions, granularity: int
    ) -> None:
        self._context, self._contract, self._options = context, contract, options
        self._granularity = granularity
        self._free, total = context.memory
        part = options.gpu_memory_utilization or GPU_MEMORY_UTILIZATION
        self._allowed = int(part * total) - context.nbytes

    def counts(self, to_come: int = 0) -> Counts:
        """What fits beside `to_come` bytes of further loading, less what pages and rows have already. Raises
        CapacityError when no context does."""
        free, _ = self._context.memory
        room = min(self._allowed - (self._free - free), free) - to_come - DRIVER_MARGIN
        return counts_within(self._contract, self._options, room - len(BLOCK_REGIONS) * self._granularity)

    def needed(self, buffers: Iterable[BufferSpec]) -> int:
        """Memory of all buffers but pages and rows."""
        ends: dict[Region, int] = {}
        for buffer in buffers:
            if buffer.region not in BLOCK_REGIONS:
                ends[buffer.region] = max(ends.get(buffer.region, 0), buffer.offset + buffer.nbytes)
        return sum(-(-end // self._granularity) * self._granularity for end in ends.values())
