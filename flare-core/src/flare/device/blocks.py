"""Pages and rows as blocks of bytes, over host-visible storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from flare.contract import PreparedContract, Region
from flare.device.base import Bytes
from flare.errors import CoreError


def block_view(contract: PreparedContract, region: Region, storage: Callable[[str], Bytes]) -> Bytes:
    """The blocks of `region`, which is PAGES or ROWS, as u8[blocks, block bytes] over the live storage of
    rank 0. Raises CoreError when they do not lie in one buffer."""
    geometry = {Region.PAGES: contract.page, Region.ROWS: contract.row}[region]
    names = [buffer.name for buffer in contract.buffers if buffer.region is region and buffer.rank == 0]
    if len(names) != 1:
        raise CoreError(f"{len(names)} {region.value} buffers, expected one", field="buffers")
    return cast(Bytes, storage(names[0]).reshape(-1, geometry.nbytes))
