"""Tables that programs of the sim device read themselves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flare.device.lookups import NgramLookup
from flare.device.sim_ops import Array, operator


@operator(
    "sim::read_grams(Tensor tokens, Tensor? starts, Tensor? lengths, Tensor slots, Tensor live_rows, "
    "Tensor consumed, Tensor history, Tensor table, int[] parameters) -> Tensor"
)
def read_grams(
    tokens: Array,
    starts: Array | None,
    lengths: Array | None,
    slots: Array,
    live_rows: Array,
    consumed: Array,
    history: Array,
    table: Array,
    parameters: Sequence[int],
) -> Array:
    """Rows u8[N, R, row bytes] of `table` u8[rows, row bytes] that every token needs, 0 for padding.

    tokens i32[N]; a lane's begin at starts and are lengths i32[L] many, or end where the next lane's begin,
    or without either every lane has one; slots, live_rows i32[L]; consumed i32[S]; history i32[R, H], the
    newest last; parameters are those of an `ngram` lookup.
    """
    lookup = NgramLookup(parameters)
    found = np.zeros((len(tokens), lookup.rows_per_token, table.shape[1]), dtype=np.uint8)
    begins = np.arange(len(slots) + 1) if starts is None else starts
    for lane, (slot, row) in enumerate(zip(slots.tolist(), live_rows.tolist(), strict=True)):
        if slot < 0:
            continue
        begin = int(begins[lane])
        end = int(begins[lane + 1]) if lengths is None else begin + int(lengths[lane])
        known = min(int(consumed[slot]), lookup.context)
        before = history[row, history.shape[1] - known :].tolist()
        found[begin:end] = table[lookup.rows(before, tokens[begin:end].tolist())]
    return found
