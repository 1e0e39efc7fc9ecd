"""Tables of which the host delivers rows: they stay in the core, mapped."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flare.contract import PreparedContract
from flare.device.base import Bytes


def host_tables(
    contract: PreparedContract, contents: Callable[[str], bytes | memoryview | Bytes]
) -> dict[str, Bytes]:
    """By name, the bytes u8[rows * row_bytes] of every table with rows that the host delivers, as `contents`
    has them: a mapped core copies nothing here."""
    uses = [use for program in contract.programs for use in program.tables]
    delivered = {use.table for use in uses if use.delivery == "host_rows"}
    return {
        table.name: np.frombuffer(contents(table.tensor), dtype=np.uint8)
        for table in contract.tables
        if table.name in delivered
    }
