"""Tables that programs read themselves: where their rows, and the numbers of their hash, are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from flare.contract import BufferView, DType, Initial, Region, TableResource
from flare.contract.schemes import TokenHistoryScheme
from flare.device.lookups import NgramLookup, lookup_of
from flare.prepare import BufferLayout, CapacityError, ServingPlan

_NUMBERS = ("multipliers", "moduli", "offsets")


@dataclass(frozen=True)
class ResidentTables:
    """`contents` u8[rows, row bytes] by table; `numbers` i64[E, ...] of `NgramHash` for the E tables, whose
    values are `constants` by core tensor. Tokens before a step are in the rows of scheme `history`."""

    order: int
    functions: int
    separator: int
    history: str
    contents: Mapping[str, BufferView]
    numbers: Mapping[str, BufferView]
    constants: Mapping[str, Tensor]


def place_tables(
    layout: BufferLayout, plan: ServingPlan, tables: Sequence[TableResource]
) -> ResidentTables | None:
    """Place `tables`, none without any.

    Raises CapacityError unless one hash computes the rows of all of them at once, and the state of `plan` has
    as many tokens before a step as it needs.
    """
    if not tables:
        return None
    lookups = [_ngrams(table) for table in tables]
    first = lookups[0]
    kinds = {(lookup.context, lookup.functions, lookup.separator) for lookup in lookups}
    if len(kinds) != 1:
        raise CapacityError(
            f"tables {', '.join(table.name for table in tables)} have different n-grams; programs read "
            "tables of one kind, the host any",
            field="tables",
        )
    constants = {
        f"ngrams/{name}": torch.stack([torch.from_numpy(getattr(lookup, name)) for lookup in lookups])
        for name in _NUMBERS
    }
    return ResidentTables(
        order=first.context + 1,
        functions=first.functions,
        separator=first.separator,
        history=_history(plan, first.context),
        contents={table.name: _place(layout, table) for table in tables},
        numbers={
            name: layout.add(
                f"ngrams/{name}",
                Region.WEIGHTS,
                DType.I64,
                tuple(constants[f"ngrams/{name}"].shape),
                initial=Initial.BYTES,
                tensor=f"ngrams/{name}",
                role="hash of n-grams",
            )
            for name in _NUMBERS
        },
        constants=constants,
    )


def _ngrams(table: TableResource) -> NgramLookup:
    lookup = lookup_of(table)
    assert isinstance(lookup, NgramLookup), "an operator for every lookup"
    return lookup


def _history(plan: ServingPlan, length: int) -> str:
    histories = [scheme for scheme in plan.schemes if isinstance(scheme, TokenHistoryScheme)]
    fitting = [scheme.name for scheme in histories if scheme.length == length]
    if len(fitting) != 1:
        raise CapacityError(
            f"programs that read tables need one history of {length} tokens in the state, the model declares "
            f"{[scheme.length for scheme in histories]}",
            field="tables",
        )
    return fitting[0]


def _place(layout: BufferLayout, table: TableResource) -> BufferView:
    return layout.add(
        table.tensor,
        Region.TABLE_ROWS,
        DType.U8,
        (table.rows, table.row_bytes),
        initial=Initial.BYTES,
        tensor=table.tensor,
        role="table",
    )
