"""`flare::slot_mapping` and `flare::paged_kv_write`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from flare_components.ops.cuda.launch import cdiv, power_of_two
from flare_components.ops.schema import accelerate

_BLOCK = 256


@triton.jit
def map_slots(table, positions, lanes, slots, rows, table_row, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    """BLOCK rows a program; the table and the position of a padding row are not read."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = row < rows
    lane = tl.load(lanes + row, mask=live, other=-1).to(tl.int64)
    used = lane >= 0
    position = tl.load(positions + row, mask=used, other=0).to(tl.int64)
    page = tl.load(table + lane * table_row + position // PAGE, mask=used, other=0).to(tl.int64)
    tl.store(slots + row, tl.where(used, page * PAGE + position % PAGE, -1), mask=live)


@triton.jit
def write_pages(
    k,
    v,
    k_pages,
    v_pages,
    slots,
    width,
    k_row,
    v_row,
    k_head,
    v_head,
    k_page,
    v_page,
    HEAD: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One row a program: `width` values of all key heads, of HEAD each."""
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row)
    if slot >= 0:
        column = tl.arange(0, BLOCK)
        live = column < width
        head, place = column // HEAD, column % HEAD
        inside = (slot % PAGE) * width + column
        keys = tl.load(k + row * k_row + head * k_head + place, mask=live)
        values = tl.load(v + row * v_row + head * v_head + place, mask=live)
        tl.store(k_pages + (slot // PAGE) * k_page + inside, keys, mask=live)
        tl.store(v_pages + (slot // PAGE) * v_page + inside, values, mask=live)


def slot_mapping(page_table: Tensor, positions: Tensor, lanes: Tensor, page_tokens: int) -> Tensor:
    """As the operator's CPU kernel."""
    slots = torch.empty_like(lanes, dtype=torch.int64)
    rows = lanes.shape[0]
    if rows:
        map_slots[(cdiv(rows, _BLOCK),)](
            page_table, positions, lanes, slots, rows, page_table.stride(0), PAGE=page_tokens, BLOCK=_BLOCK
        )
    return slots


def paged_kv_write(k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, slot_mapping: Tensor) -> None:
    """As the operator's CPU kernel; the inner three dimensions of the pages are contiguous."""
    rows, heads, head = k.shape
    assert all(pages[0].is_contiguous() for pages in (k_pages, v_pages)), "a page is contiguous"
    k, v = (t if t.stride(2) == 1 else t.contiguous() for t in (k, v))
    if rows:
        width = heads * head
        write_pages[(rows,)](
            k,
            v,
            k_pages,
            v_pages,
            slot_mapping,
            width,
            k.stride(0),
            v.stride(0),
            k.stride(1),
            v.stride(1),
            k_pages.stride(0),
            v_pages.stride(0),
            HEAD=head,
            PAGE=k_pages.shape[1],
            BLOCK=power_of_two(width),
            num_warps=min(max(width // 256, 1), 8),
        )


accelerate("slot_mapping", slot_mapping)
accelerate("paged_kv_write", paged_kv_write)
