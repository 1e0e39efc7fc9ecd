"""Exact copies of state blocks: rows, pages, and single vectors in rows."""

from __future__ import annotations

from torch import Tensor

from flare_components.ops.schema import define


def _copy_blocks(blocks: Tensor, source: Tensor, destination: Tensor) -> None:
    for a, b in zip(source.tolist(), destination.tolist(), strict=True):
        if a >= 0 and b >= 0:
            blocks[b].copy_(blocks[a])


def _scatter_rows(target: Tensor, index: Tensor, values: Tensor) -> None:
    for position, row in enumerate(index.tolist()):
        if row >= 0:
            target[row].copy_(values[position])


def _set_page_table(page_table: Tensor, slots: Tensor, row: Tensor) -> None:
    (slot,) = slots.tolist()
    if slot >= 0:
        page_table[slot].copy_(row)


def _extend_page_table(page_table: Tensor, slots: Tensor, updates: Tensor) -> None:
    for slot, (logical, physical) in zip(slots.tolist(), updates.tolist(), strict=True):
        if slot >= 0 and logical >= 0:
            page_table[slot, logical] = physical


def _nothing(*_: Tensor) -> None:
    return None


# blocks u8[n, bytes]; source, destination i32[k]; a negative index copies nothing.
define(
    "copy_blocks(Tensor(a!) blocks, Tensor source, Tensor destination) -> ()", cpu=_copy_blocks, fake=_nothing
)
# target [n, ...], index i32[k], values [k, ...]; a negative index writes nothing.
define("scatter_rows(Tensor(a!) target, Tensor index, Tensor values) -> ()", cpu=_scatter_rows, fake=_nothing)
# page_table i32[S, MP], slots i32[1], row i32[MP].
define(
    "set_page_table(Tensor(a!) page_table, Tensor slots, Tensor row) -> ()",
    cpu=_set_page_table,
    fake=_nothing,
)
# updates i32[L, 2]: (logical page, physical page), logical -1 for no update.
define(
    "extend_page_table(Tensor(a!) page_table, Tensor slots, Tensor updates) -> ()",
    cpu=_extend_page_table,
    fake=_nothing,
)
