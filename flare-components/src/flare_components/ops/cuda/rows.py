"""Rows and blocks moved by index: gather, embedding, scatter, whole blocks, page tables."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from flare_components.ops.cuda.launch import cdiv, power_of_two
from flare_components.ops.schema import accelerate

_BLOCK = 4096


@triton.jit
def gather(x, index, out, width, x_row, index_stride, BLOCK: tl.constexpr):
    """Program (position, block of columns): out is contiguous, zero where the index is negative."""
    position = tl.program_id(0).to(tl.int64)
    row = tl.load(index + position * index_stride).to(tl.int64)
    column = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = column < width
    values = tl.load(x + row * x_row + column, mask=live & (row >= 0), other=0)
    tl.store(out + position * width + column, values, mask=live)


@triton.jit
def move(source, target, sources, targets, width, source_row, target_row, BLOCK: tl.constexpr):
    """Copy row sources[i] to row targets[i], block by block; nothing where either is negative."""
    position = tl.program_id(0).to(tl.int64)
    from_row = tl.load(sources + position).to(tl.int64)
    to_row = tl.load(targets + position).to(tl.int64)
    if (from_row >= 0) & (to_row >= 0):
        column = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        live = column < width
        values = tl.load(source + from_row * source_row + column, mask=live)
        tl.store(target + to_row * target_row + column, values, mask=live)


@triton.jit
def scatter(values, target, index, width, values_row, target_row, BLOCK: tl.constexpr):
    """Write row i of values to row index[i] of target; nothing where it is negative."""
    position = tl.program_id(0).to(tl.int64)
    row = tl.load(index + position).to(tl.int64)
    if row >= 0:
        column = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        live = column < width
        tl.store(
            target + row * target_row + column,
            tl.load(values + position * values_row + column, mask=live),
            mask=live,
        )


@triton.jit
def update_table(table, slots, updates, table_row, lanes, BLOCK: tl.constexpr):
    """One program: table[slot, logical] = physical."""
    lane = tl.arange(0, BLOCK)
    live = lane < lanes
    slot = tl.load(slots + lane, mask=live, other=-1).to(tl.int64)
    logical = tl.load(updates + lane * 2, mask=live, other=-1)
    physical = tl.load(updates + lane * 2 + 1, mask=live, other=-1)
    tl.store(table + slot * table_row + logical, physical, mask=live & (slot >= 0) & (logical >= 0))


def _rows(x: Tensor) -> tuple[Tensor, int]:
    """x with contiguous rows, and the elements of one."""
    width = x[0].numel() if x.shape[0] else 0
    return (x if x.dim() == 1 or x[:1].is_contiguous() else x.contiguous()), width


def gather_rows(x: Tensor, index: Tensor) -> Tensor:
    """As the operator's CPU kernel."""
    out = x.new_empty(index.shape[0], *x.shape[1:])
    if out.numel():
        x, width = _rows(x)
        block = min(_BLOCK, power_of_two(width))
        gather[(index.shape[0], cdiv(width, block))](
            x, index, out, width, x.stride(0), index.stride(0), BLOCK=block
        )
    return out


def embedding(ids: Tensor, weight: Tensor) -> Tensor:
    """As the operator's CPU kernel."""
    return gather_rows(weight, ids)


def scatter_rows(target: Tensor, index: Tensor, values: Tensor) -> None:
    """As the operator's CPU kernel."""
    assert target.dim() == 1 or target[:1].is_contiguous(), "rows of the target are contiguous"
    values, width = _rows(values)
    if values.numel():
        block = min(_BLOCK, power_of_two(width))
        scatter[(index.shape[0], cdiv(width, block))](
            values, target, index, width, values.stride(0), target.stride(0), BLOCK=block
        )


def copy_blocks(blocks: Tensor, source: Tensor, destination: Tensor) -> None:
    """As the operator's CPU kernel, for blocks that no pair both reads and writes."""
    nbytes = blocks.shape[1]
    if nbytes % 8 == 0 and blocks.data_ptr() % 8 == 0 and blocks.stride(0) % 8 == 0:
        blocks = blocks.view(torch.int64)
    width = blocks.shape[1]
    if width and source.numel():
        block = min(_BLOCK, power_of_two(width))
        move[(source.shape[0], cdiv(width, block))](
            blocks, blocks, source, destination, width, blocks.stride(0), blocks.stride(0), BLOCK=block
        )


def set_page_table(page_table: Tensor, slots: Tensor, row: Tensor) -> None:
    """As the operator's CPU kernel."""
    scatter_rows(page_table, slots, row.unsqueeze(0))


def extend_page_table(page_table: Tensor, slots: Tensor, updates: Tensor) -> None:
    """As the operator's CPU kernel."""
    if slots.numel():
        lanes = slots.shape[0]
        update_table[(1,)](
            page_table, slots, updates.contiguous(), page_table.stride(0), lanes, BLOCK=power_of_two(lanes)
        )


accelerate("gather_rows", gather_rows)
accelerate("embedding", embedding)
accelerate("scatter_rows", scatter_rows)
accelerate("copy_blocks", copy_blocks)
accelerate("set_page_table", set_page_table)
accelerate("extend_page_table", extend_page_table)
