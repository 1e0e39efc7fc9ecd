"""Tables that programs of the CPU read themselves: they stay in the core's file, mapped."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection

import numpy as np
import torch

from flare.contract import PreparedContract, Program
from flare.device.lookups import lookup_of
from flare.device.table_reader import TablePages


def mapped(contents: memoryview) -> torch.Tensor:
    """u8 of the same memory, which nobody may write."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch has no tensors that are read only
        return torch.frombuffer(contents, dtype=torch.uint8)


class MappedTables:
    """Lets go of the pages that programs read from the tables in `tensors`, core tensors with `contents`."""

    def __init__(
        self, contract: PreparedContract, tensors: Collection[str], contents: Callable[[str], memoryview]
    ) -> None:
        self._pages = {
            table.name: (
                TablePages(np.frombuffer(contents(table.tensor), dtype=np.uint8)),
                lookup_of(table).rows_per_token,
            )
            for table in contract.tables
            if table.tensor in tensors
        }

    def ran(self, program: Program) -> None:
        """`program` has run."""
        for use in program.tables:
            if use.table in self._pages:
                pages, rows_per_token = self._pages[use.table]
                pages.read(program.tokens * rows_per_token)
